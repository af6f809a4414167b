"""Credentials and trusted certificates reach Spark's Python workers without the files."""

from __future__ import annotations

import contextlib
import queue
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh.jetstream import server
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options
from tests.support import jwts
from tests.support.broker import Broker
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession


pytestmark = [pytest.mark.spark, pytest.mark.nats, pytest.mark.slow]


FILES = ("credentials", "tlsCa", "tlsCert", "tlsKey")


@contextlib.contextmanager
def secured(directory: Path) -> Iterator[tuple[Broker, dict[str, str]]]:
    """A server that requires a JWT and a client certificate, and the options to connect to it."""
    authority, operator, user = Authority(directory), jwts.Operator(), jwts.key("user")
    pair, client = authority.issue("server", hosts=("127.0.0.1",)), authority.issue("client")
    creds = jwts.creds(directory / "ann.creds", operator.user_jwt(user), user.seed)
    path = directory / "nats.conf"
    path.write_text(
        f'{operator.configuration()}\ntls {{ cert_file: "{pair.cert}"; key_file: "{pair.key}"; '
        f'ca_file: "{authority.cert}"; verify: true }}'
    )
    running = server.start(directory / "nats", arguments=["-c", str(path)])
    files = (creds, authority.cert, client.cert, client.key)
    given = {name: str(file) for name, file in zip(FILES, files, strict=True)}
    given["servers"] = running.url
    try:
        with Connection(connection_options(given)) as connection:
            yield Broker(running.url, connection), given
    finally:
        running.stop()


@pytest.mark.extended
def test_a_query_goes_on_when_the_files_that_it_was_started_with_are_gone(
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    with secured(tmp_path) as (broker, given):
        broker.create("S")
        broker.publish("ev.S", "before")
        events = spark.readStream.format("nats").options(**given, stream="S").load()
        seen: queue.SimpleQueue[bytes] = queue.SimpleQueue()

        def keep(batch: DataFrame, _: int) -> None:
            for row in batch.collect():
                seen.put(bytes(row.data))

        query = events.select("data").writeStream.foreachBatch(keep).start()
        try:
            assert seen.get(timeout=60) == b"before"
            for name in FILES:
                Path(given[name]).unlink()
            broker.publish("ev.S", "after")
            assert seen.get(timeout=60) == b"after"
        finally:
            query.stop()
        assert seen.empty()


@pytest.mark.thorough
def test_rows_are_written_with_credentials_and_client_certificates(
    spark: SparkSession, tmp_path: Path
) -> None:
    with secured(tmp_path) as (broker, given):
        broker.create("S")
        rows = spark.range(20, numPartitions=1).selectExpr("CAST(id AS STRING) AS data")
        rows.write.format("nats").mode("append").options(**given, stream="S", subject="ev.S").save()
        assert broker.payloads("S", "ev.S") == [str(n).encode() for n in range(20)]
