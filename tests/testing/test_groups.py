"""Groups of tests in parallel runs: stable, whole, and the slow ones first."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.groups import group_of, rank_of
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_tests_of_one_expensive_fixture_are_one_group() -> None:
    assert group_of("tests/e2e/test_keys.py::test_a") == group_of("tests/e2e/test_edits.py::test_b")
    assert group_of("tests/plan/test_build.py::test_a[x::y]") == "tests/plan/test_build.py"
    assert rank_of("tests/e2e/test_keys.py::test_a") < rank_of("tests/plan/test_build.py::test_a")


@pytest.mark.slow
def test_a_group_runs_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import pytest_collection_modifyitems, pytest_xdist_make_scheduler\n"
    )
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text(
            "import os, pathlib, pytest\n"
            "@pytest.mark.parametrize('number', range(6))\n"
            "def test_it(number):\n"
            "    worker = os.environ['PYTEST_XDIST_WORKER']\n"
            "    pathlib.Path(__file__).with_suffix('.' + worker).touch()\n"
        )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2"]
    command += ["--dist", "loadscope", "--no-loadscope-reorder", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [*command, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'connectors'}", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    places = sorted(path.stem for path in tmp_path.glob("test_*.gw*"))
    assert places == ["test_a", "test_b"]
