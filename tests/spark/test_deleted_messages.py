"""A backlog in which messages were deleted is read to its end, though nothing more is published."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mesh.spark.shared_query import pacing
from tests.support.shared_query import Hand, Instances

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

COUNT = 600
DELETED = range(35, COUNT, 30)
APP = """@App:name('{name}')
define stream Numbers (n int);
from Numbers#window.length(1) select n insert into Same;
"""


@pytest.mark.slow
def test_a_backlog_with_deleted_messages_is_read_to_its_end(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "ROWS_MAX", 20)
    hand = Hand(tmp_path, nats_server)
    try:
        hand.rows_first = 20
        app = Instances(hand, "T", app=APP)
        hand.make(app.spec)
        hand.publish("T", *range(1, COUNT + 1))
        delete = "$JS.API.STREAM.MSG.DELETE.mesh-T-Numbers"
        hand.broker.requests([(delete, json.dumps({"seq": n}).encode()) for n in DELETED])
        for one in app.by_group.values():
            one.start()
        hand.until_rows("T", "Same", COUNT - len(DELETED))
        numbers = [row[0] for row in hand.rows("T", "Same")]
        assert numbers == [n for n in range(1, COUNT + 1) if n not in DELETED]
    finally:
        hand.end()
