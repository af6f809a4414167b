"""Processes of a worker without the packages that they do not use."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: Large packages.
PACKAGES = ("aiohttp", "httpx", "numba", "pandas", "pyarrow", "pyspark", "starlette")
AGENT = "import mesh.cli.commands, mesh.worker.worker"
SESSION = """
import mesh.worker.session
from mesh.processes.imports import import_arrow, import_spark
import_arrow()
import_spark()
import numpy, pyarrow
from pyspark.sql.types import NumpyArrayConverter
assert NumpyArrayConverter().can_convert(numpy.zeros(1))
pyarrow.array(["a"])
assert mesh.worker.session.session_start.loop_cache.compiled_mark()
"""
TASK = """
import os, sys
os.environ["MESH_SPARK_FUNCTIONS"] = "1"
from mesh.spark import daemon
daemon.prepare(daemon.modules())
from mesh.operators.windows import sliding
assert sliding
"""


def _imported(code: str) -> set[str]:
    """Those of ``PACKAGES`` that a process has imported after ``code``."""
    code += f"\nimport json, sys\nprint(json.dumps([p for p in {PACKAGES} if p in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "used"),
    [
        (AGENT, set()),
        (SESSION, {"pyarrow", "pyspark"}),
        (TASK, {"numba", "pyarrow", "pyspark"}),
    ],
    ids=["agent", "session", "task"],
)
def test_a_process_has_only_what_it_uses(code: str, used: set[str]) -> None:
    assert _imported(code) == used


def test_arrow_finds_pandas_for_a_function_of_an_app_that_uses_it() -> None:
    code = """
from types import SimpleNamespace
from mesh.processes.imports import import_arrow
import_arrow()
from mesh.errors import Position
from mesh.functions.scripts import compile_script
from mesh.model.types import AttributeType
body = "import pandas"
compile_script(SimpleNamespace(
    name="f", language="python", type=AttributeType.INT, body=body, position=Position(1, 1)))
import pandas, pyarrow
assert pyarrow.array(pandas.Series([1.0, None])).null_count == 1
"""
    assert "pandas" in _imported(code)


#: A compilation in a process of the daemon, by the code whose pages are gone.
COMPILED = """
import numba
from pathlib import Path

def mapped():
    parts = Path("/proc/self/smaps").read_text().split("VmFlags")
    code = [one for one in parts if "libllvmlite.so" in one and "r-xp" in one]
    return [int(one.partition("Rss:")[2].split()[0]) for one in code]

before = mapped()
assert numba.njit(lambda n: n + 1)(1) == 2
print(json.dumps([before, mapped()]))
"""


@pytest.mark.slow
def test_the_compilers_code_is_in_memory_only_when_it_is_used() -> None:
    code = f"import json\n{TASK}{COMPILED}"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    before, after = json.loads(done.stdout)
    assert before
    assert sum(before) < 1024 < sum(after)
