"""Histories in JetStream streams: read as live events are, up to a cut, from any place."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import orjson
import pyarrow as pa
import pytest

from mesh.errors import MeshError
from mesh.model import access, names
from mesh.model.access import Grant, Identity, Permission
from mesh.model.history import HistoryInput
from pyspark_nats.arrow import ipc_stream
from tests.support.history import CHAIN, FOREIGN, METER, backfills, events, publish
from tests.support.played import played, playing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.backups import Mesh
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

COUNT, PAST = 120, 80
ROWS = events(COUNT)
OLD = [HistoryInput("Readings", "nats:OLD", "")]


def passing(rows: Sequence[dict[str, Any]]) -> int:
    return sum(row["watt"] >= 0 for row in rows)


def ipc(rows: Sequence[dict[str, Any]]) -> bytes:
    table = pa.Table.from_pylist([{k: row[k] for k in ("device", "watt")} for row in rows])
    return ipc_stream(table)


async def publish_forms(have: Mesh, subject: str, rows: Sequence[dict[str, Any]]) -> None:
    """Events as objects and arrays of JSON and msgpack, and as Arrow; one time for a message."""
    for number, first in enumerate(range(0, len(rows), 4)):
        some = rows[first : first + 4]
        plain: Any = [{"device": row["device"], "watt": row["watt"]} for row in some]
        kind, data = [
            ("application/json", orjson.dumps(plain)),
            ("application/msgpack", msgpack.packb(plain)),
            ("application/vnd.apache.arrow.stream", ipc(some)),
        ][number % 3]
        headers = {"Content-Type": kind, names.EVENT_TIME_HEADER: str(some[0]["at"])}
        await have.client.jetstream().publish(subject, data, headers=headers)


async def old(have: Mesh) -> None:
    await have.client.jetstream().add_stream(name="OLD", subjects=["old.>"])


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", [METER, CHAIN], ids=["by key", "chain"])
async def test_outputs_are_those_of_an_app_that_has_read_the_same_messages_live(
    hand: Hand, nats_server: NatsServer, tmp_path: Path, text: str
) -> None:
    stream = "Totals" if text is METER else "Lasts"

    async with playing(nats_server, tmp_path) as (have, runner):
        await old(have)
        await have.service.deploy(text.format(name="Live", source=""))
        live = await played(have, "Live", hand, runner)
        await publish_forms(have, "mesh.Live.Readings", ROWS)
        await live.until(stream, passing(ROWS))
        await publish_forms(have, "old.readings", ROWS[:PAST])
        # Unreadable events are recorded live; here they are counted.
        for bad in (b'{"device":"d1"}', b"[1, 2]", b"\xff", b"[]"):
            await have.client.jetstream().publish("old.readings", bad)
        done = await backfills(have, tmp_path).backfill(text.format(name="Late", source=""), OLD)
        assert (done.rows, done.later, done.failed, done.unreadable) == (PAST, 0, 0, 4)
        late = await played(have, "Late", hand, runner)
        await publish_forms(have, "mesh.Late.Readings", ROWS[PAST:])
        await late.until(stream, passing(ROWS[PAST:]))
        whole, after = live.rows(stream), late.rows(stream)
        await live.stop()
        await late.stop()
        for device in sorted({row["device"] for row in ROWS}) if text is METER else [None]:
            own = [r for r in after if device in (None, r[0])]
            assert own == [r for r in whole if device in (None, r[0])][-len(own) :] != []


#: Events of one message are one batch.
BATCHES = """@App:name('{name}')
define stream Readings (device string, watt double);
@dist(execGroup='sums')
from Readings#window.batch() select sum(watt) as total, count() as n insert into Sums;
@dist(execGroup='last')
from Sums#window.length(100) select total, n, sum(n) as all_of_it, count() as batches
insert into Lasts;
"""


@pytest.mark.thorough
async def test_an_array_is_one_chunk_as_it_is_live(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with playing(nats_server, tmp_path) as (have, runner):
        await old(have)
        await publish_forms(have, "old.readings", ROWS[:PAST])
        await backfills(have, tmp_path).backfill(BATCHES.format(name="Late"), OLD)
        late = await played(have, "Late", hand, runner)
        await publish_forms(have, "mesh.Late.Readings", ROWS[PAST : PAST + 4])
        await late.until("Lasts", 1)
        found = late.rows("Lasts")
        await late.stop()
        watts = [row["watt"] for row in ROWS[PAST : PAST + 4]]
        assert found == [[sum(watts), 4, PAST + 4, PAST // 4 + 1]]


#: The greatest time of all events.
TIMES = """@App:name('{name}')
define stream Readings (device string, ms long);
@dist(execGroup='all') from Readings#window.length(100)
select max(eventTimestamp()) as last, count() as n insert into All;
"""


@pytest.mark.thorough
async def test_times_are_the_publishers_or_the_servers_or_those_of_an_attribute(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with playing(nats_server, tmp_path) as (have, runner):
        await old(have)
        js = have.client.jetstream()
        own = {names.EVENT_TIME_HEADER: "1700000005000"}
        for at, headers in ((b"1700000009000", own), (b"null", None)):
            event = b'{"device":"d1","ms":%s}' % at
            await js.publish("old.x", event, headers=headers)
        stored = (await js.get_msg("OLD", 2)).time
        assert stored is not None
        expected = {"": (2, 0, int(stored.timestamp() * 1000)), "ms": (1, 1, 1700000009000)}
        for name, (column, (rows, unreadable, last_ms)) in zip(
            ("Plain", "Own"), expected.items(), strict=True
        ):
            asked = [HistoryInput("Readings", "nats:OLD", column)]
            done = await backfills(have, tmp_path).backfill(TIMES.format(name=name), asked)
            assert (done.rows, done.unreadable) == (rows, unreadable)
            late = await played(have, name, hand, runner)
            await js.publish(
                f"mesh.{name}.Readings", b'{"device":"d1","ms":1}',
                headers={names.EVENT_TIME_HEADER: "1700000000000"},
            )  # fmt: skip
            await late.until("All", 1)
            found = late.rows("All")
            await late.stop()
            assert found == [[last_ms, rows + 1]]
        for column in ("none", "device"):
            asked = [HistoryInput("Readings", "nats:OLD", column)]
            with pytest.raises(MeshError, match="MESH-C161") as refused:
                await backfills(have, tmp_path).backfill(TIMES.format(name="Wrong"), asked)
            assert f'no times in "{column}"' in refused.value.message


@pytest.mark.thorough
@pytest.mark.parametrize("until", [None, str(PAST)])
async def test_of_the_stream_that_the_app_reads_the_past_ends_at_the_cut(
    hand: Hand, nats_server: NatsServer, tmp_path: Path, until: str | None
) -> None:
    async with playing(nats_server, tmp_path) as (have, runner):
        js = have.client.jetstream()
        await js.add_stream(name="READINGS", subjects=["readings", "others"])
        await publish(have, "readings", ROWS[:PAST])
        if until is not None:
            await publish(have, "readings", ROWS[PAST:])
        # The app does not read it.
        await js.publish("others", b'{"device":"d0","watt":1000000.0}')
        asked = [HistoryInput("Readings", "nats:READINGS", "", until)]
        done = await backfills(have, tmp_path).backfill(
            CHAIN.format(name="Late", source=FOREIGN), asked
        )
        cut = PAST + 1 if until is None else PAST
        assert (done.rows, done.cuts, done.unreadable) == (PAST, {"READINGS": cut}, 0)
        if until is None:
            await publish(have, "readings", ROWS[PAST:])
        late = await played(have, "Late", hand, runner)
        rest = passing(ROWS[PAST:])
        await late.until("Lasts", rest)
        await late.run(lambda: False, rounds=3)
        found = late.rows("Lasts")
        await late.stop()
        # No event is missed, and none counts twice.
        assert len(found) == rest
        end_ms = ROWS[-1]["at"] - 10_000
        recent = [row["watt"] for row in ROWS if row["watt"] >= 0 and row["at"] > end_ms]
        assert found[-1][1] == sum(recent)


@pytest.mark.slow
async def test_what_may_be_read_is_what_a_source_of_an_app_may_read(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with playing(nats_server, tmp_path) as (have, _):
        await have.service.deploy(CHAIN.format(name="Live", source=""))
        await publish(have, "mesh.Live.Readings", ROWS[:20])
        given, text = backfills(have, tmp_path), CHAIN.format(name="Late", source="")
        for path, why in (
            ("nats:KV_mesh_control", "no events of an app"),
            ("nats:OBJ_mesh_state", "no events of an app"),
            ("nats:mesh-Live-errors-", "no events of an app"),
            ("nats://host/STREAM", "names no JetStream stream"),
            ("nats:OLD#a..b", "names no JetStream stream"),
            ("nats:GONE", "there is no JetStream stream GONE"),
        ):
            with pytest.raises(MeshError, match="MESH-C161") as refused:
                await given.backfill(text, [HistoryInput("Readings", path, "")])
            assert why in refused.value.message
        assert have.view.snapshot().app("Late") is None
        # Markers of writers are no events.
        of_app = [HistoryInput("Readings", "nats:mesh-Live-Readings", "")]
        author = Identity("ann", (Grant(frozenset({Permission.APPS_MANAGE}), "Late"),))
        token = access.current.set(author)
        try:
            with pytest.raises(MeshError, match="MESH-A403"):
                await given.backfill(text, of_app)
        finally:
            access.current.reset(token)
        done = await given.backfill(text, of_app)
        assert (done.rows, done.unreadable) == (20, 0)


#: A process with short batches, killed once, when its first checkpoint is told.
KILLED = """import os, sys
from pathlib import Path
from mesh.history import process, streams
from mesh.model import codec
from pyspark_nats.source import batches, fetch

# Few messages are on their way at a time, so that no batch has all of them.
fetch._REQUEST_MESSAGES, fetch._ASK_AT = 2000, 0
batches._ROWS_ENOUGH = streams.BATCH_ROWS = 2000
mark, encode = Path({mark!r}), codec.encode

def encoded(report):
    data = encode(report)
    if getattr(report, "checkpoint", None) is not None and not mark.exists():
        mark.touch()
        os.write(1, data + b"\\n")
        os.kill(os.getpid(), 9)
    return data

codec.encode = encoded
sys.exit(process.main())
"""
#: Messages that can't be read, before each that can.
BAD = 250
NUMBERS = """@App:name('{name}')
define stream Readings (n long);
@dist(execGroup='all')
from Readings#window.length(7) select n, sum(n) as total insert into All;
"""


@pytest.mark.slow
async def test_a_killed_process_continues_after_the_sequence_of_its_checkpoint(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with playing(nats_server, tmp_path) as (have, runner):
        await old(have)
        js = have.client.jetstream()
        for first in range(0, 20_000, 500):
            for _ in range(BAD):
                await have.client.publish("old.x", b'{"n":"bad"}')
            data = orjson.dumps([{"n": n} for n in range(first, first + 500)])
            await js.publish("old.x", data)
            if first % 2000 == 0:
                hole = await js.publish("old.x", b'{"n":-1}')
                await js.delete_msg("OLD", hole.seq)
        mark = tmp_path / "killed"
        command = (sys.executable, "-c", KILLED.format(mark=str(mark)))
        given = backfills(have, tmp_path, command)
        given.runner.checkpoint_s = 0.0
        done = await given.backfill(NUMBERS.format(name="Late"), OLD)
        assert mark.exists()
        assert 0 < done.resumed < 20_000
        assert (done.rows, done.unreadable) == (20_000, 40 * BAD)
        late = await played(have, "Late", hand, runner)
        await js.publish("mesh.Late.Readings", b'{"n":20000}')
        await late.until("All", 1)
        found = late.rows("All")
        await late.stop()
        assert found == [[20_000, sum(range(20_000 - 6, 20_001))]]
