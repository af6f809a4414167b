"""The connector as a distribution of its own: built, installed and used without mesh.

Installed packages are linked into a directory of its own, but only those that the connector's wheel
declares, with their dependencies.  So a dependency that is used and not declared is missing, and so
is mesh.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mesh.processes import java
from mesh.processes.bounded_process import die_with_parent
from tests.support.pages import passages
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECTORS = ROOT / "connectors"

#: Imports every module and prints their files; then that mesh is not there.
IMPORTS = """
import importlib, json, pathlib, pkgutil
import pyspark_nats
root = pathlib.Path(pyspark_nats.__file__).parent.parent
names = [m.name for m in pkgutil.walk_packages(pyspark_nats.__path__, "pyspark_nats.")]
files = [importlib.import_module(name).__file__ for name in names]
names = [str(pathlib.Path(file).relative_to(root)) for file in files]
absent = [n for n in ("mesh", "nats") if importlib.util.find_spec(n) is None]
print(json.dumps({"file": pyspark_nats.__file__, "names": names, "absent": absent}))
"""

#: Writes ten messages to a stream and reads them back, as a user's program would.
ROUND_TRIP = """
import json, sys
from pyspark.sql import SparkSession
url, scratch = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.local.dir", scratch)
    .config("spark.sql.warehouse.dir", scratch)
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
numbers = spark.range(10).selectExpr("concat('n', id) AS data")
numbers.write.format("nats").mode("append").options(
    servers=url, stream="S", subject="ev.S"
).save()
table = spark.read.format("nats").options(servers=url, stream="S", subject="ev.S").load()
rows = table.selectExpr("cast(data AS string) AS text").collect()
print(json.dumps(sorted(row.text for row in rows)))
spark.stop()
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both wheels, built offline: the connector's and the project's."""
    built: dict[str, Path] = {}
    for name, source in (("connector", CONNECTORS), ("project", ROOT)):
        where = tmp_path_factory.mktemp(name)
        run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", where], cwd=source)
        (built[name],) = where.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean_python(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """``run`` for a virtual environment that holds the connector's wheel and no mesh."""
    home = tmp_path_factory.mktemp("clean")
    run([sys.executable, "-m", "venv", "--without-pip", home / "venv"])
    python = home / "venv" / "bin" / "python"
    run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index",
         "--no-deps", "--disable-pip-version-check", wheels["connector"]]
    )  # fmt: skip
    needed = linked_dependencies(home / "needed")

    def execute(*arguments: object) -> str:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "JAVA_HOME": str(java.java_home()),
            # A directory named here is searched, but its .pth files, which make an editable mesh
            # visible, are not read.
            "PYTHONPATH": str(needed),
            "PYSPARK_PYTHON": str(python),
        }
        return run([python, *arguments], cwd=home, env=environment)

    return execute


def linked_dependencies(directory: Path) -> Path:
    """A directory for the search path with what the connector declares, and no connector."""
    directory.mkdir()
    project = tomllib.loads((CONNECTORS / "pyproject.toml").read_text())["project"]
    for entry in closure(names(project["dependencies"])):
        (directory / entry.name).symlink_to(entry)
    return directory


def run(command: list[Any], **given: Any) -> str:
    """Output of ``command``; an assertion with all of it if it fails."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=100,
        preexec_fn=die_with_parent(), **given,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def names(requirements: Iterator[str] | list[str]) -> list[str]:
    """Names of requirements without an "extra"."""
    found = (re.match(r"[\w.-]+", line) for line in requirements if "extra ==" not in line)
    return [match[0] for match in found if match]


def closure(wanted: list[str]) -> set[Path]:
    """Top-level files and directories of the installed distributions, with all they need."""
    entries: set[Path] = set()
    seen: set[str] = set()
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            installed = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            # For another platform or Python.
            continue
        wanted += names(installed.requires or [])
        tops = {file.parts[0] for file in installed.files or () if file.parts[0] != ".."}
        entries |= {Path(str(installed.locate_file(top))) for top in tops}
    return {entry for entry in entries if entry.name != "__pycache__"}


def modules(wheel: Path) -> set[str]:
    """The connector's files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("pyspark_nats/")}


@pytest.mark.extended
def test_both_wheels_hold_the_whole_connector(wheels: dict[str, Path]) -> None:
    files = (CONNECTORS / "pyspark_nats").rglob("*.py")
    on_disk = {str(file.relative_to(CONNECTORS)) for file in files}
    assert modules(wheels["connector"]) == modules(wheels["project"]) == on_disk


@pytest.mark.slow
def test_the_projects_wheel_holds_its_two_packages_and_no_tooling(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["project"]) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"mesh", "pyspark_nats"}


def test_its_dependencies_have_the_bounds_of_the_project() -> None:
    def bounds(path: Path) -> dict[str, str]:
        lines = tomllib.loads(path.read_text())["project"]["dependencies"]
        parts = (re.match(r"([\w-]+)(?:\[\w+\])?(.*)", line) for line in lines)
        return {part[1]: part[2] for part in parts if part}

    ours, whole = bounds(CONNECTORS / "pyproject.toml"), bounds(ROOT / "pyproject.toml")
    # The project has nkeys as a dependency of nats-py.
    shared = {name: bound for name, bound in ours.items() if name != "nkeys"}
    assert shared == {name: whole[name] for name in shared}


@pytest.mark.extended
def test_it_imports_without_mesh(clean_python: Any, wheels: dict[str, Path]) -> None:
    said = json.loads(clean_python("-W", "error", "-c", IMPORTS))
    assert "/venv/" in said["file"]
    assert said["absent"] == ["mesh", "nats"]
    assert set(said["names"]) == modules(wheels["connector"]) - {"pyspark_nats/__init__.py"}


@pytest.mark.extended
@pytest.mark.spark
@pytest.mark.nats
@pytest.mark.slow
def test_spark_writes_and_reads_with_nothing_else_installed(
    clean_python: Any, broker: Any, tmp_path: Path
) -> None:
    broker.create("S")
    said = clean_python("-c", ROUND_TRIP, broker.url, tmp_path / "spark")
    assert json.loads(said.splitlines()[-1]) == sorted(f"n{i}" for i in range(10))


@pytest.mark.extended
@pytest.mark.spark
@pytest.mark.nats
@pytest.mark.slow
def test_an_archive_of_py_files_serves_after_register(broker: Any, tmp_path: Path) -> None:
    broker.create("S")
    needed = linked_dependencies(tmp_path / "needed")
    run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"])
    # The commands of docs/connector.md, on one machine.
    (shown,) = (one for one in passages(ROOT / "docs" / "connector.md") if one.is_shell)
    pack, submit = shown.commands
    text = ROUND_TRIP.replace(
        "numbers =", "import pyspark_nats\npyspark_nats.register(spark)\nnumbers ="
    )
    (tmp_path / "program.py").write_text(text)
    (tmp_path / "connectors").symlink_to(CONNECTORS)
    python = tmp_path / "venv" / "bin" / "python"
    program = needed / "pyspark" / "bin" / "spark-submit"
    environment = {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "JAVA_HOME": str(java.java_home()),
        "SPARK_HOME": str(needed / "pyspark"),
        "PYTHONPATH": str(needed),
        "PYSPARK_PYTHON": str(python),
    }
    run([python, *pack.split()[1:]], cwd=tmp_path, env=environment)
    command = ["bash", program, *submit.split()[1:], broker.url, tmp_path / "spark"]
    said = run(command, cwd=tmp_path, env=environment)
    assert json.loads(said.splitlines()[-1]) == sorted(f"n{i}" for i in range(10))
