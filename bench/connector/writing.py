"""Writing rows with Spark, beside plain programs that publish prebuilt messages.

The rows are read from Spark's cache, and the time of that alone is printed as well.  Ours and the
limit write to the same kind of stream: one, written by both partitions or both programs.  The limit
is the better of one program and two.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Final

from bench.connector import plain
from bench.connector.harness import figure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from bench.connector.harness import Bench, Figure

ROWS: Final = 1_000_000
#: Arrow messages are so quick that a million rows would measure the start of the query.
ARROW_ROWS: Final = 4_000_000
ROWS_PER_MESSAGE: Final = 1000
_SIZE: Final = 70
_PARTITIONS: Final = 2

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"

_TARGETS: Final = {AT_LEAST_ONCE: 0.85, EXACTLY_ONCE: 0.45}
_TARGET_ARROW: Final = 1_500_000.0

#: In turns, because the speed of a machine drifts.
_TURNS: Final = ("one", "two", AT_LEAST_ONCE, EXACTLY_ONCE, "atomic",
                 EXACTLY_ONCE, AT_LEAST_ONCE, "two", "one",
                 AT_LEAST_ONCE, EXACTLY_ONCE, "atomic", "two")  # fmt: skip

_count = itertools.count()


def measure(bench: Bench) -> list[Figure]:
    """One event a message with both guarantees, then a thousand a message."""
    rows = _cached(bench, ROWS)
    payloads = rows.selectExpr("to_json(struct(*)) AS data").cache()
    payloads.count()
    source_s = [_timed(lambda: _nowhere(payloads)) for _ in range(2)]
    for guarantee in _TARGETS:
        _written(bench, payloads, ROWS, deliveryGuarantee=guarantee)
    rates: dict[str, list[float]] = {turn: [] for turn in _TURNS}
    notes: dict[str, str] = {}
    for turn in _TURNS:
        if turn in _TARGETS:
            rate, notes[turn] = _written(bench, payloads, ROWS, deliveryGuarantee=turn)
        else:
            rate = _published(bench, turn)
        rates[turn].append(rate)
    payloads.unpersist()
    figures = [
        figure("limit: one program that publishes", rates["one"], "rows/s"),
        figure("limit: two programs that publish", rates["two"], "rows/s"),
        figure("two programs, atomic batches", rates["atomic"], "rows/s"),
    ]
    limit = max(one.value for one in figures[:2])
    figures += [
        figure(
            f"write, {guarantee}, of the limit", rates[guarantee], "rows/s",
            limit=limit, target=target, note=notes[guarantee],
        )
        for guarantee, target in _TARGETS.items()
    ]  # fmt: skip
    typed = [
        _written(bench, rows, ROWS, deliveryGuarantee=EXACTLY_ONCE, format="json")[0]
        for _ in range(2)
    ]
    rows.unpersist()
    figures += [
        figure("write, exactly-once, typed columns as JSON", typed, "rows/s", limit=limit),
        figure("the source of these rows alone", [ROWS / s for s in source_s], "rows/s"),
    ]
    return [*figures, *_arrow(bench)]


def _arrow(bench: Bench) -> list[Figure]:
    rows = _cached(bench, ARROW_ROWS)
    runs: list[float] = []
    note = ""
    for turn in range(4):
        rate, note = _written(
            bench, rows, ARROW_ROWS,
            deliveryGuarantee=EXACTLY_ONCE, format="arrow", rowsPerMessage=str(ROWS_PER_MESSAGE),
        )  # fmt: skip
        # The first pays for compilation.
        if turn:
            runs.append(rate)
    rows.unpersist()
    name = f"write, exactly-once, Arrow, {ROWS_PER_MESSAGE} rows a message"
    return [figure(name, runs, "rows/s", target=_TARGET_ARROW, note=note)]


def _cached(bench: Bench, count: int) -> DataFrame:
    """The events as typed columns, in memory, in two partitions."""
    rows = (
        bench.spark.range(0, count, 1, _PARTITIONS)
        .selectExpr(
            "format_string('dev-%04d', id % 1000) AS device",
            "round((id * 7 % 1500) / 100 + 10.01, 2) AS temp",
            "cast(10 + id % 40 AS int) AS room",
            "1763712000000 + id AS at",
            "id % 7 != 0 AS ok",
        )
        .cache()
    )
    assert rows.count() == count
    return rows


def _stream(bench: Bench) -> str:
    name = f"WRITE_{next(_count)}"
    bench.create_stream(name, f"bench.{name}")
    return name


def _written(bench: Bench, rows: DataFrame, count: int, **options: str) -> tuple[float, str]:
    """Write ``rows`` to a new stream; rows a second, and the processor time it took.

    Raises:
        AssertionError: the stream does not have the written rows.
    """
    name = _stream(bench)

    def work() -> float:
        writer = rows.write.format("nats").options(**options)
        writer = writer.option("servers", bench.url).option("stream", name)
        return _timed(writer.option("subject", f"bench.{name}").mode("append").save)

    rate, used = bench.rate(count, work)
    held = _arrow_rows(bench, name) if options.get("format") == "arrow" else bench.messages(name)
    assert held == count, f"{held} rows of {count}, written with {options}"
    bench.delete_stream(name)
    return rate, used.per_million(count)


def _arrow_rows(bench: Bench, name: str) -> int:
    """The rows in a stream of Arrow messages, which are fewer than a message could hold."""
    reader = bench.spark.read.format("nats").option("servers", bench.url).option("stream", name)
    return reader.option("format", "arrow").schema("at long").load().count()


def _published(bench: Bench, turn: str) -> float:
    """Rate of plain programs that write to a new stream, rows a second."""
    name = _stream(bench)
    port, subject = bench.server.port, f"bench.{name}"
    half = ROWS // 2
    jobs: Sequence[plain.Job]
    if turn == "one":
        jobs = [plain.Publish(port, subject, _SIZE, 0, ROWS)]
    elif turn == "two":
        jobs = [plain.Publish(port, subject, _SIZE, at, half) for at in (0, half)]
    else:
        jobs = [plain.PublishAtomically(port, subject, _SIZE, at, half) for at in (0, half)]
    took_s = plain.together(jobs)
    assert bench.messages(name) == ROWS
    bench.delete_stream(name)
    return ROWS / took_s


def _nowhere(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _timed(work: Callable[[], None]) -> float:
    started_s = time.monotonic()
    work()
    return time.monotonic() - started_s
