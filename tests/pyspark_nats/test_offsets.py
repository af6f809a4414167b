"""Offsets of a stream that is watched: where it starts, how far a batch goes, and when."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_nats.errors import DataLossError, OptionError
from pyspark_nats.protocol import connection_options, frames
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.source import fetch, offsets, source_options
from pyspark_nats.source.ranges import Blocks, StreamRange
from pyspark_nats.source.source_options import ReadLimits
from tests.support.reading import looking_end, partitions, watch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nats


def test_every_start_option_gives_its_place(broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", *"abcd")
    broker.call("STREAM.PURGE.S", seq=3)
    info = broker.info("S")
    first = {"sequence": 2, "time_ms": info.first_ms, "created_ms": info.created_ms}
    assert watch(broker).initial() == {"S": {**first, "newest": 4, "newest_ns": info.last_ns}}
    assert watch(broker, startingOffsets="latest").initial()["S"]["sequence"] == 4
    given = '{"S": {"sequence": 3, "time_ms": 9}}'
    assert watch(broker, startingOffsets=given).initial() == {"S": {"sequence": 3, "time_ms": 9}}
    first = watch(broker, startingOffsets='{"S": 4}').initial()
    assert first == {"S": {"sequence": 3, "time_ms": 0, "created_ms": info.created_ms}}


def test_a_time_is_a_place_before_the_first_message_of_it(broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", *"abc")
    between_ms = broker.info("S").time_ms + 1
    while broker.info("S").time_ms <= between_ms:
        pass
    broker.publish("ev.S", *"de")
    moment = datetime.fromtimestamp(between_ms / 1000, UTC).isoformat()
    for given in (str(between_ms), moment, f'{{"S": "{moment}"}}'):
        place = watch(broker, startingTimestamp=given).initial()["S"]
        assert (place["sequence"], place["time_ms"]) == (3, between_ms)
    assert watch(broker, endingTimestamp=moment).final()["S"]["sequence"] == 3
    assert watch(broker, endingOffsets='{"S": 5}').final()["S"]["sequence"] == 4
    # No message is that new: the present end, with the present time.
    later = watch(broker, startingTimestamp="2999-01-01").initial()["S"]
    assert later["sequence"] == 5
    assert later["time_ms"] <= broker.info("S").time_ms
    assert watch(broker, startingTimestamp="1999-01-01").initial()["S"]["sequence"] == 0


def test_an_offset_after_the_end_is_no_loss_of_data(broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", *"ab")
    for side, bound in (("starting", "initial"), ("ending", "final")):
        given = {f"{side}Offsets": '{"S": 3}'}
        assert getattr(watch(broker, **given), bound)()["S"]["sequence"] == 2
        given = {f"{side}Offsets": '{"S": 4}'}
        with pytest.raises(OptionError, match=f'"{side}Offsets" is after the end of stream "S"'):
            getattr(watch(broker, **given), bound)()


def test_a_batch_waits_to_be_worth_its_while_but_not_for_ever(broker: Any) -> None:
    broker.create("S")
    start = watch(broker, startingOffsets="latest").initial()
    least = ReadLimits(offsets_min=3, delay_max_ms=60_000)
    looking = watch(broker, idleWaitMs="20")
    broker.publish("ev.S", "a")
    first = looking.latest(start, least)
    assert first["S"]["sequence"] == 1, "the first batch waits for nothing"
    broker.publish("ev.S", *"bc")
    assert looking.latest(first, least) == first
    broker.publish("ev.S", "d")
    assert looking.latest(first, least)["S"]["sequence"] == 4
    soon = ReadLimits(offsets_min=100, delay_max_ms=1)
    assert looking.latest(first, soon)["S"]["sequence"] == 4
    # All present messages, as the trigger "once" requires.
    assert looking.latest(first, None)["S"]["sequence"] == 4


def test_limits_are_shared_out_by_backlog(broker: Any) -> None:
    for name, count in (("S", 90), ("T", 10)):
        broker.create(name)
        broker.publish(f"ev.{name}", *["x" * 100] * count)
    read = source_options.source_options({**broker.given, "stream": "S,T"})
    looking = offsets.StreamWatch(read, broker.connection)
    start = looking.initial()
    end = looking.latest(start, ReadLimits(offsets_max=50))
    assert [end[name]["sequence"] for name in ("S", "T")] == [45, 5]
    size = broker.info("S").message_bytes
    end = looking.latest(start, ReadLimits(bytes_max=int(20 * size)))
    assert [end[name]["sequence"] for name in ("S", "T")] == [18, 2]
    report = looking.report()
    assert report is not None
    assert [report[name]["messages_behind"] for name in ("S", "T")] == [72, 8]
    assert report["S"]["bytes_behind"] == round(72 * size)


def test_nothing_new_is_the_same_offset_after_the_wait(broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", "a")
    start = watch(broker, startingOffsets="latest").initial()
    began_s = time.monotonic()
    looking = watch(broker, idleWaitMs="150")
    # The first look never waits.
    assert looking.latest(start, None) == start
    assert looking.latest(start, None) == start
    assert time.monotonic() - began_s >= 0.15


def test_a_message_ends_the_wait_at_once(broker: Any) -> None:
    broker.create("S")
    start = watch(broker, startingOffsets="latest").initial()
    other = source_options.source_options({**broker.given, "stream": "S", "idleWaitMs": "600000"})
    ends: list[dict[str, dict[str, int]]] = []
    is_waiting = threading.Event()

    class Telling(Connection):
        def wait_for_message(self, sids: set[int], timeout_s: float) -> bool:
            is_waiting.set()
            return super().wait_for_message(sids, timeout_s)

    with Telling(other.connection) as connection:
        looking = offsets.StreamWatch(other, connection)
        assert looking.latest(start, None) == start
        waiting = threading.Thread(target=lambda: ends.append(looking.latest(start, None)))
        waiting.start()
        assert is_waiting.wait(60)
        broker.publish("ev.S", "a")
        # Far shorter than the wait that it ends.
        waiting.join(60)
        assert not waiting.is_alive()
    assert ends[0]["S"]["sequence"] == 1
    assert ends[0]["S"]["time_ms"] >= start["S"]["time_ms"]


def test_a_wakeup_moves_the_time_once_and_no_sequence(broker: Any, tmp_path: Path) -> None:
    broker.create("S")
    start = watch(broker, startingOffsets="latest").initial()
    directory = tmp_path / "wakeups"
    directory.mkdir()
    due_ms = broker.info("S").time_ms + 200
    (directory / "0").write_text(str(due_ms))
    (directory / "1").write_text(str(due_ms + 900_000))
    waiting = watch(broker, wakeupPath=str(directory), idleWaitMs="600000")
    place = start
    while place == start:
        place = waiting.latest(start, None)
    assert place["S"]["sequence"] == start["S"]["sequence"]
    # Far earlier than the end of the wait.
    assert due_ms <= place["S"]["time_ms"] < due_ms + 100_000
    # Its reader has not taken the wakeup away: that must not make batches without end.
    idle = watch(broker, wakeupPath=str(directory), idleWaitMs="50")
    assert idle.latest(place, None) == place


def test_a_cut_batch_has_the_time_of_its_last_message(broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", *"abcdefgh")
    broker.call("STREAM.MSG.DELETE.S", seq=3)
    start = {"S": {"sequence": 0, "time_ms": 0}}
    plain = watch(broker).latest(start, ReadLimits(offsets_max=3))
    assert plain["S"]["sequence"] == 3
    assert plain["S"]["time_ms"] <= broker.info("S").first_ms
    marked = {"rangeMarkers": "true"}
    end = watch(broker, **marked).latest(start, ReadLimits(offsets_max=3))
    # Sequence 3 is gone; the first one after it is admitted instead.
    assert end["S"]["sequence"] == 4
    part = next(fetch.read_range(broker.connection, StreamRange("S", 0, 4, 0, 0), Blocks()))
    assert end["S"]["time_ms"] == part.time_ns[-1] // 1_000_000
    assert watch(broker, **marked).latest(end, ReadLimits(offsets_max=100))["S"]["sequence"] == 8


def test_time_in_an_offset_is_never_after_a_message_behind_it(broker: Any) -> None:
    broker.create("S")
    stop = threading.Event()
    given = connection_options.connection_options(broker.given)

    def flood() -> None:
        with Connection(given) as connection:
            while not stop.is_set():

                def send() -> None:
                    reply = connection.reply_subjects(1)
                    connection.send(frames.publish("ev.S", b"x", reply=reply[0]))
                    connection.replies(reply)

                connection.retry_while_unavailable("publishing", send)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        place, places = watch(broker).initial(), []
        for _ in range(100):
            place = watch(broker, idleWaitMs="2000").latest(place, None)
            places.append(place["S"])
    finally:
        stop.set()
        thread.join()
    whole = [
        (int(s), int(t) // 1_000_000)
        for part in fetch.read_range(
            broker.connection, StreamRange("S", 0, broker.info("S").last, 0, 0), Blocks()
        )
        for s, t in zip(part.sequence, part.time_ns, strict=True)
    ]
    times = dict(whole)
    behind = [(p, times[p["sequence"] + 1]) for p in places if p["sequence"] + 1 in times]
    assert behind
    assert all(place["time_ms"] <= time_ms for place, time_ms in behind)


def test_a_stream_made_again_is_told_by_its_creation_not_by_its_sequences(broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", *"abc")
    start = {"S": looking_end(broker)}
    broker.publish("ev.S", *"de")
    end = {"S": looking_end(broker)}
    broker.call("STREAM.DELETE.S")
    broker.create("S")
    broker.publish("ev.S", *"0123456789")
    with pytest.raises(DataLossError, match="made again"):
        partitions(broker, start, end)
    gone = partitions(broker, start, end, failOnDataLoss="false")
    assert gone.is_empty, "nothing is left of a batch of the old stream"
    latest = watch(broker).latest(end, ReadLimits(offsets_max=4))
    assert latest["S"]["sequence"] == 4, "the next batch begins with the new stream"
    anew = partitions(broker, end, latest, failOnDataLoss="false")
    assert (anew.start, anew.end) == (0, 4)
