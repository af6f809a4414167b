"""Native loops compiled ahead: the first ones suffice for the demo, all of them for any app."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mesh.operators import precompile

#: Loops with signatures that this process has compiled, or loaded.
HEAD = """
import gc
from numba.core.dispatcher import Dispatcher
from mesh.operators import precompile


def compiled():
    loops = [one for one in gc.get_objects() if isinstance(one, Dispatcher)]
    # Of compiled code, the entries: what these call is a part of it.
    ours = [one for one in loops if one.py_func.__module__.startswith("mesh.")]
    return {(one.py_func.__qualname__, str(s)) for one in ours for s in one.overloads}
"""
DEMO = """
from mesh.cli.demo_run import expected_rows, find_example

precompile._run(precompile._USUAL_WINDOWS)
precompile._run(precompile._USUAL_PATTERNS)
usual = compiled()
assert len(usual) > 10, len(usual)
expected_rows(find_example(), 500)
print(*sorted(compiled() - usual), sep="\\n")
"""
APPS = """
import logging
from mesh.testing.conformance import direct
from tests.support import paths
from tools import engine_answers

for queries in (
    precompile._USUAL_WINDOWS, precompile._WINDOWS + precompile._JOINS,
    precompile._USUAL_PATTERNS, precompile._PATTERNS,
):
    precompile._run(queries)
precompile._compile_declared()
prepared = compiled()
logging.disable()
for case in engine_answers.load(paths.CASES / "conformance")[::4]:
    direct.answer(case.case)
print(*sorted(compiled() - prepared), sep="\\n")
"""


def needed(program: str) -> list[str]:
    """The loops, with signatures, that a program prints."""
    # Loaded there, not compiled.
    precompile.compile_once()
    said = subprocess.run(
        [sys.executable, "-c", HEAD + program], capture_output=True, text=True, check=True
    )
    return [line for line in said.stdout.splitlines() if line]


@pytest.mark.slow
def test_the_demo_needs_the_usual_loops_alone() -> None:
    assert needed(DEMO) == []


@pytest.mark.thorough
@pytest.mark.slow
def test_apps_need_the_prepared_loops_alone() -> None:
    """A loop left out is compiled while an app runs, and its slot stands still meanwhile."""
    assert needed(APPS) == []
