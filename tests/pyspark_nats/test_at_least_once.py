"""Rows at least once: lost acks lose none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyspark_nats.protocol import answers
from pyspark_nats.sink import at_least_once
from tests.support.exactly_once import ROWS, Cutter, numbers, write

if TYPE_CHECKING:
    from mesh.jetstream import server


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.nats
@pytest.mark.parametrize("acks", [0, 20_000, 50_000])
def test_at_least_once_loses_none_when_acks_are_lost(
    broker: Any, publisher: Any, nats_server: server.NatsServer, acks: int
) -> None:
    broker.create("S")
    cutter = Cutter(nats_server.port, acks=acks, token=b'"seq":')
    try:
        write(publisher(cutter.url, deliveryGuarantee="at-least-once"))
    finally:
        cutter.close()
    found = numbers(broker)
    assert cutter.cuts == 1
    assert sorted(set(found)) == list(range(ROWS))


@pytest.mark.slow
@pytest.mark.nats
def test_a_busy_server_slows_writing_down_and_does_not_fail_it(
    broker: Any, publisher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reports a full queue for some messages, which it really stored."""
    broker.create("S")
    taken, busy = at_least_once._refusals, 0
    # Any answer but a plain ack is decoded in full.
    monkeypatch.setattr(answers, "counted", lambda *_: None)

    def refusals(found: Any) -> list[tuple[str, bytes]]:
        nonlocal busy
        busy += 1
        if busy % 5:
            return taken(found)
        error = b'{"error":{"code":429,"err_code":10167,"description":"too many requests"}}'
        return [(found.subject[0].as_py(), error)]

    monkeypatch.setattr(at_least_once, "_refusals", refusals)
    write(publisher(broker.url, deliveryGuarantee="at-least-once"))
    assert busy >= 5
    found = numbers(broker)
    assert len(found) > ROWS
    assert sorted(set(found)) == list(range(ROWS))
