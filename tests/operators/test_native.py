"""Compiled code: what an import compiles, and what a call does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mesh.operators import native

PROGRAM = """
import mesh.operators.executor
from mesh.operators import loop_cache, native
from mesh.operators.windows import sliding
import numpy as np

loops = sorted(path.name for path in loop_cache.CACHE.rglob("*.nbc"))
assert loops == [], loops
assert sliding.delay_loop.signatures == []


@native.native(native.types.int64(native.LONG1))
def total(values):
    found = 0
    for value in values:
        found += value
    return found


assert total(np.arange(5)) == 10
assert len(total.signatures) == 1


@native.njit([native.types.int64(native.types.int64), native.types.float64(native.types.float64)])
def twice(value):
    return value * 2


assert (twice(2), twice(0.5)) == (4, 1.0)
assert len(twice.signatures) == 2
try:
    total(np.arange(5.0))
except TypeError:
    print("refused")
"""


@pytest.mark.slow
def test_an_import_compiles_nothing_and_a_loop_is_compiled_for_its_signature_alone(
    tmp_path: Path,
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    said = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stdout) == (0, "refused\n"), said.stderr


def test_a_loop_is_compiled_once_if_two_threads_call_it_first() -> None:
    class Loop:
        """One whose compilation takes as long as another thread needs, unless that waits."""

        def __init__(self) -> None:
            self.compiled = 0
            self.others: list[threading.Thread] = []

        def compile(self, _: object) -> None:
            self.compiled += 1
            if not self.others:
                self.others.append(threading.Thread(target=self._compile_for_args))
                self.others[0].start()
                self.others[0].join(0.2)

        def disable_compile(self) -> None:
            pass

        def _compile_for_args(self) -> None:
            raise AssertionError("replaced")

    loop = native._declare(Loop(), [native.types.int64(native.types.int64)])
    loop._compile_for_args()
    loop.others[0].join()
    assert loop.compiled == 1
