"""On-demand reads of one process: a point, a range, and the merge of several parts.

The executor answers from its live state, so neither NATS nor a stored state is measured.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bench.connector.harness import Figure
from mesh.language.parser import parse, parse_on_demand_query
from mesh.operators.divided import divide
from mesh.operators.executor import Executor, InputRun
from mesh.operators.merged import merge
from mesh.plan.bind import bind, bind_on_demand

if TYPE_CHECKING:
    from collections.abc import Callable

GROUPS: Final = 1_000_000
BUCKETS: Final = 60
GROUPS_OF_RANGE: Final = 1_000
PARTS: Final = 4
#: Upper bounds of the medians, milliseconds.
POINT_MS: Final = 5.0
RANGE_MS: Final = 100.0

_APP: Final = bind(
    parse(
        "define stream S (k string, p double, q long); define aggregation A from S select k, "
        "avg(p) as ap, sum(q) as sq group by k aggregate every sec...year; "
        "from S[p > 1000.0] select k insert into Out;"
    )
)
_START_MS: Final = 1_700_000_040_000
_BATCH: Final = 50_000
_ALL: Final = "from A {on} within 0L, 2000000000000L per '{per}' select {select}"


def measure(*, quick: bool = False) -> list[Figure]:
    """The figures; ``quick`` for a test, with little data."""
    groups, of_range = (2_000, 20) if quick else (GROUPS, GROUPS_OF_RANGE)
    runs = 5 if quick else 51
    figures = []
    one = _filled(groups, 1)
    keys = np.random.default_rng(7).integers(0, groups, runs)
    texts = [
        _ALL.format(on=f"on k == 'key-{key}'", per="hours", select="k, ap, sq") for key in keys
    ]
    queries = [bind_on_demand(parse_on_demand_query(text), _APP) for text in texts]
    # The first answer makes the index.
    one.ask(queries[0], 0)
    took = [_took_ms(lambda query=query: one.ask(query, 0)) for query in queries]  # type: ignore[misc]
    name = f"one group of {groups:,}, per hour: p50"
    figures.append(_figure(name, took, POINT_MS))
    some = _filled(of_range, BUCKETS)
    text = _ALL.format(on="", per="minutes", select="AGG_TIMESTAMP, k, ap, sq")
    query = bind_on_demand(parse_on_demand_query(text), _APP)
    assert some.ask(query, 0).num_rows == of_range * BUCKETS
    took = [_took_ms(lambda: some.ask(query, 0)) for _ in range(runs)]
    figures.append(_figure(f"{BUCKETS} buckets x {of_range:,} groups: p50", took, RANGE_MS))
    select = "k, sum(sq) as t, avg(ap) as a group by k order by t desc limit 10"
    text = _ALL.format(on="", per="minutes", select=select)
    division = divide(bind_on_demand(parse_on_demand_query(text), _APP))
    parts = [some.ask(division.part, 0)] * PARTS
    took = [_took_ms(lambda: merge(division, parts)) for _ in range(runs)]
    figures.append(_figure(f"merge of {PARTS} x {of_range:,} groups: p50", took, None))
    return figures


def _figure(name: str, took_ms: list[float], most_ms: float | None) -> Figure:
    median = statistics.median(took_ms)
    return Figure(name, median, "ms", most_ms, at_least=False, runs=tuple(took_ms))


def _took_ms(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1000


def _filled(groups: int, minutes: int) -> Executor:
    """An executor with a cell for each group and minute."""
    executor = Executor(_APP, ["Out"])
    schema = executor.input_schemas["S"]
    sequence = 0
    for minute in range(minutes):
        for first in range(0, groups, _BATCH):
            count = min(_BATCH, groups - first)
            columns: list[pa.Array[Any]] = [
                pa.array([f"key-{number}" for number in range(first, first + count)]),
                pa.array(np.arange(count) / 8),
                pa.array(np.arange(count)),
            ]
            order = np.arange(count) + sequence + 1
            sequence += count
            time_ms = _START_MS + minute * 60_000 + first // 1_000
            rows = pa.RecordBatch.from_arrays(columns, schema=schema)
            executor.run([InputRun("S", order, np.full(count, time_ms), rows)], {"S": time_ms})
    return executor
