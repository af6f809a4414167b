"""Questions for one group of an aggregation find what a look at all cells finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.functions.vectors import constant
from mesh.language.parser import parse, parse_on_demand_query
from mesh.model.types import AttributeType
from mesh.operators.aggregations import find
from mesh.operators.executor import Executor, InputRun
from mesh.operators.select.groups import Groups
from mesh.plan.bind import bind
from mesh.plan.bind.on_demand import bind_on_demand
from tests.support.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.plan.bound import BoundApp

STREAM = "define stream S (s string, k int, l long, v int); "
TAIL = "aggregate every sec...min; from S[v > 99] select s insert into O;"
APPS = {
    "text": f"{STREAM}define aggregation A from S select s as n, sum(v) as t group by s {TAIL}",
    "numbers": f"{STREAM}define aggregation A from S select k, l, sum(v) as t group by k, l {TAIL}",
    "mixed, purged": f"{STREAM}@purge(interval='2 sec') define aggregation A from S select s, k, "
    f"sum(v) as t group by s, k {TAIL}",
}
QUESTIONS = {
    "text": [
        "n == 'a'",
        "'null' == n and t > 1L",
        "n == 'z'",
        "not (n == 'a')",
        "n == 'a' or t > 1L",
    ],
    "numbers": [
        "k == 1 and l == 2",
        "l == 2L and k == 0",
        "k == 1",
        "k == 1 and l == 1 and l == 2L",
    ],
    "mixed, purged": ["s == 'a' and k == 1", "s == 'b' and 2 == k", "s == 'a' and k == 1L"],
}
_ROW = st.tuples(
    st.sampled_from(["a", "b", "null", None]),
    st.sampled_from([0, 1, 2, None]),
    st.sampled_from([1, 2, None]),
    st.integers(0, 3),
    st.integers(0, 90_000),
)


def _run(executor: Executor, rows: Sequence[tuple[Any, ...]], sequence: int, now_ms: int) -> int:
    schema = executor.input_schemas["S"]
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(c, f.type) for c, f in zip(columns[:-1], schema, strict=True)]
    times = now_ms + np.cumsum(np.array(columns[-1], dtype=np.int64))
    order = np.arange(len(rows)) + sequence
    run = InputRun("S", order, times, pa.RecordBatch.from_arrays(arrays, schema=schema))
    executor.run([run], {"S": int(times[-1])})
    return int(times[-1])


def _ask(executor: Executor, app: BoundApp, on: str, per: str) -> list[Any]:
    query = f"from A on {on} within 0L, 10000000000L per '{per}'"
    rows = executor.ask(bind_on_demand(parse_on_demand_query(query), app), 0).to_pylist()
    return sorted(map(str, rows))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", list(APPS))
@settings(max_examples=examples(25), deadline=None)
@given(batches=st.lists(st.lists(_ROW, min_size=1, max_size=8), min_size=1, max_size=6))
def test_one_group_is_found_as_all_are(name: str, batches: list[list[tuple[Any, ...]]]) -> None:
    app = bind(parse(APPS[name]))
    executor = Executor(app, ["O"])
    now_ms, sequence = 1_000_000, 1
    for rows in batches:
        now_ms = _run(executor, rows, sequence, now_ms)
        sequence += len(rows)
        for on in QUESTIONS[name]:
            for per in ("sec", "min"):
                found = _ask(executor, app, on, per)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(find, "_groups_allowed", lambda *_: None)
                    assert found == _ask(executor, app, on, per), (on, per)


def test_the_group_of_a_key() -> None:
    types = (AttributeType.STRING, AttributeType.DOUBLE)
    for nulls_are_text in (True, False):
        groups = Groups(types, nulls_are_text=nulls_are_text)
        texts: list[Any] = ["a", None, "null", "ü", "a"]
        numbers: list[Any] = [1.0, None, -0.0, float("nan"), 0.0]
        keys = [constant(t, types[0]) for t in texts], [constant(n, types[1]) for n in numbers]
        none = np.zeros(1, dtype=np.int64)
        known = [
            groups.number([text, number], none, none.astype(np.int8))[0]
            for text, number in zip(*keys, strict=True)
        ]
        assert known == list(range(5))
        found = [groups.find([text, number]) for text, number in zip(*keys, strict=True)]
        assert found == known
        assert groups.find([keys[0][0], keys[1][2]]) == -1
        assert groups.find([constant("b", types[0]), keys[1][0]]) == -1
    assert Groups(types[1:]).find([keys[1][0]]) == -1
