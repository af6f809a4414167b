"""Apps that begin with the states of their past: equal to those that have read it live."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.manager.desired_state import until
from mesh.model.history import HistoryInput
from tests.support.history import CHAIN, FOREIGN, METER, backfills, events, parquet, publish
from tests.support.played import played, playing

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.backups import Mesh
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

COUNT, PAST = 160, 110
ROWS = events(COUNT)
#: Events that the first group lets pass, of all and of those that come live.
PASSING, REST = (sum(row["watt"] >= 0 for row in some) for some in (ROWS, ROWS[PAST:]))


def by_device(rows: list[list[object]]) -> dict[object, list[list[object]]]:
    """The rows of each device in their order: between keys there is none."""
    found: dict[object, list[list[object]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


async def both(
    have: Mesh, hand: Hand, runner: ThreadPoolExecutor, directory: Path, text: str, stream: str
) -> tuple[list[list[object]], list[list[object]]]:
    """The output of an app that has read all events, and of one that begins with their past."""
    await have.service.deploy(text.format(name="Live", source=""))
    live = await played(have, "Live", hand, runner)
    await publish(have, "mesh.Live.Readings", ROWS)
    await live.until(stream, PASSING)
    done = await backfills(have, directory / "files").backfill(
        text.format(name="Late", source=""),
        [HistoryInput("Readings", "old", "at")],
    )
    assert (done.rows, done.later, done.failed) == (PAST, 0, 0)
    late = await played(have, "Late", hand, runner)
    await publish(have, "mesh.Late.Readings", ROWS[PAST:])
    await late.until(stream, REST)
    whole, after = live.rows(stream), late.rows(stream)
    await live.stop()
    await late.stop()
    assert (len(whole), len(after)) == (PASSING, REST)
    return whole, after


@pytest.mark.slow
async def test_outputs_after_a_history_are_those_of_an_app_that_has_read_it_live(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    parquet(tmp_path / "files" / "old", ROWS[:PAST])

    async with playing(nats_server, tmp_path) as (have, runner):
        whole, after = await both(have, hand, runner, tmp_path, METER, "Totals")
        before = by_device(whole)
        assert all(rows == before[d][-len(rows) :] for d, rows in by_device(after).items())


@pytest.mark.extended
async def test_outputs_of_a_chain_after_a_history_are_those_of_one_that_has_read_it_live(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    parquet(tmp_path / "files" / "old", ROWS[:PAST])

    async with playing(nats_server, tmp_path) as (have, runner):
        whole, after = await both(have, hand, runner, tmp_path, CHAIN, "Lasts")
        assert after == whole[-len(after) :]


@pytest.mark.thorough
async def test_the_live_stream_is_read_on_after_the_last_sequence_of_the_files(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    """The stream holds the end of the past as well: no event is missed, and none counts twice."""
    parquet(tmp_path / "files" / "old", ROWS[:PAST])

    async with playing(nats_server, tmp_path) as (have, runner):
        js = have.client.jetstream()
        await js.add_stream(name="READINGS", subjects=["readings"])
        await publish(have, "readings", ROWS)
        await have.service.deploy(CHAIN.format(name="Live", source=FOREIGN))
        live = await played(have, "Live", hand, runner)
        await live.until("Lasts", PASSING)
        with pytest.raises(MeshError, match="MESH-A422"):
            await backfills(have, tmp_path / "files").backfill(
                CHAIN.format(name="Wrong", source=FOREIGN),
                [HistoryInput("Readings", "old", "at", str(COUNT + 1))],
            )  # fmt: skip
        done = await backfills(have, tmp_path / "files").backfill(
            CHAIN.format(name="Late", source=FOREIGN),
            [HistoryInput("Readings", "old", "at", str(PAST))],
        )  # fmt: skip
        assert done.cuts == {"READINGS": PAST}
        late = await played(have, "Late", hand, runner)
        await late.until("Lasts", REST)
        await late.run(lambda: False, rounds=3)
        assert late.rows("Lasts") == live.rows("Lasts")[-REST:]
        await live.stop()
        await late.stop()


#: Tells its progress, and is then killed.
KILLED = """import os, sys
sys.stdin.readline()
print('{"rows": 40, "of": 110, "rows_per_s": 1000.0}', flush=True)
os.kill(os.getpid(), 9)
"""


async def test_an_app_whose_history_is_killed_is_removed(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    parquet(tmp_path / "files" / "old", ROWS[:PAST])

    async with playing(nats_server, tmp_path) as (have, _):
        # A path that names no files is refused before there is an app.
        with pytest.raises(MeshError, match="MESH-C161"):
            await backfills(have, tmp_path / "files").backfill(
                CHAIN.format(name="Late", source=""),
                [HistoryInput("Readings", "new", "at")],
            )  # fmt: skip
        assert have.view.snapshot().app("Late") is None
        broken = backfills(have, tmp_path / "files", (sys.executable, "-c", KILLED))
        with pytest.raises(MeshError, match="MESH-C162"):
            await broken.backfill(
                CHAIN.format(name="Late", source=""),
                [HistoryInput("Readings", "old", "at")],
            )  # fmt: skip
        assert not broken.runner.pids
        found = have.view.snapshot().app("Late")
        assert found is None or found.value.deleting


#: A manager whose history tells its progress and then hangs; prints the pid of the history.
MANAGER = """import asyncio, sys
from pathlib import Path
from mesh.jetstream.server import NatsServer
from mesh.model.history import HistoryInput
from tests.support.backups import mesh
from tests.support.history import CHAIN, backfills

HANGS = '''import os, sys, time
sys.stdin.readline()
print(os.getpid(), file=sys.stderr, flush=True)
print(\'{"rows": 40, "of": 110, "rows_per_s": 1000.0}\', flush=True)
time.sleep(600)
'''

class Nats:
    url = sys.argv[1]

async def main():
    root = Path(sys.argv[2])
    async with mesh(Nats(), root, "jetstream") as have:
        await backfills(have, root, (sys.executable, "-c", HANGS)).backfill(
            CHAIN.format(name="Late", source=""),
            [HistoryInput("Readings", "old", "at")])

asyncio.run(main())
"""


@pytest.mark.extended
async def test_a_history_whose_manager_is_killed_starts_again_with_the_next_deploy(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    parquet(tmp_path / "files" / "old", ROWS[:PAST])
    async with playing(nats_server, tmp_path) as (have, runner):
        have.service.deployments.undeploy_s = 0.0
        manager = await asyncio.create_subprocess_exec(
            sys.executable, "-c", MANAGER, nats_server.url, str(tmp_path / "files"),
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert manager.stderr is not None
        child = psutil.Process(int(await manager.stderr.readline()))

        def is_told() -> bool:
            found = have.view.snapshot().app("Late")
            return found is not None and "40 of 110 rows" in found.value.held

        assert await until(have.view, SystemClock(), 30.0, is_told)
        manager.kill()
        await manager.communicate()
        # The kernel ends the history with its manager.
        await asyncio.to_thread(psutil.wait_procs, [child], 30)
        assert not child.is_running()

        done = await backfills(have, tmp_path / "files").backfill(
            CHAIN.format(name="Late", source=""),
            [HistoryInput("Readings", "old", "at")],
        )  # fmt: skip
        assert done.rows == PAST
        late = await played(have, "Late", hand, runner)
        await publish(have, "mesh.Late.Readings", ROWS[PAST:])
        await late.until("Lasts", REST)
        await late.stop()
        watts = [row["watt"] for row in ROWS[-10:] if row["watt"] >= 0]
        assert late.rows("Lasts")[-1][1] == sum(watts)
