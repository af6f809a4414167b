"""Interruption of keys when their group is scaled under load, and a check of continued counts."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from bench.connector.harness import Figure
from bench.mesh import harness
from mesh.clock import SystemClock
from mesh.model.partition import partitions
from mesh.settings import ChannelSettings

if TYPE_CHECKING:
    import numpy.typing as npt

    from bench.mesh.harness import View

    Longs = npt.NDArray[np.int64]

KEYS: Final = 10_000
RATE: Final = 20_000
#: Events of one message; the rate sets the number of messages a second.
EVENTS: Final = 200
#: From 2 instances to 4, to 1, to 2, and so on.
STEPS: Final = (4, 1, 2) * 4
#: Between two steps.
CALM_S: Final = 4.0

APP: Final = """
@App:name('{name}')
define stream Feed (k int);
@dist(execGroup='counts', parallel='2')
partition with (k of Feed) begin
from Feed select k, count() as c insert into Counts;
end;
"""


async def measure(servers: int) -> list[Figure]:
    """Scale a group again and again, and check its output."""
    clock = SystemClock()
    async with harness.mesh(2, servers=servers) as view:
        await harness.deploy(view, ["Scaled"], APP)
        load = Load(view)
        publishing = asyncio.create_task(load.publish())
        began_ms = []
        started_s = time.monotonic()
        await asyncio.sleep(CALM_S)
        for parallel in STEPS:
            began_ms.append(clock.wall_ms())
            await view.service.scale("Scaled", "counts", parallel)
            await view.until_running("Scaled")
            await asyncio.sleep(CALM_S)
        ended_ms = clock.wall_ms()
        load.is_over = True
        await publishing
        took_s = time.monotonic() - started_s
        await view.until("all counts", lambda: _is_all(view, load.published))
        keys, counts, times_ms = await asyncio.to_thread(_read, view.cluster.servers.url)
    ends_ms = [*began_ms[1:], ended_ms]
    pauses = [
        pause_s(keys, times_ms, start, stop) for start, stop in zip(began_ms, ends_ms, strict=True)
    ]
    told = ", ".join(f"{to}: {s:.2f}" for to, s in zip(STEPS, pauses, strict=True))
    print(f"pauses, seconds, by the new number of instances: {told}", file=sys.stderr, flush=True)
    wrong = discontinuities(keys, counts) + abs(load.published - len(keys))
    return [
        Figure(
            "rescale 2 -> 4 -> 1 -> 2 .. under load, longest pause of any key, median",
            statistics.median(pauses), "s", 0.6 if servers == 1 else 1.2, at_least=False,
            runs=tuple(pauses),
            note=f"slowest {max(pauses):.2f}",
        ),
        Figure(f"the same, slowest of {len(pauses)}", max(pauses), "s", 5.0, at_least=False),
        Figure("events a second meanwhile", load.published / took_s, "events/s", 0.95 * RATE),
        Figure("counts of keys that do not go on, or are lost or doubled", wrong, "rows", 0.0,
               at_least=False, note=f"{len(keys):,} rows of {KEYS:,} keys"),
    ]  # fmt: skip


class Load:
    """Events for keys in turn, at a steady rate."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.published = 0
        self.is_over = False

    async def publish(self) -> None:
        """Publish until it is over; a message that is late is followed by the next at once."""
        due_s = time.monotonic()
        while not self.is_over:
            first = self.published % KEYS
            events = [{"k": (first + n) % KEYS} for n in range(EVENTS)]
            await self._view.js.publish("mesh.Scaled.Feed", orjson.dumps(events))
            self.published += EVENTS
            due_s += EVENTS / RATE
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))


def pause_s(keys: Longs, times_ms: Longs, start_ms: float, stop_ms: float) -> float:
    """The longest time without a row of any one virtual partition, seconds.

    A partition moves as a whole, and each of its thousand keys has an event every half second.

    Args:
        keys: int64[n], of the rows.
        times_ms: int64[n], when the server stored them.
        start_ms: start of the interval.
        stop_ms: end of the interval.
    """
    inside = (times_ms >= start_ms) & (times_ms < stop_ms)
    count = ChannelSettings().partitions
    home = partitions([pa.array(keys[inside])], count)
    longest = 0.0
    for partition in range(count):
        at = np.sort(times_ms[inside][home == partition])
        edges = np.concatenate(([start_ms], at, [stop_ms]))
        longest = max(longest, float(np.diff(edges).max()) / 1000)
    return longest


def discontinuities(keys: Longs, counts: Longs) -> int:
    """Number of counts that don't continue those before by one: lost, doubled or reset."""
    order = np.lexsort((counts, keys))
    key, count = keys[order], counts[order]
    is_first = np.ones(len(key), np.bool_)
    is_first[1:] = key[1:] != key[:-1]
    before = np.zeros(len(key), np.int64)
    before[1:] = count[:-1]
    return int((count != np.where(is_first, 1, before + 1)).sum())


async def _is_all(view: View, published: int) -> bool:
    return await view.count("mesh-Scaled-Counts", "mesh.Scaled.Counts") >= published


def _read(url: str) -> tuple[Longs, Longs, Longs]:
    """Key, count and time of all rows that are stored."""
    keys: list[Any] = []
    counts: list[Any] = []
    times = []
    for part in harness.stored(url, "mesh-Scaled-Counts", "mesh.Scaled.Counts"):
        rows = [orjson.loads(data) for data in part.data.to_pylist()]
        keys += [row["k"] for row in rows]
        counts += [row["c"] for row in rows]
        times.append(part.time_ns // 1_000_000)
    return np.array(keys), np.array(counts), np.concatenate(times)
