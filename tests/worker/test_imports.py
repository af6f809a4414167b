"""What a process does not load: the operators with their native loops take a second and 50 MB."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import importlib, sys
importlib.import_module(sys.argv[1])
found = [name for name in sys.argv[2:] if name in sys.modules]
sys.exit(", ".join(found) or 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "others"),
    [
        ("mesh.worker.session", ["mesh.operators.executor", "mesh.operators.windows", "pandas"]),
        ("mesh.worker.worker", ["pyspark", "numba", "mesh.operators.base"]),
        ("mesh.manager.manager", ["pyspark", "numba", "mesh.operators.base"]),
    ],
)
def test_a_process_loads_only_what_it_needs(module: str, others: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, module, *others], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
