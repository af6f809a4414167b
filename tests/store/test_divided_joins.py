"""Partitions of a group that joins its aggregation in one database find together what one finds.

Each has its own marker and reads, and ends anywhere while the others write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from mesh.model.app import Strategy
from mesh.model.partition import partitions
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from mesh.spark.partitioning import restrict_to_partition
from tests.store.test_bucket_reads import Event, Life, events_of
from tests.support.databases import new_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.model.app import GroupSpec
    from tests.support.databases import DatabaseServer

COUNT = 4
APP = """
@App:name('A')
define stream S (k string, n int, v double, since long);
define stream Q (k string, n int, v double, since long);
@dist(execGroup='g', parallel='2', partitions='4') {store} @purge(enable='false')
define aggregation A from S
select k, n as m, sum(n) as t, avg(v) as a, count() as c, min(v) as lo, v as last,
distinctCount(v) as d group by n, k
aggregate every sec...hour;
@dist(execGroup='g', parallel='2', partitions='4')
from Q join A on Q.k == A.k within 0L, 9000000L per 'min'
select A.AGG_TIMESTAMP as b, A.k as k, A.m as m, A.t as t, A.a as a, A.c as c insert into O;
@dist(execGroup='g', parallel='2', partitions='4')
from A right outer join Q on A.k == Q.k and A.t > Q.n within 0L, 9000000L per 'hours'
select A.AGG_TIMESTAMP as b, Q.k as k, A.m as m, A.t as t, A.last as a, A.d as c insert into O;
@dist(execGroup='g', parallel='2', partitions='4') partition with (k of Q, k of S) begin
from Q[n > 0]#window.length(2) join A on A.m < Q.n and A.k == Q.k
within Q.since, 9000000L per 'seconds'
select A.AGG_TIMESTAMP as b, A.k as k, A.m as m, A.t as t, A.lo as a, sum(A.c) as c insert into O;
from S join A on A.k == S.k and A.m == S.n within 0L, 9000000L per 'sec'
select A.AGG_TIMESTAMP as b, A.k as k, A.m as m, A.t as t, A.a as a, A.c as c insert into O;
end;
"""


def group_of(store: str) -> GroupSpec:
    return next(g for g in plan(APP.format(store=store)).spec.groups if g.name == "g")


def whole(events: list[Event]) -> list[str]:
    """The rows that one instance without a store finds."""
    life = Life("", events, bind_group(group_of("")))
    life.run(len(events))
    return life.found


@pytest.fixture
def parts() -> Iterator[list[Life]]:
    made: list[Life] = []
    yield made
    for part in made:
        part.close()


def begin(parts: list[Life], store: str, events: list[Event]) -> None:
    group = group_of(store)
    keys = {i.channel.key for i in group.inputs if i.strategy is Strategy.BY_KEY}
    assert keys == {("k",)}
    place = partitions([pa.array([e[2] for e in events], pa.string())], COUNT)
    for number in range(COUNT):
        own = [e for e, at in zip(events, place.tolist(), strict=True) if at == number]
        app = restrict_to_partition(bind_group(group), number, COUNT)
        parts.append(Life("", own, app, salt=f"A/g/{number}"))
    assert sum(bool(part.events) for part in parts) > 2


@pytest.fixture(
    params=["", "postgresql", pytest.param("mariadb", marks=pytest.mark.thorough)],
    ids=lambda kind: kind or "state",
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """``@store`` of a database with a server; empty for rows in the state."""
    if not request.param:
        return ""
    server: DatabaseServer = request.getfixturevalue(request.param)
    return new_database(server, tmp_path, "dividedjoins").store()


@pytest.mark.slow
@pytest.mark.sampled(2)
def test_partitions_that_end_anywhere_find_what_one_finds(store: str, parts: list[Life]) -> None:
    events = events_of(80, 5)
    begin(parts, store, events)
    chance = np.random.default_rng(7)
    for part in parts:
        part.run(0)
    ends = 0
    while waiting := [part for part in parts if part.at < len(part.events)]:
        part = waiting[chance.integers(len(waiting))]
        steps, again, writes, keeps = chance.integers(0, [7, 4, 2, 2]).tolist()
        stop = min(part.at + 1 + steps, len(part.events))
        ends_here = bool(store and again)
        part.run(stop, writes=bool(writes) or not ends_here, keeps=bool(keeps))
        if ends_here:
            ends += 1
            part.end()
            while part.at < stop:
                is_kept, is_written = chance.integers(0, 2, 2).tolist()
                at = min(part.at + again, stop)
                part.run(at, writes=bool(is_written), keeps=bool(is_kept))
    found = sorted(row for part in parts for row in part.found)
    assert found == whole(events)
    assert len(found) > 200
    assert ends > 10 or not store
