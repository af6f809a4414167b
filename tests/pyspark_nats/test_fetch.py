"""Reading ranges, against a real server and without Spark."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mesh.jetstream import server
from pyspark_nats.errors import DataLossError
from pyspark_nats.protocol import connection_options, frames, jetstream
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.source import (
    fetch,
)
from pyspark_nats.source.ranges import Blocks, StreamRange

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nats


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


@pytest.mark.slow
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
