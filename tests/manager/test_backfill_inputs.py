"""Histories of several streams, which a group merges by time, and histories from databases."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mesh.errors import MeshError
from mesh.model import names
from mesh.model.history import HistoryInput
from tests.support.history import CHAIN, backfills, events
from tests.support.played import played, playing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.backups import Mesh
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

#: A stream, and one of its events.
Event = tuple[str, dict[str, Any]]

HEAD = """@App:name('{name}')
define stream Readings (device string, n long, watt double);
define stream Limits (device string, n long, most double);
@dist(execGroup='clean')
from Readings[watt >= 0.0] select device, n, watt insert into Clean;
"""
JOIN = """from Clean#window.length(3) as c join Limits#window.length(1) as l on c.watt > l.most
select c.device as device, c.n as n, l.n as m insert into Over;
"""
#: A group by key; and two groups, the second of which reads what the first makes of its input.
KEYED = f"""{HEAD}@dist(execGroup='joined', parallel='2', partitions='4')
partition with (device of Clean, device of Limits) begin {JOIN} end;
"""
STAGES = f"""{HEAD}@dist(execGroup='joined') {JOIN}
@dist(execGroup='last')
from Over#window.length(4) as o join Limits#window.length(2) as l on o.device == l.device
select o.n as n, o.m as m, l.n as k insert into Lasts;
"""
COUNT, PAST, START_MS = 120, 70, 1_700_000_000_000
DEVICES = 3


def both_streams() -> list[Event]:
    """Events of both streams by time; the last ones let time pass for each device."""
    found: list[Event] = []
    for n in range(COUNT):
        device, at = f"d{n * 5 % DEVICES}", START_MS + 100 * n
        if n % 4 == 3:
            device = f"d{n // 4 % DEVICES}"
            found.append(("Limits", {"device": device, "n": n, "most": float(n % 7), "at": at}))
        else:
            watt = float(n * 11 % 17 - 2)
            found.append(("Readings", {"device": device, "n": n, "watt": watt, "at": at}))
    for n in range(COUNT, COUNT + 2 * DEVICES):
        common = {"device": f"d{n % DEVICES}", "n": n, "at": START_MS + 100 * n}
        found.append(("Readings", {**common, "watt": 0.0}))
        found.append(("Limits", {**common, "most": 99.0}))
    return found


EVENTS = both_streams()


def joined(events: Sequence[Event], *, by_key: bool) -> Iterator[tuple[int, list[object]]]:
    """The rows of the join, computed in its own way, each with the number of its cause."""
    windows: dict[str, list[dict[str, Any]]] = {}
    limits: dict[str, dict[str, Any]] = {}
    for number, (stream, event) in enumerate(events):
        key = str(event["device"]) if by_key else ""
        kept = windows.setdefault(key, [])
        if stream == "Limits":
            limits[key] = event
            pairs = [(one, event) for one in kept]
        elif event["watt"] >= 0:
            kept.append(event)
            del kept[:-3]
            pairs = [(event, limits[key])] if key in limits else []
        else:
            continue
        for c, m in pairs:
            if c["watt"] > m["most"]:
                yield number, [c["device"], c["n"], m["n"]]


def last(events: Sequence[Event]) -> Iterator[tuple[int, list[object]]]:
    """The rows of the second stage, likewise: of one time, those of the first stage are first."""
    over: list[list[object]] = []
    limits: list[dict[str, Any]] = []
    found = list(joined(events, by_key=False))
    for number, (stream, event) in enumerate(events):
        for device, n, m in [row for cause, row in found if cause == number]:
            over = [*over, [device, n, m]][-4:]
            yield from ((number, [n, m, one["n"]]) for one in limits if one["device"] == device)
        if stream == "Limits":
            limits = [*limits, event][-2:]
            of_it = [one for one in over if one[0] == event["device"]]
            yield from ((number, [n, m, event["n"]]) for _, n, m in of_it)


def parquet(root: Path) -> None:
    """The past of both streams as files."""
    root.mkdir()
    for name in ("Readings", "Limits"):
        rows = [event for stream, event in EVENTS[:PAST] if stream == name]
        pq.write_table(pa.Table.from_pylist(rows), root / f"{name}.parquet")


async def publish(have: Mesh, app: str, some: Sequence[Event]) -> None:
    for stream, event in some:
        data = orjson.dumps({k: v for k, v in event.items() if k != "at"})
        headers = {names.EVENT_TIME_HEADER: str(event["at"])}
        await have.client.jetstream().publish(f"mesh.{app}.{stream}", data, headers=headers)


INPUTS = [HistoryInput(name, f"{name}.parquet", "at") for name in ("Readings", "Limits")]


def by_device(rows: list[list[object]]) -> list[list[object]]:
    """Between keys there is no order."""
    return sorted(rows, key=lambda row: str(row[0]))


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("order", [1, -1])
async def test_streams_of_a_group_are_merged_by_time_up_to_the_cut(
    hand: Hand, nats_server: NatsServer, tmp_path: Path, order: int
) -> None:
    parquet(tmp_path / "files")
    rows = list(joined(EVENTS, by_key=True))
    expected = [row for cause, row in rows if cause >= PAST]
    assert 10 < len(expected) < len(rows) - 10

    async with playing(nats_server, tmp_path) as (have, runner):
        with pytest.raises(MeshError, match="MESH-C160") as refused:
            await backfills(have, tmp_path / "files").backfill(
                KEYED.format(name="Late"), INPUTS[:1]
            )
        assert 'reads stream "Limits" as well' in (refused.value.detail or "")
        done = await backfills(have, tmp_path / "files").backfill(
            KEYED.format(name="Late"), INPUTS[::order]
        )
        assert (done.rows, done.failed, len(done.cuts)) == (PAST, 0, 2)
        late = await played(have, "Late", hand, runner)
        await publish(have, "Late", EVENTS[PAST:])
        await late.until("Over", len(expected))
        await late.run(lambda: False, rounds=3)
        found = late.rows("Over")
        await late.stop()
        assert by_device(found) == by_device(expected)


@pytest.mark.thorough
async def test_a_stage_merges_what_another_one_makes_of_the_same_stream(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    parquet(tmp_path / "files")
    rows = list(last(EVENTS))
    # Events at or after the last one of the first stage wait for the next one.
    end = EVENTS[max(cause for cause, _ in joined(EVENTS, by_key=False))][1]["at"]
    expected = [row for cause, row in rows if cause >= PAST and EVENTS[cause][1]["at"] < end]
    assert 10 < len(expected) < len(rows) - 10

    async with playing(nats_server, tmp_path) as (have, runner):
        await backfills(have, tmp_path / "files").backfill(STAGES.format(name="Late"), INPUTS)
        late = await played(have, "Late", hand, runner)
        for first in range(PAST, len(EVENTS), 4):
            # A stage that has no event of the other one would not wait for it.
            await publish(have, "Late", EVENTS[first : first + 4])
            await late.run(lambda: False, rounds=2)
        await late.until("Lasts", len(expected))
        found = late.rows("Lasts")
        await late.stop()
        assert found == expected


@pytest.mark.slow
async def test_a_table_of_a_database_is_a_history(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    rows, root = events(60), tmp_path / "files"
    root.mkdir()
    with sqlite3.connect(root / "old.db") as connection:
        connection.execute("create table readings (device text, watt real, at integer)")
        # Not in the order of time.
        values = [(row["device"], row["watt"], row["at"]) for row in reversed(rows)]
        connection.executemany("insert into readings values (?, ?, ?)", values)
    connection.close()

    async with playing(nats_server, tmp_path) as (have, runner):
        for path, why in (
            ("postgresql://db.example/shop#orders", "reads no past events from db.example:5432"),
            ("postgresql://ann:secret@db.example/shop#orders", "has a password"),
            ("sqlite:///old.db", "names no table"),
            ("sqlite:////etc/passwd#orders", "no file"),
        ):
            with pytest.raises(MeshError, match="MESH-C161") as refused:
                await backfills(have, root).backfill(
                    CHAIN.format(name="Late", source=""), [HistoryInput("Readings", path, "at")]
                )
            assert why in refused.value.message
        done = await backfills(have, root).backfill(
            CHAIN.format(name="Late", source=""),
            [HistoryInput("Readings", "sqlite:///old.db#readings", "at")],
        )
        assert (done.rows, done.later, done.failed) == (60, 0, 0)
        late = await played(have, "Late", hand, runner)
        await have.client.jetstream().publish(
            "mesh.Late.Readings", b'{"device":"d0","watt":1.0}',
            headers={names.EVENT_TIME_HEADER: str(rows[-1]["at"] + 1000)},
        )  # fmt: skip
        await late.until("Lasts", 1)
        await late.stop()
        last_ms = rows[-1]["at"] + 1000
        recent = [r["watt"] for r in rows if r["watt"] >= 0 and r["at"] > last_ms - 10_000]
        assert late.rows("Lasts")[-1][1] == sum(recent) + 1.0
