"""The session of a worker, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
import os, pathlib, sys
from mesh.processes import java
from mesh.settings import SparkSettings
from mesh.spark import session
os.environ["JAVA_HOME"] = str(java.java_home())
spark = session.start(SparkSettings(), "test", pathlib.Path(sys.argv[1]))
try:
    spark.read.format("nats").load()
except Exception as error:
    print(error)
session.stop(spark)
"""


def test_the_format_is_found_where_the_path_of_python_has_a_blank(tmp_path: Path) -> None:
    (tmp_path / "my environment").symlink_to(sys.prefix)
    python = tmp_path / "my environment" / "bin" / Path(sys.executable).name
    path = os.pathsep.join((str(ROOT), str(ROOT / "connectors")))
    ended = subprocess.run(
        [python, "-c", PROGRAM, tmp_path / "session"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "DATA_SOURCE_NOT_FOUND" not in ended.stdout
    assert "nats://host:4222" in ended.stdout
