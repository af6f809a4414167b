"""The processes that plan queries end after the start of a session, and come again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: A session in a process of its own; a data source written in Python has planners.
SESSION = """
import json, os, pathlib, sys
import psutil
from pyspark.sql.datasource import DataSource, DataSourceReader
from mesh.processes import java
from mesh.settings import SparkSettings
from mesh.spark import session

class One(DataSource):
    @classmethod
    def name(cls): return "one"
    def schema(self): return "n int"
    def reader(self, schema): return OneReader()

class OneReader(DataSourceReader):
    def read(self, partition): yield (1,)

def is_planner(process):
    try:
        return "pyspark.daemon" in process.cmdline()
    except psutil.Error:
        return False

def planners():
    return [p for p in psutil.Process().children(recursive=True) if is_planner(p)]

def rows():
    return [row.n for row in spark.read.format("one").load().collect()]

os.environ["JAVA_HOME"] = str(java.java_home())
spark = session.start(SparkSettings(), "test", pathlib.Path(sys.argv[1]))
spark.dataSource.register(One)
found = {"rows": [rows()]}
before = planners()
session.end_planners(spark)
_, alive = psutil.wait_procs(before, timeout=120)
found |= {"before": len(before), "alive": len(alive)}
found["rows"].append(rows())
session.stop(spark)
print(json.dumps(found))
"""


@pytest.mark.extended
def test_planners_end_and_the_next_query_has_new_ones(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [sys.executable, "-c", SESSION, str(tmp_path)],
        env=environment, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout.splitlines()[-1])
    assert found["before"] >= 3
    assert found["alive"] == 0
    assert found["rows"] == [[1], [1]]
