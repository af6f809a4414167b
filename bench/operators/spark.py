"""Operators inside Spark: the path with state beside the one without, from NATS to NATS.

Both use a worker's session, queries and sink.  Both read the same events and emit a row for each,
so the only difference is the path between.  A rate is that of all batches but the first, by the
time of their triggers, from the query's own progress.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.connector import plain
from bench.connector.harness import CORES, Bench, Figure, figure
from mesh.jetstream.channels import delete_channels, ensure_channels
from mesh.jetstream.connection import close, connect
from mesh.model.cluster import Assignment
from mesh.plan.build import plan
from mesh.settings import ChannelSettings, NatsSettings
from mesh.spark.dedicated_query import query as spark_query
from mesh.spark.instance_io import InstanceIO
from tools.conformance.spark import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mesh.model.app import AppSpec

STATELESS: Final = """@App:name('Stateless{number}')
define stream TempStream (device string, temp double, room int, `at` long, ok bool);
from TempStream[temp > 0.0] select device, temp * 9.0 / 5.0 + 32.0 as value insert into Out;
"""
STATEFUL: Final = """@App:name('Stateful{number}')
define stream TempStream (device string, temp double, room int, `at` long, ok bool);
from TempStream#window.length(100) select device, avg(temp) as value group by device
insert into Out;
"""
STEADY: Final = """@App:name('Steady{number}')
define stream TempStream (deviceID long, roomNo int, temp double, sent long);
from TempStream#window.time(1 sec) select deviceID, sent, avg(temp) as value group by deviceID
insert into Out;
"""

ROWS: Final = 600_000
BATCH_ROWS: Final = 100_000
_SIZE: Final = 70
RATIO: Final = 0.7
#: In turns, because the speed of a machine drifts; the first of each warms the session.
_TURNS: Final = ("stateless", "stateful") * 2 + ("stateful", "stateless") * 2

RATE: Final = 200
P50_MS: Final = 120.0
P99_MS: Final = 300.0
#: Time for the JVM to compile the path of a trigger, and for the Python workers to start.
_WARM_UP_S: Final = 20.0
_MEASURED_S: Final = 30.0
_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Ran:
    """A query over all events: rows a second, and where the time of its triggers went."""

    rate: float
    note: str


def measure() -> list[Figure]:
    """All figures, on a server and a session of their own."""
    with Bench() as bench, session(CORES) as spark:
        # The remains of the rates, a large heap and millions of messages that the server is still
        # deleting, would not affect a real steady stream of events.
        latency = _latency(bench, spark)
        return [*rates(bench, spark, STATEFUL, "with state", RATIO), *latency]


@contextmanager
def running(
    bench: Bench, spark: SparkSession, text: str, number: int, *, rows: int = 0
) -> Iterator[tuple[AppSpec, StreamingQuery]]:
    """A worker's query of an app of one group, with ``rows`` events before it starts."""
    spec = plan(text.format(number=number)).spec
    (group,) = spec.groups
    settings = NatsSettings(url=bench.url)
    asyncio.run(_channels(settings, spec))
    if rows:
        subject = group.inputs[0].channel.subject()
        plain.together([plain.Publish(bench.server.port, subject, _SIZE, 0, rows)])
    assignment = Assignment(
        group.instances[0], spec.name, group.name, 1, "bench", f"i{number}", 1, lease_revision=0
    )
    directory = bench.directory / spec.name
    directory.mkdir()
    query, *_ = spark_query.start(
        spark,
        InstanceIO(group, assignment),
        directory,
        nats={"servers": bench.url},
        batch_rows_max=BATCH_ROWS,
        offsets=None,
        restored=frozenset(),
    )
    try:
        yield spec, query
    finally:
        query.stop()
        asyncio.run(_channels(settings, spec, gone=True))
        shutil.rmtree(directory, ignore_errors=True)


async def _channels(settings: NatsSettings, spec: AppSpec, *, gone: bool = False) -> None:
    client = await connect(settings, "bench")
    try:
        if gone:
            await delete_channels(client.jetstream(), spec)
        else:
            await ensure_channels(client, spec, ChannelSettings())
    finally:
        await close(client)


def rates(
    bench: Bench, spark: SparkSession, stateful: str, name: str, ratio: float
) -> list[Figure]:
    """The rate of ``STATELESS``, and that of an app ``name``, of which ``ratio`` is wanted."""
    found: dict[str, list[Ran]] = {"stateless": [], "stateful": []}
    texts = {"stateless": STATELESS, "stateful": stateful}
    for number, turn in enumerate(_TURNS):
        found[turn].append(_ran(bench, spark, texts[turn], number))
    plain_path, with_state = (
        figure(kind, [one.rate for one in ran[1:]], "rows/s", note=ran[-1].note)
        for kind, ran in found.items()
    )
    return [
        Figure("NATS to NATS, without state", plain_path.value, "rows/s", note=plain_path.note,
               runs=plain_path.runs),
        Figure(f"NATS to NATS, {name}, of that", with_state.value, "rows/s", ratio,
               note=with_state.note, limit=plain_path.value, runs=with_state.runs),
    ]  # fmt: skip


def _ran(bench: Bench, spark: SparkSession, text: str, number: int) -> Ran:
    with running(bench, spark, text, number, rows=ROWS) as (spec, query):
        before = bench.cpu()
        stream = spec.groups[0].outputs[0].js_stream()
        deadline_s = time.monotonic() + _TIMEOUT_S
        while bench.messages(stream) < ROWS:
            if (failure := query.exception()) is not None:
                raise failure
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{bench.messages(stream)} rows within {_TIMEOUT_S:g} s")
            time.sleep(0.1)
        time.sleep(0.5)
        used = bench.cpu().since(before)
        told = [json.loads(progress.json) for progress in query.recentProgress]
    batches = [one for one in told if one["numInputRows"] >= BATCH_ROWS][1:]
    assert len(batches) == ROWS // BATCH_ROWS - 1, [one["numInputRows"] for one in told]
    took_ms = [one["durationMs"]["triggerExecution"] for one in batches]
    return Ran(len(batches) * BATCH_ROWS * 1000 / sum(took_ms), used.per_million(ROWS))


def _latency(bench: Bench, spark: SparkSession) -> list[Figure]:
    with running(bench, spark, STEADY, 0) as (spec, query):
        command = [sys.executable, "-m", "bench.operators.trip", bench.url, spec.name, str(RATE)]
        command += [str(_WARM_UP_S), str(_MEASURED_S)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        progress = query.lastProgress
    if done.returncode:
        raise RuntimeError(done.stderr[-400:])
    found = np.array(json.loads(done.stdout))
    p50, p99 = np.percentile(found, [50, 99])
    note = f"{len(found)} events, highest {found.max():.0f} ms"
    if progress is not None:
        note += f", last trigger {progress['durationMs'].get('triggerExecution', 0)} ms"
    name = f"latency with state at {RATE} events/s"
    return [
        Figure(f"{name}, p50", float(p50), "ms", P50_MS, at_least=False, note=note),
        Figure(f"{name}, p99", float(p99), "ms", P99_MS, at_least=False),
    ]
