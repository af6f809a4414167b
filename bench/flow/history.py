"""History of a keyed window from files, beside events played through NATS.

The files have ten times as many events, of the same period, so the last ones are those that were
played.  Both apps then get the same live events; their outputs must be equal.  The time of playing
is from the start of the instances, when all events are stored already, to the last output.  The
time of history is that of the whole ``mesh backfill``: process, files, states and snapshots.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from bench.connector.harness import Figure
from bench.flow import plain
from bench.mesh import harness
from mesh.clock import SystemClock
from mesh.files import scratch
from mesh.jetstream import channel_reader
from mesh.manager.service import ManagerService
from mesh.model.history import HistoryInput
from mesh.model.nats_roles import NatsRole
from mesh.settings import ManagerSettings, Settings
from tests.support.secured import FEEDER

if TYPE_CHECKING:
    from pathlib import Path

    from bench.mesh.harness import View

EVENTS: Final = 200_000
#: Rows of the files for each event that is played.
_TIMES: Final = 10
#: Events after which all windows are full.
_FULL: Final = 50_000
#: Events that both apps get afterwards.
_LIVE: Final = 2_000
#: History is to be this many times as fast.
_TARGET: Final = 5.0
_APP: Final = """
@App:name('{name}')
define stream Input (n long, v double, k string);
@dist(execGroup='w', parallel='2', partitions='8')
partition with (k of Input) begin
from Input#window.length(1000) select n, k, avg(v) as mean insert into Output;
end;
"""


async def measure(events: int = EVENTS, times: int = _TIMES) -> list[Figure]:
    """Rows a second of both, and their ratio; the files have ``times`` as many as are played."""
    with scratch.directory("history") as directory:
        (directory / "files").mkdir()
        rows = times * events
        _write(directory / "files" / "old.parquet", rows)
        async with harness.mesh(1) as view:
            # Sessions, loops and the process are warm afterwards.
            await _both(view, directory, "Warm", 20_000, rows)
            played, read, kept = await _both(view, directory, "Real", events, rows)
    faster = f"{read / played:.1f} times"
    return [
        Figure("keyed window, played through NATS", played / 1000, "k/s"),
        Figure("keyed window, history from Parquet, beside that", read / 1000, "k/s", _TARGET,
               limit=played / 1000, note=f"{faster}; {kept} outputs after it are equal"),
    ]  # fmt: skip


async def _both(
    view: View, directory: Path, name: str, events: int, rows: int
) -> tuple[float, float, int]:
    """Rates of playing ``events`` and of a history of ``rows``; the outputs compared."""
    given = Settings(
        nats=view.cluster.settings(NatsRole.MANAGER),
        manager=replace(ManagerSettings(), history_dir=str(directory / "files")),
    )
    service = ManagerService(view.client, view.view, given, SystemClock())
    live, late = f"{name}Live", f"{name}Late"
    await view.service.order_node("w1", "cordoned")
    await service.deploy(_APP.format(name=live))
    await asyncio.to_thread(plain.fill, view.access(FEEDER), f"mesh.{live}.Input", events)
    started_s = time.perf_counter()
    await view.service.order_node("w1", "open")
    await _until(view, live, events)
    played_s = time.perf_counter() - started_s

    started_s = time.perf_counter()
    done = await service.backfills.backfill(
        _APP.format(name=late), [HistoryInput("Input", "old.parquet", "at")]
    )
    read_s = time.perf_counter() - started_s
    assert done.rows == rows
    outputs = []
    for app, before in ((live, events), (late, 0)):
        await asyncio.to_thread(plain.fill, view.access(FEEDER), f"mesh.{app}.Input", _LIVE)
        await _until(view, app, before + _LIVE)
        outputs.append(await _last(view, app))
        await service.undeploy(app)
    if events >= _FULL:
        assert outputs[0] == outputs[1], "the outputs after the history differ"
    return events / played_s, rows / read_s, _LIVE


async def _until(view: View, app: str, count: int) -> None:
    """Until an app has emitted so many events."""
    subject = f"mesh.{app}.Output"
    while True:
        if await view.count(f"mesh-{app}-Output", subject) >= count:
            return
        await asyncio.sleep(0.05)


async def _last(view: View, app: str) -> list[tuple[object, ...]]:
    """The last outputs, by key and number: between keys there is no order."""
    stream, subject = f"mesh-{app}-Output", f"mesh.{app}.Output"
    last = (await view.js.stream_info(stream)).state.last_seq
    first = max(1, last - 2 * _LIVE)
    found = [
        tuple(orjson.loads(one.data).values())
        async for one in channel_reader.read(view.client, stream, first, last, subject)
    ]
    return sorted(found[-_LIVE:], key=lambda row: (str(row[1]), row[0]))


def _write(path: Path, count: int) -> None:
    """The events of ``plain.fill`` as a file."""
    n = np.arange(count)
    keys = pa.array([f"key{one}" for one in (n % 50).tolist()])
    at = pa.array(1_700_000_000_000 + n // 20)
    columns = [pa.array(n), pa.array(n % 100 + 0.5), keys, at]
    pq.write_table(pa.Table.from_arrays(columns, names=["n", "v", "k", "at"]), path)
