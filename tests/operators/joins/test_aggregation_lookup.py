"""Joins with an aggregation in one of several partitions."""

from __future__ import annotations

import numpy as np
import pytest

from mesh.operators.executor import Executor, InputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from mesh.spark.partitioning import restrict_to_partition
from tools.cases import batch

APP = """
@App:name('A')
define stream S (k string, j string, a int);
define stream Q (k string, j string);
@dist(execGroup='g'{parallel})
define aggregation A from S select k, j, sum(a) as t group by k, j aggregate every min;
@dist(execGroup='g'{parallel}) {query};
"""
ROWS: list[list[str | None]] = [["x", "null"], ["null", "y"], [None, "y"], ["", "y"]]
PLAIN = (
    "from Q join A on A.j == Q.j and A.k == Q.k within 0L, 9000000L per 'min' "
    "select Q.k as k, A.t as t insert into Out"
)
INSIDE = f"partition with (k of Q, k of S) begin {PLAIN}; end"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("query", [PLAIN, INSIDE], ids=["plain", "in a partition"])
@pytest.mark.parametrize("parallel", ["", ", parallel='2'"], ids=["one", "several"])
def test_the_text_null_fails_where_a_part_of_its_group_would_be_found(
    query: str, parallel: str
) -> None:
    text = APP.format(query=query, parallel=parallel)
    group = next(g for g in plan(text).spec.groups if g.name == "g")
    app = restrict_to_partition(bind_group(group), 3, 8 if parallel else 1)
    executor = Executor(app, ["Out", FAILED])
    events = batch(app.stream("S"), [[*row, 1] for row in ROWS])
    asks = batch(app.stream("Q"), ROWS)
    first, then = np.arange(1, 5), np.arange(11, 15)
    made = executor.run([InputRun("S", first, first, events), InputRun("Q", then, then, asks)],
                        {"S": 20, "Q": 20})  # fmt: skip
    found = {out.stream: out.rows.to_pylist() for out in made}
    others = [{"k": "x", "t": 1}, {"k": "", "t": 1}]
    if not parallel:
        assert FAILED not in found
        assert [row for row in found["Out"] if row["k"] != "null"] == others
        assert [row for row in found["Out"] if row["k"] == "null"] == [{"k": "null", "t": 2}]
        return
    assert found["Out"] == others
    (failed,) = found[FAILED]
    assert "the text 'null' is the group of events without a value too" in failed["reason"]
    assert '"k":"null"' in failed["event"]
