"""A broker with a few handy verbs, and one Spark session for the tests of the connector."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mesh.processes import java
from pyspark_nats import tuning
from pyspark_nats.decode import json_messages
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink import marker_cache, publish, sink_options
from tests.support.broker import Broker, connect
from tests.support.interpreters import without_blanks
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mesh.jetstream import server


@pytest.fixture
def broker(nats_server: server.NatsServer) -> Iterator[Broker]:
    """A server of the test's own."""
    made = connect(nats_server)
    yield made
    made.connection.close()


@pytest.fixture(scope="module")
def in_blocks() -> Iterator[None]:
    """JSON messages are decoded in blocks, however few they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_messages, "_FEW", 0)
        yield


@pytest.fixture
def publisher() -> Iterator[Callable[..., publish.RowPublisher]]:
    """``publisher(url, epoch)``: a writer that shares no knowledge with another one."""
    opened: list[Connection] = []

    def make(url: str, epoch: int = 1, **given: str) -> publish.RowPublisher:
        options = sink_options.sink_options({"servers": url, "epoch": str(epoch), **given})
        # A process caches markers for its next task; these writers represent other processes.
        marker_cache.clear()
        opened.append(Connection(options.connection))
        return publish.RowPublisher(opened[-1], options)

    yield make
    for connection in opened:
        connection.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with Python workers that find the connector on their own."""
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    root = ROOT
    before = dict(os.environ)
    os.environ["JAVA_HOME"] = str(java.java_home())
    # Its Python processes have 10 s to connect: too few to compile a zip file on a busy machine.
    os.environ["SPARK_HOME"] = str(tuning.lean_home(scratch / "home", scratch / "spare"))
    os.environ["PYSPARK_PYTHON"] = without_blanks(scratch)
    os.environ["PYTHONPATH"] = os.pathsep.join((str(root / "connectors"), str(root)))
    session = (
        SparkSession.builder.master("local[2]")
        .appName("connector-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={scratch}")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., StreamingQuery]]:
    """Start a streaming query that ends with the test: ``start(df, name, **options)``."""
    running: list[StreamingQuery] = []

    def begin(df: DataFrame, form: str, checkpoint: str = "checkpoint", **given: str) -> Any:
        writer = df.writeStream.format(form).options(**given)
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).start()
        running.append(query)
        return query

    yield begin
    for query in running:
        query.stop()
