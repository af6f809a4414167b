"""Queries that read state written by others: in bulk, cut and restored they agree with stepwise."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from mesh.language.parser import parse_app
from mesh.operators.executor import ExecutionMode, Executor, InputRun
from mesh.plan.bind import bind
from tests.support.joins import DEFINITIONS, random_steps, run

APPS = {
    "a table that one query fills": "define table T (k string, v int); "
    "from R select k, w as v insert into T; "
    "from L join T on L.k == T.k select L.k as k, T.v, L.t insert into O;",
    "a table that rows leave": "define table T (k string, v int); "
    "from L join T on L.k == T.k select L.k as k, T.v, L.t insert into O; "
    "from R select k, w as v insert into T; from Q[v > 3] delete T on T.k == k;",
    "a key and timers": "@PrimaryKey('k') define table T (k string, v int); "
    "from L[(k in T)] select k, v, t insert into O; "
    "from L#window.time(20) as x join T on x.k == T.k select x.k as k, T.v, x.t "
    "insert all events into O; from R select k, w as v update or insert into T on T.k == k;",
    "batches between": "define table T (k string, v int); "
    "from R#window.time(15) select k, w as v insert expired events into T; "
    "from L#window.lengthBatch(2) select k, v, t insert into A; "
    "from A join T on A.k == T.k select A.k as k, T.v, A.t insert into O; "
    "from L select k, v, t insert into O; from Q select k, v, 0L as t insert into O;",
    "a table that its readers fill": "define table T (k string, v int); "
    "from L[not (k in T)] select k, v insert into T; "
    "from L join T on L.k == T.k select L.k as k, T.v, L.t insert into O; "
    "from O[v > 2] select k, v, t insert into P; from P select k, v insert into T;",
    "a query that fills what it looks at": "define table T (k string, v int); "
    "from L[not (T.k == k in T)] select k, v insert into T; "
    "from Q join T on Q.k == T.k select Q.k as k, T.v, 0L as t insert into O;",
    "a query that counts what it fills": "define table T (k string, v int); "
    "from L[not (T.v == v in T)] select k, v insert into T; "
    "from L[(T.v == v in T)] select k, v, t insert into O;",
    "a named window": "define window W (k string, v int) length(3) output all events; "
    "from R select k, w as v insert into W; "
    "from L as x join W as y on x.k == y.k select x.k as k, y.v as v, x.t as t insert into O; "
    "from W select k, v, 1L as t insert all events into O;",
    "a named window that its reader's stream fills": "define window W (k string, v int) time(20); "
    "from L select k, v insert into W; "
    "from L as x join W as y on x.k == y.k select x.k as k, y.v as v, x.t as t insert into O;",
    "windows on both sides": "define window W (k string, v int) time(20) output all events; "
    "from R select k, w as v insert into W; from Q select k, v insert into W; "
    "from L as x full outer join W as y on x.k == y.k select x.k as k, y.v as v, x.t as t "
    "insert all events into O; from L#window.time(30) as x join W as y on x.k == y.k "
    "select x.k as k, y.v as v, x.t as t insert into O;",
    "a partition that looks": "define table T (k string, v int); partition with (k of L) begin "
    "from L#window.time(20) select k, count() as v, t insert all events into #I; "
    "from #I join T on #I.v < T.v select #I.k as k, T.v, #I.t insert into O; end; "
    "from R select k, w as v insert into T;",
    "a partition that changes and looks": "define table T (k string, v int); "
    "partition with (k of L) begin from L select k, v insert into T; "
    "from L join T on L.v == T.v select L.k as k, T.v, L.t insert into O; end; "
    "from R select k, w as v insert into T;",
    "a partition whose output changes what it looks at": "define table T (k string, v int); "
    "partition with (k of L) begin from L select k, v insert into A; "
    "from L join T on L.v == T.v select L.k as k, T.v, L.t insert into O; end; "
    "from A select k, v insert into T; from R select k, w as v insert into T;",
    "a partition that changes and looks, between others": "define table T (k string, v int); "
    "from R select k, w as v insert into T; "
    "partition with (k of L, k of Q) begin from L#window.time(20) select k, v insert into T; "
    "from L join T on L.v == T.v select L.k as k, T.v, L.t insert into #I; "
    "from #I select k, v, t insert into O; from #I select k, v, t insert into O; "
    "from Q[v > 2] select k, v, 0L as t insert into O; "
    "from Q#window.sort(2, v) as x join L#window.length(2) as y on x.v == y.v "
    "select x.k as k, x.v as v, y.t as t insert into O; end; "
    "from O join T on O.k == T.k select O.k as k, T.v, O.t insert into P; "
    "from R#window.length(2) select k, w as v, 2L as t insert all events into O;",
    "a partition that changes": "define table T (k string, v int); "
    "partition with (k of R) begin from R select k, w as v insert into T; end; "
    "from L join T on L.k == T.k select L.k as k, T.v, L.t insert into O; "
    "from L#window.timeBatch(40) as x join T as y on x.k == y.k select x.k as k, y.v as v, x.t "
    "insert into O;",
    "a join that goes step by step": "define table T (k string, v int); "
    "from L#window.sort(3, t) as x join R#window.time(30) as y on x.k == y.k "
    "select x.k as k, y.w as v, x.t insert all events into A; "
    "from A[v > 1] select k, v insert into T; "
    "from Q join T on Q.k == T.k select Q.k as k, T.v, 0L as t insert into O; "
    "from A select k, v, t insert into O;",
    "a circle": "from L select k, v, t insert into A; "
    "from A[v < 4] select k, v + 1 as v, t insert into B; from B select k, v, t insert into A; "
    "from A#window.length(2) select k, sum(v) as v, t insert into P; "
    "from P[v > 3] select k, convert(v, 'int') as v, t insert into O; "
    "from R select k, w as v, 0L as t insert into O;",
    "a query that feeds itself, with timers": "from L select k, v, t insert into A; "
    "from A[v < 4]#window.timeBatch(20) select k, v + 1 as v, t insert into A; "
    "from A#window.time(30) select k, v, t insert all events into O; "
    "from O#window.length(2) select k, v, t insert expired events into P; "
    "from R select k, w as v, 0L as t insert into A;",
    "two circles and a table": "define table T (k string, v int); "
    "from L[not (T.v == v in T)] select k, v, t insert into A; "
    "from A[v < 4] select k, v + 1 as v, t insert into A; from A select k, v insert into T; "
    "from Q select k, v, 0L as t insert into B; from B join T on B.k == T.k "
    "select B.k as k, T.v, B.t insert into O; from B[v < 3] select k, v + 2 as v, t insert into B; "
    "from R select k, w as v, 0L as t insert into B;",
    "a circle through a partition": "from L select k, v, t insert into A; "
    "partition with (k of A) begin from A[v < 4] select k, v + 1 as v, t insert into B; "
    "from A#window.length(2) select k, v, t insert into O; end; "
    "from B select k, v, t insert into A;",
    "a key that one query updates and another looks up": "@PrimaryKey('k') "
    "define table T (k string, v int); from L select k, v update or insert into T on T.k == k; "
    "from L join T on L.k == T.k select L.k as k, T.v, L.t insert into O; "
    "from Q[not (T.k == k in T)] select k, v, 0L as t insert into O;",
    "a key that is looked up before it is updated": "define table T (k string, v int); "
    "from L join T on L.k == T.k select L.k as k, T.v, L.t insert into O; "
    "from L[v > 1] select k, v insert into T;",
    "a key with two parts": "@PrimaryKey('k', 'v') define table T (k string, v int, w int); "
    "from R select k, w as v, w update or insert into T on T.k == k and T.v == v; "
    "from L join T on L.k == T.k and L.v == T.v select L.k as k, T.w as v, L.t insert into O; "
    "from Q join T on Q.k == T.k select Q.k as k, T.v, 1L as t insert into O;",
    "a key that the update changes": "define table T (k string, v int); "
    "from R select k, w as v insert into T; "
    "from L join T on L.v == T.v select L.k as k, T.v, L.t insert into O; "
    "from Q select k, v update T set T.v = 3 on T.v == v;",
    "a query that counts in a table": "@PrimaryKey('k') define table T (k string, v int); "
    "from R select k, w as v insert into T; from L join T on L.k == T.k "
    "select L.k as k, T.v + 1 as v, L.t insert into A; "
    "from L join T on L.k == T.k select L.k as k, T.v + 1 as v update T on T.k == k; "
    "from A select k, v, t insert into O;",
    "keys that are read by one attribute and written by another": ""
    "define table T (k string, v int); from L select k, v insert into T; "
    "from L[not (T.v == v in T)] select k, v, t insert into O; "
    "from Q[((T.k == k and T.v == v) in T)] select k, v, 0L as t insert into O;",
    "rows that two queries write by key": "define table T (k string, v int); "
    "from L[not (T.k == k in T)] select k, v insert into T; "
    "from R select k, w as v update T set T.v = v on T.k == k; "
    "from Q[v > 3] delete T on T.k == k; "
    "from L join T on L.k == T.k select L.k as k, T.v, L.t insert into O; "
    "from Q[v == 1] select k insert into B; "
    "from B join T select B.k as k, T.v, 2L as t insert into O;",
    "rows with a key that two queries write": "@PrimaryKey('k') define table T (k string, v int); "
    "from L[not (T.k == k in T)] select k, v insert into T; "
    "from R select k, w as v update T set T.v = v on T.k == k; "
    "from Q[v > 3] delete T on T.k == k; "
    "from L join T on L.k == T.k select L.k as k, T.v, L.t insert into O; "
    "from Q[v == 1] select k insert into B; "
    "from B join T select B.k as k, T.v, 2L as t insert into O;",
    "a key and a limit": "define table T (k string, v int); "
    "from L select k, count() as n, v group by k insert into A; "
    "from A select k, v insert into T; from Q select k, v delete T on T.k == k; "
    "from L left outer join T on L.k == T.k select L.k as k, T.v, L.t limit 1 insert into O;",
    "timers of all kinds": "define trigger G at every 17 milliseconds; "
    "define table T (k string, v int); from G select 'a' as k, 3 as v insert into T; "
    "from L join T on L.k == T.k select L.k as k, T.v, L.t insert into O; "
    "from every a=L -> b=R select a.k as k, b.w as v insert into T; "
    "from R#window.time(25) select k, w as v, 5L as t output all every 30 milliseconds "
    "insert all events into P; from P join T on P.k == T.k select P.k as k, T.v, P.t "
    "insert into O; from P[v > 3] delete T on T.k == k;",
}


@pytest.mark.sampled(27)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", APPS)
def test_what_looks_at_what_others_change_does_so_in_order(name: str, seed: int) -> None:
    app = f"{DEFINITIONS}{APPS[name]}"
    steps = random_steps(seed, "LRQ", 50)
    whole = run(app, steps, ExecutionMode.STEP, set())
    assert run(app, steps, ExecutionMode.AUTO, set()) == whole
    rnd = random.Random(seed)
    cuts = {n for n in range(1, len(steps)) if rnd.random() < 0.3}
    assert run(app, steps, ExecutionMode.AUTO, cuts, saves=True) == whole


def test_a_query_alone_sees_what_it_has_put_into_a_table() -> None:
    text = "define stream S (k string); define table T (k string); "
    app = bind(parse_app(f"{text} from S[not (T.k == k in T)] select k insert into T;"))
    executor = Executor(app, [])
    rows = pa.RecordBatch.from_arrays([pa.array(list("abacab"))], schema=app.stream("S").arrow)
    executor.run([InputRun("S", np.arange(6), 1000 + np.arange(6), rows)], {"S": 5000})
    pieces = executor.snapshot().pieces
    (name,) = (name for name in pieces if name.startswith("tables/T/rows"))
    assert pieces[name].column("k").to_pylist() == ["a", "b", "c"]
