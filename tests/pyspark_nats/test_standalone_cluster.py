"""The connector on a real Spark cluster: a master and two workers started from the pip package."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mesh.processes.bounded_process import die_with_parent
from tests.support.standalone import DEADLINE_S, WORKERS, Standalone, environment, kill_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.broker import Broker

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow]

INPUTS = ("IN0", "IN1")


@dataclass
class Program:
    """A user's program that runs on the cluster."""

    process: subprocess.Popen[bytes]
    log: Path
    scratch: Path

    def wait(self, broker: Broker, stored: int) -> None:
        """Wait until OUT holds ``stored`` sequences."""

        def is_there() -> bool:
            assert self.process.poll() is None, self._said()
            return broker.info("OUT").last >= stored

        broker.wait_until("OUT", is_there, f"sequence {stored} of OUT", DEADLINE_S, subject="out.>")

    def finish(self) -> None:
        """Wait until it is through; it must not fail."""
        assert self.process.wait(DEADLINE_S) == 0, self._said()

    def table(self) -> Any:
        """The rows that it read as a table."""
        return json.loads(self.scratch.joinpath("table.json").read_text())

    def _said(self) -> str:
        return self.log.read_text(errors="replace")[-8000:]


#: Reads both streams as a table, then copies them to OUT by a streaming query.
PROGRAM = """
import json, os, sys
from pathlib import Path
from pyspark.sql import SparkSession
master, url, scratch = sys.argv[1:]
spark = (
    SparkSession.builder.master(master)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.memory", "512m")
    .config("spark.executor.memory", "500m")
    .config("spark.executor.cores", "1")
    .config("spark.local.dir", scratch)
    .config("spark.sql.warehouse.dir", scratch)
    # The default starts dozens of processes for the files of each batch.
    .config("spark.sql.streaming.checkpointFileManagerClass",
            "org.apache.spark.sql.execution.streaming.checkpointing."
            "FileSystemBasedCheckpointFileManager")
    .config("spark.hadoop.fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
given = {"servers": url, "stream": "IN0,IN1"}
table = spark.read.format("nats").options(**given).load()
rows = table.selectExpr("stream", "sequence", "cast(data AS string) AS text").collect()
Path(scratch, "table.json").write_text(json.dumps(sorted(map(list, rows))))
(
    spark.readStream.format("nats").options(maxOffsetsPerTrigger="100", **given).load()
    .selectExpr("concat('out.', stream) AS subject", "data",
                "stream AS _stream", "sequence AS _sequence")
    .writeStream.format("nats").options(servers=url, stream="OUT")
    .option("checkpointLocation", scratch + "/checkpoint")
    .trigger(availableNow=True).start().awaitTermination()
)
os._exit(0)
"""


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    """A cluster that ends with the test."""
    directory = tmp_path / "standalone"
    directory.mkdir()
    made = Standalone(directory)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def program(standalone: Standalone, broker: Broker, tmp_path: Path) -> Iterator[Program]:
    """``PROGRAM`` on the cluster, ended with the test."""
    scratch = tmp_path / "driver"
    scratch.mkdir()
    log = tmp_path / "driver.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, standalone.url, broker.url, scratch],
            env=environment() | {"PYSPARK_PYTHON": sys.executable},
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
    yield Program(process, log, scratch)
    kill_tree(process)


@pytest.mark.extended
def test_a_table_and_a_query_on_a_cluster_that_loses_an_executor_and_a_worker(
    broker: Broker, standalone: Standalone, request: pytest.FixtureRequest
) -> None:
    count = 2000
    texts = {name: [f"{n} {name}" for n in range(count)] for name in INPUTS}
    for name in INPUTS:
        broker.create(name)
        broker.publish(f"ev.{name}", *texts[name])
    broker.create("OUT", "out.>")
    program: Program = request.getfixturevalue("program")
    program.wait(broker, 300)
    for name in WORKERS:
        assert standalone.executors(name), f"{name} runs no executor"
    standalone.executors("w1")[0].kill()
    program.wait(broker, broker.info("OUT").last + 600)
    standalone.kill("w2")
    program.finish()
    assert program.table() == sorted(
        [name, n + 1, text] for name in INPUTS for n, text in enumerate(texts[name])
    )
    for name in INPUTS:
        found = broker.payloads("OUT", f"out.{name}")
        assert [data.decode() for data in found] == texts[name]
