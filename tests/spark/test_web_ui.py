"""Spark's web UI: who can reach it, and that it shows no password."""

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

#: A session in a process of its own, with the JVM that it starts.
SESSION = """
import json, os, pathlib, sys
import psutil
from mesh.processes import java
from mesh.settings import SparkSettings
from mesh.spark import session
os.environ["JAVA_HOME"] = str(java.java_home())
spark = session.start(SparkSettings(ui=True), "test", pathlib.Path(sys.argv[1]))
listening = [
    connection.laddr.ip
    for process in psutil.Process().children(recursive=True)
    for connection in process.net_connections("tcp")
    if connection.status == psutil.CONN_LISTEN
]
jvm = spark.sparkContext._jvm
given = jvm.java.util.HashMap()
for name in ("nats", "password", "credentials", "tasks"):
    given.put(name, "value of " + name)
shown = spark._jsparkSession.sessionState().conf().redactOptions(jvm.PythonUtils.toScalaMap(given))
kill = spark.sparkContext.getConf().get("spark.ui.killEnabled")
found = {"url": spark.sparkContext.uiWebUrl, "listening": listening, "shown": shown.toString()}
found["figures"] = session.jvm_figures(spark)
session.stop(spark)
print(json.dumps({**found, "kill": kill}))
"""


def test_it_listens_on_this_machine_only_and_shows_no_secrets(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(
        [sys.executable, "-c", SESSION, str(tmp_path)],
        env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout.splitlines()[-1])
    assert found["url"]
    assert found["listening"]
    assert {ip.removeprefix("::ffff:") for ip in found["listening"]} == {"127.0.0.1"}
    assert found["kill"] == "false"
    for secret in ("nats", "password", "credentials"):
        assert f"value of {secret}" not in found["shown"]
    assert "value of tasks" in found["shown"]
    # For the worker's metrics.
    figures = found["figures"]
    assert 0 < figures["heap_used"] < figures["heap_max"]
    assert figures["threads"] > 5
    assert (figures["queries"], figures["stages"]) == (0, 0)
