"""The seed's app: forked, compared, explained and begun after its past, with deaths meanwhile."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mesh.jetstream import channel_reader
from mesh.lineage.why import Lineage
from mesh.model import names
from mesh.model.history import HistoryInput
from mesh.testing import weather
from tests.manager.test_history_checkpoints import PROCESS
from tests.support.history import backfills
from tests.support.paths import ROOT
from tests.support.played import Played, played, playing

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.backups import Mesh
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(300)]

APP = (ROOT / "examples" / "temperature.siddhi").read_text()
OUT = ("AvgTempStream", "AlertStream", "HighTempStream")
#: Of the year's events, in spring; each is published once.
EVENTS = [(at, row) for at, row in weather.load().events() if row["temp"] is not None][9000:9180]
CUTS = (0, 60, 120, 180)
HIGH, HIGHER = 50.0, 60.0


def named(name: str, threshold: float = HIGH) -> str:
    text = APP.replace("'Temperature'", f"'{name}'")
    return text.replace("temp > 40", f"temp > {threshold:.0f}")


async def publish(have: Mesh, app: str, first: int, last: int) -> None:
    for at_ms, row in EVENTS[first:last]:
        headers = {names.EVENT_TIME_HEADER: str(at_ms)}
        data = json.dumps(row).encode()
        await have.client.jetstream().publish(f"mesh.{app}.TempStream", data, headers=headers)


async def read_to_the_end(*apps: Played) -> None:
    """Run until nothing more comes out."""
    stored, calm = [-1], 0
    while calm < 4:
        await apps[0].run(lambda: False, rounds=3)
        numbers = [len(one.rows(stream)) for one in apps for stream in OUT]
        stored, calm = numbers, calm + 1 if numbers == stored else 0


async def died(have: Mesh, old: Played, hand: Hand, runner: ThreadPoolExecutor) -> Played:
    """An app's instances after those that ran have died: at the snapshots that they had stored."""
    new = Played(have, old.app, hand, runner, epoch=6)
    await new.start()
    return new


async def explained(have: Mesh, app: Played) -> None:
    """An alert has its two events as inputs, a high temperature its one."""
    lineage = Lineage(have.client, app.record)
    for stream, wanted in (("AlertStream", {"initialTemp", "finalTemp"}),
                           ("HighTempStream", {"temp"})):  # fmt: skip
        js_stream, subject = f"mesh-Temp-{stream}", f"mesh.Temp.{stream}"
        async for one in channel_reader.read(have.client, js_stream, 1, 2**62, subject):
            why = await lineage.why(stream, one.sequence)
            temps = [cause.event["temp"] for cause in why.inputs]
            assert sorted(temps) == sorted(why.event[name] for name in wanted), why
            break


@pytest.mark.extended
async def test_the_seeds_app_in_time(hand: Hand, nats_server: NatsServer, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    past = [{**row, "at": at} for at, row in EVENTS[: CUTS[2]]]
    pq.write_table(pa.Table.from_pylist(past), tmp_path / "files" / "old.parquet")

    async with playing(nats_server, tmp_path) as (have, runner):
        await have.service.deploy(named("Temp"))
        app = await played(have, "Temp", hand, runner)
        await publish(have, "Temp", CUTS[0], CUTS[1])
        await read_to_the_end(app)
        await app.share()
        await publish(have, "Temp", CUTS[1], CUTS[2])
        await read_to_the_end(app)
        app = await died(have, app, hand, runner)
        await have.service.forks.fork("Temp", "Next", text=named("Temp", HIGHER), begin="start")
        fork = await played(have, "Next", hand, runner)
        await read_to_the_end(app, fork)
        await fork.share()
        await publish(have, "Temp", CUTS[2], CUTS[3])
        await fork.run(lambda: False, rounds=2)
        fork = await died(have, fork, hand, runner)
        await read_to_the_end(app, fork)

        # Compared: exactly the rows between the two thresholds are gone.
        high = [row["temp"] for _, row in EVENTS if row["temp"] > HIGH]
        higher = [temp for temp in high if temp > HIGHER]
        assert 0 < len(higher) < len(high)
        assert sorted(str(row[1]) for row in app.rows("HighTempStream")) == sorted(map(str, high))
        found = await have.service.past.compare("Temp", "Next", [], [])
        counts = {one["stream"]: (one["same"], one["new"], one["gone"], one["changed"])
                  for one in found["streams"]}  # fmt: skip
        assert counts == {
            "AvgTempStream": (len(app.rows("AvgTempStream")), 0, 0, 0),
            "AlertStream": (len(app.rows("AlertStream")), 0, 0, 0),
            "HighTempStream": (len(higher), 0, len(high) - len(higher), 0),
        }

        await explained(have, app)

        # Begun after its past, whose process is killed after its first checkpoint.
        calls = backfills(have, tmp_path / "files", (sys.executable, "-c", PROCESS, "killed"))
        calls.runner.checkpoint_s = 0.0
        done = await calls.backfill(
            named("Late"), [HistoryInput("TempStream", "old.parquet", "at")]
        )
        assert (done.rows, done.failed) == (len(past), 0)
        assert done.resumed > 0
        late = await played(have, "Late", hand, runner)
        await publish(have, "Late", CUTS[2], CUTS[3])
        await read_to_the_end(late)
        for stream in OUT:
            after, whole = late.rows(stream), app.rows(stream)
            assert 0 < len(after) < len(whole)
            if stream == "HighTempStream":
                live = [row["temp"] for _, row in EVENTS[CUTS[2] :] if row["temp"] > HIGH]
                assert sorted(str(row[1]) for row in after) == sorted(map(str, live))
            else:
                assert after == whole[-len(after) :]
        for each in (late, fork, app):
            await each.stop()
