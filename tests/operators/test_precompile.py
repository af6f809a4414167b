"""Native loops that are compiled first are all that the first demo needs."""

from __future__ import annotations

import subprocess
import sys

from mesh.operators import precompile

#: Prints the loops, with signatures, that the demo's app needs beyond the usual ones.
PROGRAM = """
import gc
from numba.core.dispatcher import Dispatcher
from mesh.cli.demo_run import expected_rows, find_example
from mesh.operators import precompile


def compiled():
    loops = [one for one in gc.get_objects() if isinstance(one, Dispatcher)]
    # Of compiled code, the entries: what these call is a part of it.
    ours = [one for one in loops if one.py_func.__module__.startswith("mesh.")]
    return {(one.py_func.__qualname__, str(s)) for one in ours for s in one.overloads}


precompile._run(precompile._USUAL_WINDOWS)
precompile._run(precompile._USUAL_PATTERNS)
usual = compiled()
assert len(usual) > 10, len(usual)
expected_rows(find_example(), 500)
print(*sorted(compiled() - usual), sep="\\n")
"""


def test_the_demo_needs_the_usual_loops_alone() -> None:
    # Loaded here, not compiled.
    precompile.compile_once()
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == []
