"""Sinks with several destinations: all, one of them by key, or those that take turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.model.cluster import InstanceState
from mesh.receiver.sinks import destination_of, java_hash
from tests.support.connectors import staged
from tests.support.sink_apps import APP, SPREAD, endpoints, events, numbers

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


async def test_the_originals_sample_sends_each_key_to_one_place_and_waits_for_one_that_is_away(
    nats_server: NatsServer,
) -> None:
    async with endpoints(2) as (one, other):
        spread = SPREAD.format("partitioned", "partitionKey='k', ", one.url, other.url)
        async with staged(nats_server, APP.format(spread)) as stage:
            await other.close()
            await stage.publish("T", *events(0, 40))
            instance = stage.start("sink-T")
            mine = [n for n in range(40) if destination_of(f"k{n % 7}", 2) == 0]
            theirs = [n for n in range(40) if n not in mine]
            assert mine
            assert theirs
            await stage.until("its events", lambda: len(one.bodies) == len(mine))
            assert numbers(one) == mine
            assert other.bodies == []
            await stage.until(
                "states",
                lambda: (
                    [d.state for d in stage.reports[-1].connectors]
                    == [InstanceState.RUNNING, InstanceState.RETRYING]
                ),
            )
            # Both positions outlive the instance.
            await instance.stop()
            stage.start("sink-T", epoch=2)
            await other.open()
            await stage.until("what it missed", lambda: len(other.bodies) == len(theirs))
            assert numbers(other) == theirs
            assert numbers(one) == mine


async def test_broadcast_gives_each_destination_all_events(nats_server: NatsServer) -> None:
    async with endpoints(2) as (one, other):
        spread = SPREAD.format("broadcast", "", one.url, other.url)
        async with staged(nats_server, APP.format(spread)) as stage:
            await other.close()
            await stage.publish("T", *events(0, 10))
            stage.start("sink-T")
            await stage.until("10 events", lambda: len(one.bodies) == 10)
            await other.open()
            await stage.until("10 events", lambda: len(other.bodies) == 10)
            assert numbers(one) == numbers(other) == list(range(10))


async def test_round_robin_uses_those_that_answer(nats_server: NatsServer) -> None:
    async with endpoints(2) as (one, other):
        spread = SPREAD.format("roundRobin", "", one.url, other.url)
        async with staged(nats_server, APP.format(spread)) as stage:
            await other.close()
            stage.start("sink-T")

            async def send(first: int) -> None:
                await stage.publish("T", *events(first, first + 2))
                await stage.until(
                    "2 more", lambda: len(one.bodies) + len(other.bodies) == first + 2
                )

            for first in range(0, 10, 2):
                await send(first)
            assert len(one.bodies) == 10
            await other.open()
            for first in range(10, 20, 2):
                await send(first)
            assert sorted(numbers(one) + numbers(other)) == list(range(20))
            assert other.bodies


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -2147483648), ("ü€", 16176)],
)
def test_hashes_are_javas(text: str, code: int) -> None:
    assert java_hash(text) == code
