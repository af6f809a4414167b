"""Histories that are interrupted: each goes on from its last checkpoint, wherever that was."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from nats.js.errors import KeyNotFoundError

from mesh.clock import SystemClock
from mesh.jetstream.history_checkpoints import AGE_MS, HistoryCheckpoints, drop_old
from mesh.model import names
from mesh.model.history import HistoryInput
from tests.support.history import CHAIN, METER, backfills, events, parquet, publish
from tests.support.played import played, playing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from concurrent.futures import ThreadPoolExecutor
    from typing import Any

    from mesh.jetstream.server import NatsServer
    from tests.support.backups import Mesh
    from tests.support.shared_query import Hand

    Scene = Callable[[Mesh, ThreadPoolExecutor], Coroutine[Any, Any, None]]

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]

COUNT, PAST = 160, 110
ROWS = events(COUNT)
REST = sum(row["watt"] >= 0 for row in ROWS[PAST:])
INPUTS = [HistoryInput("Readings", "old", "at")]

#: A process of a history that ends as its first argument says after it has told a checkpoint.
PROCESS = """import os, signal, sys, threading
from mesh.history import process, streams
from mesh.model import codec
from mesh.model.history import HistoryTask

streams.BATCH_ROWS = 25
task = codec.decode(HistoryTask, sys.stdin.buffer.readline())

def report(one):
    sys.stdout.buffer.write(codec.encode(one) + b"\\n")
    sys.stdout.buffer.flush()
    if one.checkpoint is not None:
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        print(os.getpid(), file=sys.stderr, flush=True)
        threading.Event().wait()

process.run(task, report, threading.Event())
"""


async def outputs_are_equal(
    have: Mesh, hand: Hand, runner: ThreadPoolExecutor, text: str, stream: str
) -> None:
    """The outputs of app Late, which begins after the past: those of one that has read all."""
    await have.service.deploy(text.format(name="Live", source=""))
    live = await played(have, "Live", hand, runner)
    await publish(have, "mesh.Live.Readings", ROWS)
    await live.until(stream, sum(row["watt"] >= 0 for row in ROWS))
    late = await played(have, "Late", hand, runner)
    await publish(have, "mesh.Late.Readings", ROWS[PAST:])
    await late.until(stream, REST)
    whole, after = live.rows(stream), late.rows(stream)
    await live.stop()
    await late.stop()
    for device in {row[0] for row in after}:
        own = [row for row in after if row[0] == device]
        assert own == [row for row in whole if row[0] == device][-len(own) :]


@pytest.mark.extended
@pytest.mark.parametrize(("text", "stream"), [(CHAIN, "Lasts"), (METER, "Totals")])
async def test_a_history_that_is_killed_after_each_checkpoint_comes_to_its_end(
    hand: Hand, nats_server: NatsServer, tmp_path: Path, text: str, stream: str
) -> None:
    parquet(tmp_path / "files" / "old", ROWS[:PAST])

    async with playing(nats_server, tmp_path) as (have, runner):
        calls = backfills(have, tmp_path / "files", (sys.executable, "-c", PROCESS, "killed"))
        calls.runner.checkpoint_s = 0.0
        done = await calls.backfill(text.format(name="Late", source=""), INPUTS)
        # Three files of 37 rows, read in batches of 25; nothing is left for the last process.
        assert (done.rows, done.resumed, done.failed) == (PAST, PAST, 0)
        bucket = await have.client.jetstream().key_value(names.SNAPSHOTS_BUCKET)
        with pytest.raises(KeyNotFoundError):
            await bucket.get("history.Late")
        assert not [one for one in await have.pieces.listed() if one.startswith("history/")]
        await outputs_are_equal(have, hand, runner, text, stream)


#: A process that makes a checkpoint as often as it may.
OFTEN = """import sys
from mesh.history import process, streams

streams.BATCH_ROWS, process._SHARE = 25, 1e9
sys.exit(process.main())
"""


@pytest.mark.thorough
async def test_a_checkpoint_is_whole_however_slowly_it_is_stored(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet(tmp_path / "files" / "old", ROWS[:PAST])

    async with playing(nats_server, tmp_path) as (have, _):
        calls = backfills(have, tmp_path / "files", (sys.executable, "-c", OFTEN))
        calls.runner.checkpoint_s = 0.0
        put = have.pieces.put
        stored: list[str] = []

        async def slow(name: str, data: bytes) -> None:
            if not stored:
                # The process runs all rows meanwhile, and ends.
                with suppress(ProcessLookupError):
                    ended = os.pidfd_open(*calls.runner.pids)
                    assert (await asyncio.to_thread(select.select, [ended], [], [], 60))[0]
                    os.close(ended)
            stored.append(name)
            await put(name, data)

        monkeypatch.setattr(have.pieces, "put", slow)
        done = await calls.backfill(CHAIN.format(name="Late", source=""), INPUTS)
        assert (done.rows, done.resumed, done.failed) == (PAST, 0, 0)
        assert stored


#: A manager whose history hangs after a checkpoint.
MANAGER = """import asyncio, sys
from pathlib import Path
from mesh.model.history import HistoryInput
from tests.manager.test_history_checkpoints import PROCESS
from tests.support.backups import mesh
from tests.support.history import CHAIN, backfills

class Nats:
    url = sys.argv[1]

async def main():
    root = Path(sys.argv[2])
    async with mesh(Nats(), root, "jetstream") as have:
        calls = backfills(have, root / "files", (sys.executable, "-c", PROCESS, "hangs"))
        calls.runner.checkpoint_s = 0.0
        await calls.backfill(
            CHAIN.format(name="Late", source=""), [HistoryInput("Readings", "old", "at")])

asyncio.run(main())
"""


async def killed(have: Mesh, root: Path) -> None:
    """Have a manager store a checkpoint of 25 rows, and kill it: its history ends with it."""
    connected = have.client.connected_url
    assert connected is not None
    manager = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MANAGER, connected.geturl(), str(root),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert manager.stderr is not None
    child = psutil.Process(int(await manager.stderr.readline()))
    bucket = await have.client.jetstream().key_value(names.SNAPSHOTS_BUCKET)
    changes = await bucket.watch("history.Late")
    async for one in changes:
        if one is not None and b'"rows":25' in (one.value or b""):
            break
    await changes.stop()  # type: ignore[no-untyped-call]
    manager.kill()
    await manager.communicate()
    # The kernel ends the history with its manager.
    await asyncio.to_thread(psutil.wait_procs, [child], 30)
    assert not child.is_running()


@asynccontextmanager
async def interrupted(
    nats_server: NatsServer, root: Path
) -> AsyncIterator[tuple[Mesh, ThreadPoolExecutor]]:
    """A mesh in which a manager of before was killed."""
    parquet(root / "files" / "old", ROWS[:PAST])
    async with playing(nats_server, root) as (have, runner):
        await killed(have, root)
        yield have, runner


@pytest.mark.thorough
@pytest.mark.parametrize("is_changed", [False, True])
async def test_another_manager_goes_on_where_a_killed_one_was(
    hand: Hand,
    nats_server: NatsServer,
    tmp_path: Path,
    is_changed: bool,
) -> None:
    async with interrupted(nats_server, tmp_path) as (have, runner):
        have.service.deployments.undeploy_s = 0.0
        if is_changed:
            # Another file is another history, from the beginning.
            os.utime(next((tmp_path / "files" / "old").iterdir()), ns=(1, 1))
        text = CHAIN.format(name="Late", source="")
        done = await backfills(have, tmp_path / "files").backfill(text, INPUTS)
        assert (done.rows, done.resumed) == (PAST, 0 if is_changed else 25)
        await outputs_are_equal(have, hand, runner, CHAIN, "Lasts")


@pytest.mark.thorough
async def test_a_checkpoint_that_nobody_needs_is_removed_after_a_week(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with interrupted(nats_server, tmp_path) as (have, _):
        js, now_ms = have.client.jetstream(), SystemClock().wall_ms()
        checkpoints = HistoryCheckpoints(js, have.pieces, "Late")
        for is_left, later_ms in ((True, AGE_MS - 60_000), (False, AGE_MS + 60_000)):
            await drop_old(js, have.pieces, now_ms + later_ms)
            with tempfile.TemporaryDirectory() as directory:
                found = await checkpoints.load(Path(directory))
                assert (found is not None and found.rows == 25) == is_left
            stored = await have.pieces.listed()
            assert any(one.startswith("history/") for one in stored) == is_left
