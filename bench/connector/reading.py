"""Reading events with Spark, beside plain programs that only receive the same ranges.

A rate of ours is that of the steady batches: rows by the time of their triggers, planning and
checkpoint included, from the query's progress.  The first batch of a query is left out, because it
pays for the start of Python processes; the rate over the whole query is printed too.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.connector import events, plain
from bench.connector.harness import figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from bench.connector.harness import Bench, Figure

JSON_ROWS: Final = 1_000_000
#: Rows of a batch of JSON events, both streams together.
BATCH_ROWS: Final = 250_000
PARTITIONS: Final = 2

_NATS_PY_ROWS: Final = 50_000
_NATS_PY_FETCH: Final = 5000

#: In turns, because the speed of a machine drifts.
_TURNS: Final = ("limit", "ours", "nats-py", "limit", "ours", "nats-py", "ours", "limit")

_QUERY_TIMEOUT_S: Final = 60

_TARGET_OF_LIMIT: Final = 0.55
_TARGET_OF_NATS_PY: Final = 8.0


@dataclass(frozen=True)
class Read:
    """One query over whole streams."""

    #: Rows a second of the steady batches, and of the whole query with its start and its end.
    steady: float
    whole: float
    cpu: str


def measure(bench: Bench) -> list[Figure]:
    """JSON of two sizes, one event a message."""
    return [*_json(bench, 70), *_json(bench, 120)]


def _json(bench: Bench, size: int) -> list[Figure]:
    streams = filled(bench, f"JSON{size}", size, JSON_ROWS)
    own = JSON_ROWS // PARTITIONS
    jobs = [plain.CountBytes(bench.server.port, name, own) for name in streams]
    query = _NATS_PY_ROWS, _NATS_PY_FETCH
    # Spark compiles while it runs, for some three million rows: the speed of a long-running query
    # counts.
    for _ in range(4):
        read(bench, streams, size, "json", JSON_ROWS, BATCH_ROWS)
    limits: list[float] = []
    ours: list[Read] = []
    loops: list[float] = []
    for turn in _TURNS:
        if turn == "limit":
            limits.append(JSON_ROWS / plain.together(jobs))
        elif turn == "nats-py":
            loop = plain.NatsPyLoop(bench.server.port, streams[0], *query)
            loops.append(_NATS_PY_ROWS / plain.together([loop]))
        else:
            ours.append(read(bench, streams, size, "json", JSON_ROWS, BATCH_ROWS))
    for name in streams:
        bench.delete_stream(name)
    limit = figure(f"limit: two programs that count the bytes, {size} B", limits, "rows/s")
    loop_figure = figure(f"nats-py, fetch and orjson, {size} B", loops, "rows/s")
    steady = [one.steady for one in ours]
    return [
        limit,
        figure(
            f"read JSON, {size} B, of the limit", steady, "rows/s",
            limit=limit.value, target=_TARGET_OF_LIMIT, note=ours[-1].cpu,
        ),
        loop_figure,
        figure(
            f"read JSON, {size} B, of nats-py", steady, "rows/s",
            limit=loop_figure.value, target=_TARGET_OF_NATS_PY,
        ),
        figure(f"read JSON, {size} B, with start and end", [r.whole for r in ours], "rows/s"),
    ]  # fmt: skip


def filled(bench: Bench, prefix: str, size: int, rows: int, rows_per_message: int = 0) -> list[str]:
    """Streams, one for each partition, with ``rows`` events in all."""
    names = [f"{prefix}_{n}" for n in range(PARTITIONS)]
    own = rows // PARTITIONS
    for name in names:
        bench.create_stream(name, f"bench.{name}")
    plain.together(
        [
            plain.Publish(bench.server.port, f"bench.{name}", size, at * own, own, rows_per_message)
            for at, name in enumerate(names)
        ]
    )
    return names


def read(
    bench: Bench,
    streams: Sequence[str],
    size: int,
    form: str,
    rows: int,
    batch_rows: int,
    *,
    per_message: int = 1,
) -> Read:
    """Read all ``rows`` of ``streams`` into ``noop``, with the events' columns typed.

    Raises:
        AssertionError: the rows or the batches are not the requested ones.
    """
    source = (
        bench.spark.readStream.format("nats")
        .option("servers", bench.url)
        .option("stream", ",".join(streams))
        .option("format", form)
        .option("maxOffsetsPerTrigger", batch_rows // per_message)
        .schema(events.SCHEMAS[size])
        .load()
    )
    before, started_s = bench.cpu(), time.monotonic()
    batches = run_to_the_end(bench, source.writeStream.format("noop"))
    took_s, used = time.monotonic() - started_s, bench.cpu().since(before)
    assert [count for count, _ in batches] == [batch_rows] * (rows // batch_rows), batches
    return Read(
        steady=steady_rate(batches),
        whole=rows / took_s,
        cpu=used.per_million(rows),
    )


def run_to_the_end(bench: Bench, writer: DataStreamWriter) -> list[tuple[int, float]]:
    """Run a query over all that there is; the rows of each batch, and the seconds it took."""
    query = (
        writer.option("checkpointLocation", str(bench.directory / f"query-{time.monotonic_ns()}"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        if not query.awaitTermination(_QUERY_TIMEOUT_S):
            raise TimeoutError(f"a query took over {_QUERY_TIMEOUT_S} s")
    finally:
        query.stop()
    told = [json.loads(progress.json) for progress in query.recentProgress]
    return [
        (int(one["numInputRows"]), one["durationMs"]["triggerExecution"] / 1000)
        for one in told
        if one["numInputRows"]
    ]


def steady_rate(batches: Sequence[tuple[int, float]]) -> float:
    """Rows a second of all batches but the first."""
    return sum(rows for rows, _ in batches[1:]) / sum(taken_s for _, taken_s in batches[1:])
