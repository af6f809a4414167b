"""On-demand reads through NATS: a client, a manager and a worker's process over stored states.

One instance has the partitions of an aggregation by key.  The states are as it would have stored
them, and nothing else runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bench.ask.reads import ALL, BUCKETS, GROUPS, GROUPS_OF_RANGE, fill, keys_of, median
from mesh.clock import SystemClock
from mesh.files import scratch
from mesh.jetstream import server
from mesh.jetstream.connection import close, connect
from mesh.manager.desired_state import DesiredState
from mesh.manager.queries import Queries
from mesh.model import names
from mesh.model.cluster import Assignment
from mesh.model.partition import partitions
from mesh.operators.executor import Executor
from mesh.operators.failures import FAILED
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from mesh.settings import NatsSettings, QuerySettings, Settings
from mesh.spark.instance_io import InputPosition, LocalState
from mesh.worker.questions import Questions
from tests.support.stored_states import Records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.connector.harness import Figure
    from mesh.model.app import GroupSpec

PARTITIONS: Final = 4
#: Upper bound of the median of a point, milliseconds; a range has one in process, see ``reads``.
POINT_MS: Final = 20.0

_TEXT: Final = """@App:name('Ask')
define stream S (k string, p double, q long);
@dist(execGroup='cells', partitions='{partitions}')
define aggregation A from S select k, avg(p) as ap, sum(q) as sq group by k
aggregate every sec...year;
"""


def measure(*, quick: bool = False) -> list[Figure]:
    """The figures; ``quick`` for a test, with little data."""
    groups, of_range = (2_000, 20) if quick else (GROUPS, GROUPS_OF_RANGE)
    runs = 5 if quick else 51
    with scratch.directory("bench-ask") as directory:
        return asyncio.run(_measured(directory, groups, of_range, runs))


async def _measured(directory: Path, groups: int, of_range: int, runs: int) -> list[Figure]:
    figures = []
    keys = np.random.default_rng(7).integers(0, groups, runs).tolist()
    points = [
        ALL.format(on=f"on k == 'key-{key}'", per="hours", select="k, ap, sq") for key in keys
    ]
    whole = ALL.format(on="", per="minutes", select="AGG_TIMESTAMP, k, ap, sq")
    nats = server.start(directory / "nats")
    try:
        async with _asked(nats.url, directory / "point", groups, 1) as ask:
            took = await ask(points, 1)
        name = f"through NATS, {PARTITIONS} partitions: one group of {groups:,}, p50"
        figures.append(median(name, took, POINT_MS))
        async with _asked(nats.url, directory / "range", of_range, BUCKETS) as ask:
            took = await ask([whole] * runs, of_range * BUCKETS)
        name = f"through NATS, {PARTITIONS} partitions: {BUCKETS} x {of_range:,}, p50"
        figures.append(median(name, took, None))
    finally:
        nats.stop()
    return figures


@contextlib.asynccontextmanager
async def _asked(url: str, directory: Path, groups: int, minutes: int) -> AsyncIterator[Any]:
    """A function that sends queries and returns how long each took, milliseconds."""
    limits = QuerySettings(rows_max=10**6, timeout_s=60.0)
    settings = Settings(nats=NatsSettings(url=url), queries=limits)
    spec = plan(_TEXT.format(partitions=PARTITIONS)).spec
    group = next(one for one in spec.groups if one.name == "cells")
    assignment = Assignment(group.instances[0], "Ask", group.name, 1, "inc", "w1", 7, 1)
    await asyncio.to_thread(_store, directory, group, groups, minutes)
    view: Any = Records(SimpleNamespace(spec=spec), (assignment,))  # type: ignore[arg-type]
    client = await connect(settings.nats, "bench")
    clock = SystemClock()
    queries = Queries(client, view, DesiredState(client, view, clock), settings, clock)
    questions = Questions(client, "w1", settings, clock, lambda: directory, lambda app: spec.text)
    questions.began(assignment, group)
    await questions.start()
    await queries.start()

    async def ask(texts: list[str], rows: int) -> list[float]:
        took = []
        # The first answer loads the states, and makes their indexes.
        for text in [texts[0], *texts]:
            begun = time.perf_counter()
            if rows == 1:
                reply = await client.request(names.query_subject("Ask"), text.encode(), timeout=60)
                records = reply.data
            else:
                # Too long for one message: the manager is asked as by REST.
                records = (await queries.ask("Ask", text)).records
            took.append((time.perf_counter() - begun) * 1000)
            assert b"[[" in records, records[:100]
            assert records.count(b"],[") + 1 == rows
        return took[1:]

    try:
        yield ask
    finally:
        await queries.stop()
        await questions.stop()
        await close(client)


def _store(directory: Path, group: GroupSpec, groups: int, minutes: int) -> None:
    """The states of all partitions, each with a cell for each of its groups and minute."""
    keys = keys_of(groups)
    part_of = partitions([keys], PARTITIONS)
    for part in range(PARTITIONS):
        own = keys.filter(pa.array(part_of == part))
        executor = Executor(bind_group(group), [FAILED])
        sequence, time_ms = fill(executor, own, minutes)
        local = LocalState(directory / group.instances[0] / "7-1" / str(part))
        stream = group.inputs[0].channel.js_stream(part)
        at = {stream: {"sequence": sequence, "time_ms": time_ms}}
        local.save(InputPosition.of(at, [stream]), {}, executor.snapshot())
