"""Rows as lists of values and rows as record batches give the same output and the same state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.operators.executor import Executor, InputRun, OutputRun
from pyspark_nats.arrow import FEW
from pyspark_nats.few_rows import FewRows, as_batch
from tests.operators.test_cases import CASES
from tests.support.recorder import END_MS, EVENT, Recorder, Step, at_once, log_of, run_in_pieces
from tools import cases

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Queries beside a partition, which name the streams.
PLAIN = "from S select k insert into M; from T select k insert into N;"
#: Queries that take lists of values.
APPS = {
    "filters": "from S[v > 0 and not (k is null)] select k, v * 2 as w, k / 2 as h, s, "
    "ifThenElse(s == 'a', 1.5, v) as x insert into M; "
    "from M[w < 9.0] select k, w, -h as h, s, x, 7L as c having x > -3.0 insert into O;",
    "length": "from S[k != 1]#window.length(3) select k, s, avg(v) as a, max(v) as hi group by s "
    "insert into O;",
    "time": "from S#window.time(20) select k, sum(k) as t, count() as c insert into O;",
    "batches": "from S#window.lengthBatch(4) select s, sum(v) as t group by s insert into O;",
    "a partition": f"{PLAIN} partition with (k of S, k of T) begin "
    "from S#window.length(2) select k, avg(v) as a insert into O; "
    "from T select k, count() as n insert into P; "
    "from every e1=S -> e2=S[v > e1.v] select e1.k, e2.s insert into Q; end;",
    "ranges": f"{PLAIN} partition with (v < 2.0 as 'low' or v > 1.0 as 'high' of S) begin "
    "from S select k, s, sum(k) as t group by s insert into #I; "
    "from #I[t > 1L] select k, t insert into O; end;",
    "purged": f"{PLAIN} @purge(enable='true', interval='1 sec', idle.period='1 sec') "
    "partition with (s of S) begin "
    "from S#window.time(20) select k, count() as n insert into O; end;",
    "a failing key": f"{PLAIN} partition with (k % k of S) begin "
    "from S select s, v insert into O; end;",
    "pattern": "from every e1=S[v > 0] -> e2=S[k == e1.k and v >= e1.v + 1] -> e3=S[s == e1.s] "
    "select e1.k, e1.s, e2.v as v2, e3.v as v3 insert into O;",
    "two inputs": "from every e1=S -> e2=T[k == e1.k] select e1.k, e1.s, e2.v insert into O; "
    "from T#window.length(2) select k, sum(v) as t insert into P;",
    "absence": "from every e1=S -> not T[k == e1.k] for 10 milliseconds "
    "select e1.v, e1.s insert into O; "
    "from every e1=S<1:2> -> e2=T select e1[0].v as a, e1[1].v as b, e2.k insert into P;",
}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have executors get few rows as lists, where they take them; the numbers of these rows."""
    found: list[int] = []
    run = Executor.run

    def run_lists(
        self: Executor, inputs: Sequence[InputRun], clocks: Any, **more: Any
    ) -> list[OutputRun]:
        given = [as_lists(one) if self.takes_few else one for one in inputs]
        found.extend(len(one.sequence) for one in given if isinstance(one.rows, FewRows))
        return [of_batches(one) for one in run(self, given, clocks, **more)]

    monkeypatch.setattr(Executor, "run", run_lists)
    return found


def as_lists(run: InputRun) -> InputRun:
    rows = run.rows
    if rows.num_rows > FEW or any(pa.types.is_binary(field.type) for field in rows.schema):
        return run
    lists = {name: rows.column(name).to_pylist() for name in rows.schema.names}
    few = FewRows(rows.schema, lists, rows.num_rows)
    return InputRun(run.stream, run.sequence, run.time_ms, few, run.chunk)


def of_batches(run: OutputRun) -> OutputRun:
    return OutputRun(run.stream, run.position, run.time_ms, as_batch(run.rows), run.order)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", APPS)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=st.lists(EVENT, max_size=30), data=st.data())
def test_lists_and_batches_give_the_same_however_the_input_is_cut(
    name: str, steps: list[Step], data: Any, taken: list[int]
) -> None:
    recorder = Recorder(APPS[name])
    assert recorder.executor.takes_few
    log = log_of(steps, recorder.inputs)
    before = len(taken)
    run_in_pieces(recorder, log, data, 0)
    recorder.run([], dict.fromkeys(recorder.inputs, END_MS))
    assert len(taken) > before or not any(log.values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executor, "takes_few", False)
        expected = at_once(APPS[name], log)
    assert sorted(recorder.rows, key=lambda row: row[0]) == expected


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES)
def test_lists_give_what_the_reference_engine_gives(case: cases.Case, taken: list[int]) -> None:
    assert cases.differences(case) == []


@pytest.mark.slow
def test_many_cases_take_lists(taken: list[int]) -> None:
    for case in [param.values[0] for param in CASES][::4]:
        assert isinstance(case, cases.Case)
        cases.differences(case)
    assert len(taken) > 20
