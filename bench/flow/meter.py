"""Publishes events at a rate, and notes when each comes out: ``python -m bench.flow.meter JOB``.

JOB is a JSON object of ``Job``'s fields.  The result is printed as JSON: ``Measured`` by stream.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import nats
import numpy as np
import orjson

if TYPE_CHECKING:
    from nats.aio.msg import Msg

#: Time limit for the last events, seconds.
_REST_S: Final = 10.0


@dataclass(frozen=True)
class Job:
    """Events to publish, and the streams in which they come out."""

    url: str
    #: Apps that get the events in turn.
    apps: tuple[str, ...]
    #: Streams whose events have the attribute ``n`` of the input event.
    streams: tuple[str, ...]
    #: Events per second.
    rate: float
    count: int

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Measured:
    """Latencies of one stream."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    #: Events that came more than once, and that did not come.
    repeats: int
    missing: int


async def run(job: Job) -> dict[str, Measured]:
    """Publish, and wait until all has come."""
    client = await nats.connect(job.url.split(","), pending_size=1 << 26)
    base = time.time_ns() // 1000
    sent_s = np.zeros(job.count)
    came: dict[str, list[tuple[int, float]]] = {stream: [] for stream in job.streams}
    lists, all_came = list(came.values()), asyncio.Event()
    for stream in job.streams:

        async def take(message: Msg, came: list[tuple[int, float]] = came[stream]) -> None:
            now_s = time.perf_counter()
            came.append((orjson.loads(message.data)["n"] - base, now_s))
            if len(came) == job.count and all(len(c) >= job.count for c in lists):
                all_came.set()

        for app in job.apps:
            await client.subscribe(f"mesh.{app}.{stream}", cb=take, pending_msgs_limit=-1)
    await client.flush()
    started_s = time.perf_counter()
    for number in range(job.count):
        left_s = started_s + number / job.rate - time.perf_counter()
        if left_s > 0:
            await asyncio.sleep(left_s)
        sent_s[number] = time.perf_counter()
        # The value rises, also from one job to the next.
        event = b'{"n": %d, "v": %d.5}' % (base + number, base + number)
        await client.publish(f"mesh.{job.apps[number % len(job.apps)]}.Input", event)
    await client.flush()
    with suppress(TimeoutError):
        async with asyncio.timeout(_REST_S):
            await all_came.wait()
    await client.close()
    return {stream: _measured(job, sent_s, came[stream]) for stream in job.streams}


def _measured(job: Job, sent_s: np.ndarray, came: list[tuple[int, float]]) -> Measured:
    mine = [(number, at_s) for number, at_s in came if 0 <= number < job.count]
    counts = Counter(number for number, _ in mine)
    latencies_ms = np.array([(at_s - sent_s[number]) * 1000 for number, at_s in mine] or [np.nan])
    p50, p99 = np.percentile(latencies_ms, [50, 99])
    return Measured(
        len(mine),
        float(p50),
        float(p99),
        float(latencies_ms.max()),
        sum(count - 1 for count in counts.values()),
        job.count - len(counts),
    )


def main() -> None:
    """Do the job that is given."""
    given = json.loads(sys.argv[1])
    lists = {name: tuple(given[name]) for name in ("apps", "streams")}
    job = Job(**{**given, **lists})
    found = asyncio.run(run(job))
    print(json.dumps({stream: asdict(one) for stream, one in found.items()}))


if __name__ == "__main__":
    main()
