"""Joins with an aggregation in one of several partitions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.operators.executor import Executor, InputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from mesh.spark.partitioning import restrict_to_partition
from tools.cases import batch

if TYPE_CHECKING:
    from mesh.model.stored import Clause

APP = """
@App:name('A')
define stream S (k string, j string, a int);
define stream Q (k string, j string);
@dist(execGroup='g'{parallel}) {store}
define aggregation A from S select k, j, sum(a) as t group by k, j aggregate every min;
@dist(execGroup='g'{parallel}) {query};
"""
ROWS: list[list[str | None]] = [["x", "null"], ["null", "y"], [None, "y"], ["", "y"]]
PLAIN = (
    "from Q join A on A.j == Q.j and A.k == Q.k within 0L, 9000000L per 'min' "
    "select Q.k as k, A.t as t insert into Out"
)
INSIDE = f"partition with (k of Q, k of S) begin {PLAIN}; end"


def _no_rows(schema: pa.Schema, _: Clause) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)


def outputs(query: str, parallel: str, store: str = "") -> dict[str, list[dict[str, Any]]]:
    """The rows by stream after an event of each of ``ROWS``, and a question for each."""
    text = APP.format(query=query, parallel=parallel, store=store)
    group = next(g for g in plan(text).spec.groups if g.name == "g")
    app = restrict_to_partition(bind_group(group), 3, 8 if parallel else 1)
    executor = Executor(app, ["Out", FAILED])
    for reads in executor.bucket_reads:
        reads.find_rows = partial(_no_rows, reads.table.arrow)
        reads.marker = lambda: -1
    events = batch(app.stream("S"), [[*row, 1] for row in ROWS])
    asks = batch(app.stream("Q"), ROWS)
    first, then = np.arange(1, 5), np.arange(11, 15)
    made = executor.run([InputRun("S", first, first, events), InputRun("Q", then, then, asks)],
                        {"S": 20, "Q": 20})  # fmt: skip
    return {out.stream: out.rows.to_pylist() for out in made}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("query", [PLAIN, INSIDE], ids=["plain", "in a partition"])
@pytest.mark.parametrize("parallel", ["", ", parallel='2'"], ids=["one", "several"])
def test_the_text_null_finds_its_own_group(query: str, parallel: str) -> None:
    found = outputs(query, parallel)
    assert FAILED not in found
    assert sorted((row["k"], row["t"]) for row in found["Out"]) == [("", 1), ("null", 1), ("x", 1)]


def test_the_text_null_fails_where_a_part_of_its_group_would_be_found_in_a_database() -> None:
    store = "@store(type='rdbms', jdbc.url='jdbc:postgresql://h/d', username='u', password='p')"
    (failed,) = outputs(PLAIN, ", parallel='2'", store)[FAILED]
    assert "the text 'null' is the group of events without a value too" in failed["reason"]
    assert '"k":"null"' in failed["event"]
