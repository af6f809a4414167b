"""`.ci/run` with programs that only note how they are called: which engine it uses, for whom."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

INSTALL, TEST, THOROUGH = "make .venv/.installed", "make test", "make test-thorough"
STACK = "python -m pytest -m docker and not extended tests/stack"


def images(base: str) -> str:
    return f"make images BASE={base} MESH_BUILD_NETWORK=host PROFILES=idp"


def runs(
    tmp_path: Path, user: int, engine: int, docker: int, **variables: str
) -> tuple[list[str], str]:
    """The programs that `.ci/run` calls, and what it says of what it leaves out."""
    programs, log = tmp_path / "bin", tmp_path / "log"
    venv = tmp_path / "a b" / ".venv" / "bin"
    for directory in (programs, venv, tmp_path / "a b" / ".ci"):
        directory.mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", tmp_path / "a b" / ".ci")
    for name in ("bash", "dirname", "env", "rm"):
        (programs / name).symlink_to(str(shutil.which(name)))
    noted = [(programs / "make", 0), (programs / "engine", engine), (venv / "python", 0)]
    for path, status in noted:
        path.write_text(f"#!/bin/sh\necho {path.name} $* >> '{log}'\nexit {status}\n")
        path.chmod(0o755)
    for name, text in (("id", f"echo {user}"), ("docker", f"exit {docker}")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        [tmp_path / "a b" / ".ci" / "run"],
        env={"PATH": str(programs), "MESH_TEST_ENGINE": str(programs / "engine"), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    return log.read_text().splitlines(), done.stderr


@pytest.mark.parametrize(
    ("user", "engine", "docker", "calls"),
    [
        (0, 0, 0, ["engine", images("local/debian:base"), STACK, "engine --down"]),
        # Whatever the program says, the tests before it have passed.
        (0, 1, 0, ["engine", "engine --down"]),
        (1000, 1, 0, [images("local/debian:base"), STACK]),
        (1000, 1, 1, []),
    ],
)
def test_the_stack_is_tested_where_an_engine_answers(
    tmp_path: Path, user: int, engine: int, docker: int, calls: list[str]
) -> None:
    called, said = runs(tmp_path, user, engine, docker)
    assert called == [INSTALL, TEST, THOROUGH, *calls]
    assert ("no Docker engine here" in said) == (STACK not in calls)


def test_a_slow_machine_runs_the_default_tests_alone(tmp_path: Path) -> None:
    called, said = runs(tmp_path, 1000, 1, 0, MESH_CI_THOROUGH_S="0", MESH_CI_STACK_S="0")
    assert called == [INSTALL, TEST]
    assert said.count("this machine is slow, 0 s so far") == 2
