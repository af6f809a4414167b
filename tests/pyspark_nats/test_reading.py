"""Reading ranges and waiting for them, against a real server and without Spark.

The file is longer than 400 lines because all cases are of one reader.
"""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mesh.jetstream import server
from pyspark_nats.errors import DataLossError, RefusedError
from pyspark_nats.protocol import connection_options, frames, jetstream
from pyspark_nats.protocol.connection import Connection, shared
from pyspark_nats.protocol.header_columns import header_values
from pyspark_nats.source import (
    batches,
    fetch,
    halting,
    offsets,
    planning,
    polling,
    source_options,
)
from pyspark_nats.source.ranges import Blocks, StreamRange
from pyspark_nats.source.source_options import ReadLimits

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nats


def watch(broker: Any, **given: str) -> offsets.StreamWatch:
    read = source_options.source_options({**broker.given, "stream": "S", **given})
    return offsets.StreamWatch(read, broker.connection)


def read_all(
    broker: Any, start: int, end: int, blocks: Blocks | None = None
) -> list[tuple[int, bytes]]:
    wanted = StreamRange("S", start, end, 0, 0)
    return [
        (int(sequence), data)
        for part in fetch.read_range(broker.connection, wanted, blocks or Blocks())
        for sequence, data in zip(part.sequence, part.data.to_pylist(), strict=True)
    ]


@pytest.mark.parametrize("count", [5, 6000])
def test_a_range_reads_the_same_however_it_is_cut(broker: Any, count: int) -> None:
    broker.create("S")
    broker.publish("ev.S", *[b"%d" % n for n in range(count)])
    broker.call("STREAM.MSG.DELETE.S", seq=3)
    whole = read_all(broker, 0, count)
    assert whole == [(n + 1, b"%d" % n) for n in range(count) if n != 2]
    cuts = sorted({0, 1, 3, 4, count // 2 + 1, count})
    assert whole == [m for a, b in pairwise(cuts) for m in read_all(broker, a, b)]


def test_a_range_that_ends_in_deleted_messages_ends(broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", *[b"%d" % n for n in range(10)])
    for sequence in (8, 9, 10):
        broker.call("STREAM.MSG.DELETE.S", seq=sequence)
    assert [s for s, _ in read_all(broker, 5, 10)] == [6, 7]
    assert read_all(broker, 7, 10) == []


def test_readers_by_blocks_share_a_stream_without_gap_or_overlap(broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", *[b"%d" % n for n in range(1000)])
    shares = [read_all(broker, 3, 997, Blocks(64, i, 3)) for i in range(3)]
    assert all((s // 64) % 3 == i for i, share in enumerate(shares) for s, _ in share)
    assert sorted(m for share in shares for m in share) == read_all(broker, 3, 997)


def test_a_stream_without_direct_get_is_read_the_same(broker: Any) -> None:
    broker.create("S", allow_direct=False)
    broker.publish("ev.S", *[b"%d" % n for n in range(1000)])
    broker.call("STREAM.MSG.DELETE.S", seq=500)
    whole = read_all(broker, 3, 997)
    assert whole == [(n + 1, b"%d" % n) for n in range(3, 997) if n != 499]
    shares = [read_all(broker, 3, 997, Blocks(64, i, 3)) for i in range(3)]
    assert all((s // 64) % 3 == i for i, share in enumerate(shares) for s, _ in share)
    assert sorted(m for share in shares for m in share) == whole


def test_payloads_that_look_like_frames_are_only_payloads(broker: Any) -> None:
    broker.create("S")
    evil = [b"MSG a 1 3\r\nabc\r\n", b"\r\nHMSG x 9 9 9\r\n\r\n", b"", b"\r\n", b"PING\r\n"]
    broker.publish("ev.S", *evil * 20)
    broker.publish("ev.S", *evil, Some="header")
    assert [data for _, data in read_all(broker, 0, 105)] == evil * 21


def test_frames_are_split_wherever_the_bytes_are_cut() -> None:
    block = frames.header_block({"Mesh-Timestamp": "5", "X": "y"})
    whole = b"".join(
        b"HMSG a.b 2 rep.ly %d %d\r\n%sdata%d\r\n" % (len(block), len(block) + 5, block, n)
        for n in range(4)
    )
    whole += b"MSG c 3 16\r\nMSG x 1 3\r\nabc\r\n\r\nPING\r\n"
    for cut in range(len(whole)):
        found = frames.split(whole[:cut])
        rest = frames.split(whole[found.consumed :])
        both = [*found.data.to_pylist(), *rest.data.to_pylist()]
        assert both == [b"data0", b"data1", b"data2", b"data3", b"MSG x 1 3\r\nabc\r\n"]
    values = header_values(frames.split(whole).header, "Mesh-Timestamp").to_pylist()
    assert values == ["5"] * 4 + [None]


@pytest.mark.restarts
def test_reading_goes_on_where_it_was_when_the_server_restarts(
    broker: Any, nats_server: server.NatsServer
) -> None:
    broker.create("S")
    payload = b"x" * 1000
    for _ in range(20):
        broker.publish("ev.S", *[payload] * 2000)
    parts = fetch.read_range(broker.connection, StreamRange("S", 0, 40_000, 0, 0), Blocks())
    sequences = [next(parts).sequence]
    nats_server.stop()
    again = server.start(nats_server.directory, port=nats_server.port)
    try:
        sequences += [part.sequence for part in parts]
    finally:
        again.stop()
    assert np.array_equal(np.concatenate(sequences), np.arange(1, 40_001))


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


def test_news_on_other_subjects_only_make_no_batch(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("S", "ev.>")
    looking = watch(broker, subject="ev.a,ev.b.*", idleWaitMs="20", startingOffsets="latest")
    start = looking.initial()
    broker.publish("ev.other", "x")
    assert looking.latest(start, None) == start
    broker.publish("ev.b.1", "x")
    end = looking.latest(start, None)
    assert end["S"]["sequence"] == 2
    # But the position must not stay back for ever, where it would expire.
    broker.publish("ev.other", "x")
    monkeypatch.setattr(polling, "_ADVANCE_S", 0.0)
    assert looking.latest(end, None)["S"]["sequence"] == 3


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


def test_a_query_halts_where_it_is_told_and_tells_so(broker: Any, tmp_path: Path) -> None:
    broker.create("S")
    broker.publish("ev.S", *"abcdefgh")
    path = tmp_path / "halt"
    reading = watch(broker, haltPath=str(path))
    first = reading.latest(reading.initial(), ReadLimits(offsets_max=2))
    assert first["S"]["sequence"] == 2
    halting.ask(path, {"S": 5})
    # Limits hold on the way, too.
    second = reading.latest(first, ReadLimits(offsets_max=2))
    third = reading.latest(second, ReadLimits(offsets_max=2))
    assert (second["S"]["sequence"], third["S"]["sequence"]) == (4, 5)
    assert halting.halted_positions(path) is None
    assert reading.latest(third, None) == third
    assert halting.halted_positions(path) == third
    # A halt may be moved further; then it is reached only there.
    halting.ask(path, {"S": 6})
    assert halting.halted_positions(path) is None
    last = reading.latest(third, None)
    assert reading.latest(last, None) == last
    assert halting.halted_positions(path) == last
    assert last["S"]["sequence"] == 6


def test_a_query_that_waits_halts_soon(broker: Any, tmp_path: Path) -> None:
    broker.create("S")
    path = tmp_path / "halt"
    reading = watch(broker, haltPath=str(path), idleWaitMs="600000")
    start = reading.initial()
    assert reading.latest(start, None) == start
    asking = threading.Timer(0.2, halting.ask, [path])
    began_s = time.monotonic()
    asking.start()
    assert reading.latest(start, None) == start
    assert time.monotonic() - began_s < 60.0
    assert reading.latest(start, None) == start
    assert halting.halted_positions(path) == start


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


def partitions(broker: Any, start: dict[str, Any], end: dict[str, Any], **given: str) -> Any:
    read = source_options.source_options({**broker.given, "stream": "S", **given})
    planned = planning.partitions(read, broker.connection, start, end)[0]
    assert isinstance(planned, planning.NatsPartition)
    return planned.ranges[0]


def looking_end(broker: Any) -> dict[str, int]:
    return watch(broker, startingOffsets="latest").initial()["S"]


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


def test_what_expires_while_it_is_read_is_an_error(broker: Any) -> None:
    broker.create("S")
    # More than one request delivers, so some of it is not under way when the server ends.
    for _ in range(9):
        broker.publish("ev.S", *[b"x" * 1000] * 5000)
    wanted = StreamRange("S", 0, 45_000, 0, 0)
    with Connection(connection_options.connection_options(broker.given)) as connection:
        parts = fetch.read_range(connection, wanted, Blocks())
        next(parts)
        broker.call("STREAM.PURGE.S", seq=44_990)
        with pytest.raises(DataLossError, match="does not hold sequences"):
            list(parts)
        # Deleted on purpose, in the middle: a gap, and no loss.
        broker.call("STREAM.MSG.DELETE.S", seq=44_995)
        rest = StreamRange("S", 44_989, 45_000, 0, 0)
        assert sum(len(part) for part in fetch.read_range(connection, rest, Blocks())) == 10


@pytest.mark.parametrize("count", [50, 10_000])
def test_subjects_are_chosen_where_it_is_cheap_and_give_the_same(broker: Any, count: int) -> None:
    broker.create("S", "ev.>")
    for at in range(0, count, 1000):
        for n in range(at, min(at + 1000, count), 50):
            broker.publish(f"ev.{n // 50 % 7}.x", *[b"%d" % (n + i) for i in range(49)])
            broker.publish("ev.rare", b"rare")
    everything = read_all(broker, 0, count)
    for patterns in (("ev.rare",), ("ev.3.*", "ev.rare"), ("ev.*.x",), ("ev.>", "ev.rare")):
        wanted = StreamRange("S", 0, count, 0, 0, subjects=patterns)
        found = [
            (int(s), data)
            for part in fetch.read_range(broker.connection, wanted, Blocks())
            for s, data in zip(part.sequence, part.data.to_pylist(), strict=True)
        ]
        expected: dict[str, Any] = {
            "ev.rare": lambda n: n % 50 == 0,
            "ev.3.*": lambda n: n % 50 and (n - 1) // 50 % 7 == 3,
            "ev.*.x": lambda n: n % 50,
            "ev.>": lambda n: True,
        }
        assert found == [m for m in everything if any(expected[p](m[0]) for p in patterns)]


def test_loss_is_named_or_accepted(broker: Any) -> None:
    broker.create("S")
    broker.publish("ev.S", *"abcdefgh")
    broker.call("STREAM.PURGE.S", seq=6)
    now_ms = broker.info("S").time_ms
    start, end = ({"S": {"sequence": n, "time_ms": now_ms}} for n in (2, 8))
    with pytest.raises(DataLossError, match="does not hold sequences 3 to 5 any more"):
        partitions(broker, start, end)
    accepted = partitions(broker, start, end, failOnDataLoss="false")
    assert (accepted.start, accepted.end) == (5, 8)
    broker.call("STREAM.DELETE.S")
    broker.create("S")
    broker.publish("ev.S", *"0123456789")
    with pytest.raises(DataLossError, match="deleted and made again"):
        partitions(broker, start, end)
    accepted = partitions(broker, start, {"S": looking_end(broker)}, failOnDataLoss="false")
    assert (accepted.start, accepted.end) == (0, 10)
    broker.call("STREAM.DELETE.S")
    with pytest.raises(RefusedError, match='stream "S" does not exist'):
        partitions(broker, start, end)


def test_other_subjects_are_skipped_and_batches_are_bounded(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_ROWS_MAX", 100)
    broker.create("S", "ev.S", "ev.other")
    for _ in range(5):
        broker.publish("ev.S", *["a"] * 60)
        broker.publish("ev.other", "b")
    read = source_options.source_options({**broker.given, "stream": "S"})
    shape = batches.RowLayout(batches._Raw(True), False)
    wanted = StreamRange("S", 0, 305, 0, 0, subjects=("ev.S",))
    found = list(batches.read(read, shape, [wanted]))
    assert sum(batch.num_rows for batch in found) == 300
    assert {s for batch in found for s in batch.column("subject").to_pylist()} == {"ev.S"}
    shared(read.connection).close()


def test_a_domain_is_read_through_its_own_api(tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text("jetstream { domain: hub }\n")
    running = server.start(tmp_path / "server", arguments=["-c", str(config)])
    try:
        given = {"servers": running.url, "jsDomain": "hub", "timeoutS": "10"}
        with Connection(connection_options.connection_options(given)) as connection:
            made = json.dumps({"name": "S", "subjects": ["ev.S"], "allow_direct": True}).encode()
            blocks = b"".join(frames.publish("ev.S", b"%d" % n) for n in range(10_000))

            def fill() -> None:
                connection.requests([(connection.api("STREAM.CREATE.S"), made)])[0].json()
                connection.send(blocks)
                connection.requests([(connection.api("INFO"), b"")])

            connection.retry_while_unavailable("filling", fill)
            while stream_info(connection).last < 10_000:
                pass
            for start in (0, 9990):
                wanted = StreamRange("S", start, 10_000, 0, 0)
                parts = list(fetch.read_range(connection, wanted, Blocks()))
                found = [int(data) for part in parts for data in part.data.to_pylist()]
                assert found == list(range(start, 10_000))
    finally:
        running.stop()


def stream_info(connection: Connection) -> jetstream.StreamInfo:
    return connection.retry_while_unavailable(
        "info", lambda: jetstream.stream_infos(connection, ["S"])["S"]
    )
