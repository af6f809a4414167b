"""Keyed channels: divided among virtual partitions, an app gives the same answers as a whole."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.model.app import AppSpec, Channel, GroupKind, GroupSpec, Strategy
from mesh.operators.base import CURRENT, WHOLE, EventBatch
from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from mesh.spark.partitioning import label_partitions, restrict_to_partition, split_by_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COUNT = 5
DEFINED = "@App:name('A') define stream S (k string, a int); define stream R (r int); "
#: k and a of events at one millisecond each; some have no k, some no a.
EVENTS = [
    (k, a)
    for n in range(60)
    for k, a in [(["x", "X", "y", "Y", "zz", None][n % 6], None if n % 11 == 10 else n % 9)]
]
KEYS = {
    "an attribute": "k of S",
    "a number": "a of S",
    "a computed text": "str:upper(k) of S",
    "a computed number": "a % 3 of S",
    "a function of the app": "f(k) of S",
    "ranges": "a > 5 as 'large' or a <= 5 as 'small' of S",
    "ranges that overlap": "a > 2 as 'some' or a > 5 as 'more' or a > 7 as 'most' of S",
    "ranges with one label": "a > 6 as 'edge' or a < 2 as 'edge' or a > 3 as 'upper' of S",
}
QUERIES = """
from S select k, a, count() as n, sum(a) as t insert into T;
from S#window.lengthBatch(2) select k, max(a) as n, count() as t insert into U;
"""


def app(key: str) -> str:
    function = "define function f[python] return string { return (data[0] or '-')[0].lower() }; "
    return (
        f"{DEFINED}{function}@dist(execGroup='g', parallel='2', partitions='{COUNT}') "
        f"partition with ({key}) begin {QUERIES} end;"
    )


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_divided_events_give_what_they_give_together(key: str) -> None:
    spec = plan(app(key)).spec
    group = of_queries(spec)
    channel = next(i.channel for i in group.inputs if i.strategy is Strategy.BY_KEY)
    assert channel.partitions == COUNT
    rows = batch(channel)
    whole = Counter(answers(Executor(bind_group(group), ["T", "U"]), rows, range(len(EVENTS))))
    parts: Counter[Any] = Counter()
    used = 0
    for number, chosen in split_by_partition(
        channel, filler(spec, channel).text, rows, lambda: events(rows)
    ):
        executor = Executor(restrict_to_partition(bind_group(group), number, COUNT), ["T", "U"])
        parts.update(answers(executor, rows, chosen.tolist()))
        used += 1
    assert parts == whole
    assert sum(whole.values()) > 20
    assert used > 1


def test_a_partition_owns_the_labels_that_fall_to_it() -> None:
    group = of_queries(plan(app(KEYS["ranges that overlap"])).spec)
    labels = ("some", "more", "most")
    homes = label_partitions(labels, COUNT).tolist()
    for number in range(COUNT):
        (partition,) = restrict_to_partition(bind_group(group), number, COUNT).partitions
        own = [r.label for r in partition.keys[0].ranges]
        assert own == [label for label, home in zip(labels, homes, strict=True) if home == number]


def test_an_app_without_ranges_is_every_partitions_own() -> None:
    bound = bind_group(of_queries(plan(app(KEYS["a computed text"])).spec))
    assert restrict_to_partition(bound, 1, COUNT) is bound


def test_two_streams_meet_whose_keys_are_alike() -> None:
    text = (
        f"{DEFINED}@dist(execGroup='g', parallel='2', partitions='{COUNT}') "
        "partition with (a % 4 of S, r of R) begin from R select r, count() as n insert into T; "
        "from S select a, count() as n insert into U; end;"
    )
    spec = plan(text).spec
    channels = {i.channel.stream.name: i.channel for i in of_queries(spec).inputs}
    rows = batch(channels["S"])
    homes = {}
    for number, chosen in split_by_partition(
        channels["S"], filler(spec, channels["S"]).text, rows, lambda: events(rows)
    ):
        for row in chosen.tolist():
            a = rows.column("a")[row].as_py()
            if a is not None:
                homes[a % 4] = number
    other = pa.RecordBatch.from_pydict({"r": list(homes)}, schema=channels["R"].stream.arrow)
    for number, chosen in split_by_partition(channels["R"], "", other, lambda: events(other)):
        for row in chosen.tolist():
            assert homes[other.column("r")[row].as_py()] == number


def of_queries(spec: AppSpec) -> GroupSpec:
    return next(g for g in spec.groups if g.kind is GroupKind.QUERIES)


def filler(spec: AppSpec, channel: Channel) -> GroupSpec:
    return next(g for g in spec.groups if channel in g.outputs)


def batch(channel: Channel) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {"k": [k for k, _ in EVENTS], "a": [a for _, a in EVENTS]}
    return pa.RecordBatch.from_pydict(columns, schema=channel.stream.arrow)


def events(rows: pa.RecordBatch) -> EventBatch:
    n = rows.num_rows
    at = np.arange(n, dtype=np.int64)
    zero = np.zeros(n, dtype=np.int64)
    kind = np.full(n, CURRENT, dtype=np.int8)
    return EventBatch(at, at, at, zero, zero, kind, np.full(n, WHOLE, dtype=np.int64), rows)


def answers(executor: Executor, rows: pa.RecordBatch, chosen: Sequence[int]) -> Iterator[Any]:
    at = np.array(list(chosen), dtype=np.int64)
    run = InputRun("S", at, at, rows.take(at), None)
    for made in executor.run([run], {"S": len(EVENTS)}):
        yield from ((made.stream, *row.values()) for row in made.rows.to_pylist())
