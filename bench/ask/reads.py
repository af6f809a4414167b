"""On-demand reads of one process: a point, a range, and the merge of several parts.

The executor answers from its live state, so neither NATS nor a stored state is measured.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bench.connector.harness import figure
from mesh.language.parser import parse, parse_on_demand_query
from mesh.operators.divided import divide, merge
from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind import bind, bind_on_demand

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.connector.harness import Figure

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
ALL: Final = "from A {on} within 0L, 2000000000000L per '{per}' select {select}"


def measure(*, quick: bool = False) -> list[Figure]:
    """The figures; ``quick`` for a test, with little data."""
    groups, of_range = (2_000, 20) if quick else (GROUPS, GROUPS_OF_RANGE)
    runs = 5 if quick else 51
    figures = []
    one = _filled(groups, 1)
    keys = np.random.default_rng(7).integers(0, groups, runs)
    texts = [ALL.format(on=f"on k == 'key-{key}'", per="hours", select="k, ap, sq") for key in keys]
    queries = [bind_on_demand(parse_on_demand_query(text), _APP) for text in texts]
    # The first answer makes the index.
    one.ask(queries[0], 0)
    took = [_took_ms(lambda query=query: one.ask(query, 0)) for query in queries]  # type: ignore[misc]
    name = f"one group of {groups:,}, per hour: p50"
    figures.append(median(name, took, POINT_MS))
    some = _filled(of_range, BUCKETS)
    text = ALL.format(on="", per="minutes", select="AGG_TIMESTAMP, k, ap, sq")
    query = bind_on_demand(parse_on_demand_query(text), _APP)
    assert some.ask(query, 0).num_rows == of_range * BUCKETS
    took = [_took_ms(lambda: some.ask(query, 0)) for _ in range(runs)]
    figures.append(median(f"{BUCKETS} buckets x {of_range:,} groups: p50", took, RANGE_MS))
    select = "k, sum(sq) as t, avg(ap) as a group by k order by t desc limit 10"
    text = ALL.format(on="", per="minutes", select=select)
    division = divide(bind_on_demand(parse_on_demand_query(text), _APP))
    parts = [some.ask(division.part, 0)] * PARTS
    took = [_took_ms(lambda: merge(division, parts)) for _ in range(runs)]
    figures.append(median(f"merge of {PARTS} x {of_range:,} groups: p50", took, None))
    return figures


def median(name: str, took_ms: list[float], most_ms: float | None, note: str = "") -> Figure:
    """A figure of times in milliseconds."""
    return figure(name, took_ms, "ms", target=most_ms, at_least=False, note=note)


def _took_ms(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1000


def _filled(groups: int, minutes: int) -> Executor:
    executor = Executor(_APP, ["Out"])
    fill(executor, keys_of(groups), minutes)
    return executor


def keys_of(groups: int) -> pa.Array[Any]:
    """The key of each group."""
    return pa.array([f"key-{number}" for number in range(groups)])


def fill(executor: Executor, keys: pa.Array[Any], minutes: int) -> tuple[int, int]:
    """Give an executor a cell for each key and minute; the last event's sequence and time."""
    sequence = time_ms = 0
    for minute in range(minutes):
        for first in range(0, len(keys), _BATCH):
            some = keys.slice(first, _BATCH)
            number = np.arange(len(some))
            columns: list[pa.Array[Any]] = [some, pa.array(number / 8), pa.array(number)]
            rows = pa.RecordBatch.from_arrays(columns, schema=executor.input_schemas["S"])
            time_ms = _START_MS + minute * 60_000 + first // 1_000
            run = InputRun("S", number + sequence + 1, np.full(len(some), time_ms), rows)
            executor.run([run], {"S": time_ms})
            sequence += len(some)
    return sequence, time_ms
