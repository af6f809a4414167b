"""The app that runs through the faults, its input, and its expected output.

It has a group of each kind that recovers in a way of its own: one without state in two instances,
the partitioning layer, one with state by key in two instances, and one with the order of the
stream.  Events have their own times, so the output doesn't depend on the time of processing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench.chaos import totals
from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from tools.cases import batch, collect

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The stream of the input.
INPUT: Final = "S"
KEYS: Final = 12
#: An upper bound for any run.
EVENTS_MAX: Final = 50_000
START_MS: Final = 1_700_000_000_000

#: Each stream's rows begin with a key or a constant, and the number of the event that made them.
_TEXT = """@App:name('{name}')
{source}define stream S (k string, a int, v double);
{stored}@dist(execGroup='flat', parallel='2'{front})
from S[a % 3 != 0] select k, a, v * 2.0 as w insert into Flat;
@dist(execGroup='sums', parallel='2', partitions='4'{back})
partition with (k of S) begin
  from S select k, a, count() as n, sum(v) as t insert into Counts;
end;
@dist(execGroup='whole'{back})
from S#window.length(5) select 'all' as k, a, avg(v) as m, count() as n insert into Means;
@dist(execGroup='whole'{back})
from every e1=S[a % 5 == 0] -> e2=S[v > e1.v] select 'all' as k, e2.a as a, e1.a as x
insert into Chains;
"""
#: A group whose windows end with time alone, for scenarios that jump in time.
_TIMED: Final = """@dist(execGroup='timed')
from S#window.timeBatch(1 sec) select 'all' as k, max(a) as a, count() as n insert into Seconds;
@dist(execGroup='timed')
from S#window.time(10 sec) select k, a insert expired events into Late;
"""

#: Streams with rows of parallel instances, without an order between them.
UNORDERED: Final = frozenset({"Flat"})
#: Every stream that is compared.
OUTPUTS: Final = ("Flat", "Counts", "Means", "Chains")


def text(
    name: str,
    *,
    in_sides: bool = False,
    is_timed: bool = False,
    has_standbys: bool = False,
    store: str | None = None,
) -> str:
    """The app under a name.

    Args:
        name: of the app.
        in_sides: whether events are read from a foreign JetStream stream, ``feed(name)``, through a
            receiver.  Groups with state are then for workers with the label ``side=b``, the other
            one for those with ``side=a``.
        is_timed: whether it has a group with windows of time.
        has_standbys: whether groups with state have a standby.
        store: ``@store`` of an aggregation that it has then.
    """
    if not in_sides:
        back = ", standby='1'" if has_standbys else ""
        stored = "" if store is None else totals.TEXT.format(store=store)
        plain = _TEXT.format(name=name, source="", stored=stored, front="", back=back)
        return plain + _TIMED if is_timed else plain
    source = f"@source(type='nats', stream='{feed(name)}')\n"
    sides = {"front": ", node='side=a'", "back": ", node='side=b'"}
    return _TEXT.format(name=name, source=source, stored="", **sides)


def feed(name: str) -> str:
    """The JetStream stream, and its subject, that an app with a receiver reads."""
    return f"{name}-feed"


@lru_cache(maxsize=1)
def _draws() -> tuple[Any, Any, Any]:
    chance = np.random.default_rng(11)
    times = START_MS + np.cumsum(chance.integers(1, 50, EVENTS_MAX))
    keys = chance.integers(0, KEYS, EVENTS_MAX)
    return times, keys, np.round(chance.random(EVENTS_MAX) * 100, 2)


def event(number: int) -> tuple[int, dict[str, Any]]:
    """Time in milliseconds and values of an event; the same in every run."""
    times, keys, values = _draws()
    row = {"k": f"k{keys[number]}", "a": number, "v": float(values[number])}
    return int(times[number]), row


def expected(sent: Sequence[tuple[int, dict[str, Any]]], app: str) -> dict[str, list[list[Any]]]:
    """Rows by stream that these events make: without Spark, NATS or faults.

    Args:
        sent: times in milliseconds and values, in their order.
        app: the text.
    """
    whole = plan(app).spec
    count = len(sent)
    found: dict[str, list[Any]] = {}
    for spec in whole.groups:
        outputs = [c.stream.name for c in spec.outputs]
        if INPUT in outputs or not outputs:
            # The partitioning layer only carries events on; an aggregation is asked.
            continue
        found |= {stream: [] for stream in outputs}
        bound = bind_group(spec)
        run = InputRun(
            INPUT,
            np.arange(1, count + 1),
            np.array([time_ms for time_ms, _ in sent]),
            batch(bound.stream(INPUT), [list(row.values()) for _, row in sent]),
        )
        last_ms = int(run.time_ms.max())
        collect(Executor(bound, outputs).run([run], {INPUT: last_ms}), found)
    return {stream: [row for _, row in rows] for stream, rows in found.items()}
