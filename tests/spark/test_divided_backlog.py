"""An instance reads its blocks of a backlog, and no ack is lost between reading and publishing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mesh.spark.instance_io import ROUND_ROBIN_BLOCK
from mesh.spark.shared_query import task
from pyspark_nats.sink.exactly_once import ExactlyOncePublisher
from pyspark_nats.sink.publish import RowPublisher
from pyspark_nats.source import fetch
from pyspark_nats.source.ranges import Blocks
from tests.support.shared_query import Hand, Instances

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

#: Several requests of the reader, and several batches of the publisher, in one run.
COUNT = 9_000
APP = """@App:name('{name}')
define stream Numbers (n int);
@dist(execGroup='w', parallel='PARALLEL')
from Numbers[n > 0] select n insert into Same;
"""


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("parallel", [2, 3])
def test_an_instance_works_off_its_blocks_without_a_lost_ack(
    parallel: int, tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated: list[Any] = []
    requeue = ExactlyOncePublisher._requeue

    def counted(publisher: Any, batch: Any) -> None:
        repeated.append(batch)
        requeue(publisher, batch)

    monkeypatch.setattr(ExactlyOncePublisher, "_requeue", counted)
    readers: list[Any] = []
    writers: list[Any] = []
    read_range, publisher_of = fetch.read_range, RowPublisher

    def reading(connection: Any, *given: Any, **named: Any) -> Any:
        readers.append(connection)
        return read_range(connection, *given, **named)

    def publishing(connection: Any, *given: Any, **named: Any) -> Any:
        writers.append(connection)
        return publisher_of(connection, *given, **named)

    monkeypatch.setattr(fetch, "read_range", reading)
    monkeypatch.setattr(task, "RowPublisher", publishing)
    hand = Hand(tmp_path, nats_server)
    try:
        hand.rows_first = COUNT
        app = Instances(hand, "T", app=APP.replace("PARALLEL", str(parallel)))
        hand.make(app.spec)
        hand.publish("T", *range(1, COUNT + 1))
        app.by_group["w"].start()
        blocks = Blocks(ROUND_ROBIN_BLOCK, 0, parallel).sections(0, COUNT)
        own = [n for first, last in blocks for n in range(first, last + 1)]
        hand.until_rows("T", "Same", len(own))
        assert [row[0] for row in hand.rows("T", "Same")] == own
        assert not repeated
        # A call that waits for its answer drops others that come on its connection.
        assert readers
        assert writers
        assert not {id(one) for one in readers} & {id(one) for one in writers}
        (place,) = next(iter(hand.serving.planner.places.values()))
        assert place.follows is (parallel == 2)
        # Events that come later are divided, too.
        hand.publish("T", *range(COUNT + 1, COUNT + 1 + parallel * ROUND_ROBIN_BLOCK))
        hand.until_rows("T", "Same", len(own) + ROUND_ROBIN_BLOCK)
    finally:
        hand.end()
