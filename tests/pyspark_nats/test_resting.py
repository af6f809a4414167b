"""Writers that rest or leave: a marker ends their batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink import resting
from tests.support.exactly_once import numbers
from tests.support.ingest import expected, rows, writer

if TYPE_CHECKING:
    from mesh.jetstream import server

__all__ = ("writer",)

pytestmark = pytest.mark.nats


def test_a_marker_ends_the_batch_of_a_writer_that_rests(broker: Any, writer: Any) -> None:
    one = writer(purpose=resting.PUBLISHING)
    at = one.begin()
    due_s = resting.next_s()
    assert due_s is not None
    resting.end_idle()
    assert broker.marker("S", "p").ingest is not None, "it has rows a moment ago"
    resting.end_idle(0.0)
    marker = broker.marker("S", "p")
    assert (marker.position, marker.ingest) == (at - 1, None)
    assert resting.next_s() is None
    one.write(rows(at, 10), rows(at + 10, 10))
    assert numbers(broker, "ev.S") == expected(at + 20)


def test_a_marker_ends_the_batch_of_a_producer_that_leaves(broker: Any, writer: Any) -> None:
    old = writer(purpose=resting.PUBLISHING)
    at = old.begin()
    resting.end_of({"another"})
    assert broker.marker("S", "p").ingest is not None
    resting.end_of({"p"})
    assert (broker.marker("S", "p").position, broker.marker("S", "p").ingest) == (at - 1, None)
    new = writer(epoch=2)
    new.write(rows(at - 5, 10))
    assert numbers(broker, "ev.S") == expected(at + 5)


def test_a_server_that_is_away_delays_no_rest(
    broker: Any, writer: Any, monkeypatch: pytest.MonkeyPatch, nats_server: server.NatsServer
) -> None:
    waits: list[str] = []
    one = writer(purpose=resting.PUBLISHING)
    one.begin()
    nats_server.stop()
    monkeypatch.setattr(
        Connection, "retry_while_unavailable", lambda self, what, *rest, **_: waits.append(what)
    )
    resting.end_idle(0.0)
    assert resting.next_s() is None
    assert not waits
