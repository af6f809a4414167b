"""A stream that lost its end with the power of its server, and numbers new messages again."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from mesh.jetstream import server
from pyspark_nats.errors import DataLossError
from pyspark_nats.source import offsets, ranges, source_options

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.nats


class Power:
    """A server that can be set back to what its disk held before."""

    def __init__(self, running: server.NatsServer) -> None:
        self._running = running
        self._directory = running.directory
        self._saved = running.directory.with_name("saved")

    def save(self) -> None:
        """Keep what is stored now."""
        self._running.stop()
        shutil.copytree(self._directory, self._saved)
        self._start()

    def fail(self) -> None:
        """Lose what was stored since then."""
        self._running.stop()
        shutil.rmtree(self._directory)
        shutil.copytree(self._saved, self._directory)
        self._start()

    def restart(self) -> None:
        self._running.stop()
        self._start()

    def _start(self) -> None:
        self._running = server.start(self._directory, port=self._running.port)

    def end(self) -> None:
        self._running.stop()


@pytest.fixture
def power(nats_server: server.NatsServer) -> Iterator[Power]:
    made = Power(nats_server)
    yield made
    made.end()


def watch(broker: Any, **given: str) -> offsets.Watch:
    read = source_options.source_options({**broker.given, "stream": "S", **given})
    return offsets.Watch(read, broker.connection)


def end(broker: Any) -> dict[str, dict[str, int]]:
    return watch(broker, startingOffsets="latest").initial()


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("again", [11, 15, 25])
def test_sequences_that_are_used_again_are_data_loss(
    broker: Any, power: Power, again: int, is_running: bool
) -> None:
    broker.create("S")
    broker.publish("ev.S", *["old"] * 10)
    power.save()
    broker.publish("ev.S", *["old"] * 10)
    start = end(broker)
    reader = watch(broker)
    if is_running:
        assert reader.latest(start, None)["S"]["sequence"] == 20
    power.fail()
    assert broker.info("S").last == 10
    broker.publish("ev.S", *["new"] * again)
    with pytest.raises(DataLossError, match="lost messages and used their sequences again"):
        reader.latest(start, None)
    accepting = watch(broker, failOnDataLoss="false")
    assert accepting.latest(start, None)["S"]["sequence"] == 10 + again


def test_a_backlog_is_no_exception(broker: Any, power: Power) -> None:
    broker.create("S")
    broker.publish("ev.S", *["old"] * 10)
    power.save()
    broker.publish("ev.S", *["old"] * 10)
    reader = watch(broker, maxOffsetsPerTrigger="15")
    start = reader.latest(reader.initial(), source_options.Limits(offsets_max=15))
    assert start["S"]["sequence"] == 15
    power.fail()
    broker.publish("ev.S", *["new"] * 30)
    with pytest.raises(DataLossError):
        reader.latest(start, None)


def test_a_restart_purges_and_old_offsets_are_none(broker: Any, power: Power) -> None:
    broker.create("S")
    broker.publish("ev.S", *"abc")
    start = end(broker)
    power.restart()
    assert watch(broker).latest(start, None)["S"]["sequence"] == 3
    broker.publish("ev.S", *"de")
    assert watch(broker).latest(start, None)["S"]["sequence"] == 5
    broker.call("STREAM.MSG.DELETE.S", seq=3)
    power.restart()
    assert watch(broker).latest(start, None)["S"]["sequence"] == 5
    bare = {"S": {name: start["S"][name] for name in ("sequence", "time_ms")}}
    assert watch(broker).latest(bare, None)["S"]["sequence"] == 5


@pytest.mark.parametrize(
    ("at", "last", "stored_ns", "is_reused"),
    [
        ({"sequence": 20, "newest": 20, "newest_ns": 7}, 20, 7, False),
        ({"sequence": 20, "newest": 20, "newest_ns": 7}, 30, 7, False),
        ({"sequence": 20, "newest": 20, "newest_ns": 7}, 30, 8, True),
        ({"sequence": 20, "newest": 20, "newest_ns": 7}, 30, None, False),
        ({"sequence": 15, "newest": 20, "newest_ns": 7}, 18, None, True),
        # Found by the end of the range.
        ({"sequence": 20, "newest": 20, "newest_ns": 7}, 18, None, False),
        ({"sequence": 20}, 30, 8, False),
    ],
)  # fmt: skip
def test_the_newest_message_tells(
    at: dict[str, int], last: int, stored_ns: int | None, is_reused: bool
) -> None:
    assert ranges.is_reused(at, last, stored_ns) is is_reused
