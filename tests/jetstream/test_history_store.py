"""Histories that are stored."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import nats
import pytest

from mesh.jetstream.history_store import MetricsHistoryStore
from mesh.manager.telemetry import Telemetry
from mesh.settings import ManagerSettings
from tests.support.telemetry import Moment, flow_row

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


@pytest.mark.nats
async def test_the_history_outlives_its_managers(nats_server: NatsServer) -> None:
    client = await nats.connect(nats_server.url)
    store = MetricsHistoryStore(client, 1, 1_000_000)
    assert [one async for one in store.read()] == []
    rows = {("app", f"A{number}"): flow_row(float(number)) for number in range(1500)}
    rows["node", "worker/w1"] = [0.5, math.nan, 3.0, 0.0, 1.0]
    clock = Moment()
    now_s = clock.now_ms // 1000
    for _ in range(2):
        # Two managers that both think they lead store it once.
        await MetricsHistoryStore(client, 1, 1_000_000).put(60, 86_400, now_s - 120, rows)
    await client.jetstream().publish("mesh._history.60", b"no history")
    found = [one async for one in store.read()]
    assert [(step_s, at_s) for step_s, at_s, _ in found] == [(60, now_s - 120)] * 2
    read = {key: list(row) for _, _, some in found for key, row in some.items()}
    assert read["app", "A1499"] == rows["app", "A1499"]
    assert math.isnan(read["node", "worker/w1"][1])
    telemetry = Telemetry(None, clock, ManagerSettings())  # type: ignore[arg-type]
    assert await telemetry._load(store) == {60: now_s - 60}
    day = await telemetry.past("app", "A7", 86_400, 60)
    assert {value for value in day.values["events_in"] if value is not None} == {7.0}
    # Without a bound nothing is stored.
    await MetricsHistoryStore(client, 1, 0).put(60, 86_400, now_s, rows)
    assert len([one async for one in store.read()]) == 2
    await client.close()
