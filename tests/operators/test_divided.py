"""On-demand queries over several parts are answered as over one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.errors import MeshError
from mesh.language.parser import parse, parse_on_demand_query
from mesh.operators.divided import divide, merge
from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind import bind
from mesh.plan.bind.on_demand import bind_on_demand
from tests.support.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

APP = (
    "define stream S (s string, k int, l long, f float, d double, b bool); "
    "define function odd[python] return bool { return data[0] % 2 == 1 }; "
    "define table T (s string, k int, l long, f float, d double, b bool); "
    "from S insert into T;"
)
#: Rows of one part in the order of the parts, without a sort: nothing else says which are last.
QUERIES = [
    "from T",
    "from T on k > 1 select s, k + 1 as n limit 3 offset 2",
    "from T select s, d order by d desc, s limit 4",
    "from T select s as t order by k, l offset 1",
    "from T select s, k having k > 1 order by s",
    "from T select sum(k) as a, sum(l) as b, sum(f) as c, sum(d) as e, count() as n",
    "from T select min(k) as a, max(l) as b, min(f) as c, max(d) as e, minForever(d) as g",
    "from T select avg(k) as a, avg(d) as b, stdDev(d) as c, stdDev(k) as e",
    "from T select distinctCount(s) as a, distinctCount(k) as b, sum(d) as c, avg(k) as e",
    "from T select s, sum(d) / count() * 2.0 as a, odd(coalesce(k, 0)) as o, l group by s",
    "from T select k, s, distinctCount(l) as n, max(l) as m group by k, s order by n desc, m",
    "from T select s, count() as n group by s having n > 2 order by n desc, s limit 2 offset 1",
    "from T select s, k group by s order by k",
    "from T select f, b, avg(d) as a group by b, f",
    "from T select 1 as one, ifThenElse(max(k) > 2, 'high', s) as h group by s limit 0",
]
_HALVES = st.none() | st.integers(-9, 9).map(lambda n: n / 2)
_ROW = st.tuples(
    # Not the text "null", which is the same group as a null.
    st.sampled_from(["a", "b", "c", None, "ü"]),
    st.none() | st.integers(0, 4),
    st.sampled_from([0, 1, 2**62, -(2**63), None]),
    _HALVES,
    _HALVES,
    st.none() | st.booleans(),
)


def executor_of(rows: Sequence[tuple[Any, ...]]) -> Executor:
    """One part, with these rows in its table."""
    executor = Executor(bind(parse(APP)), [])
    schema = executor.input_schemas["S"]
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )
    order = np.arange(len(rows)) + 1
    executor.run([InputRun("S", order, order, batch)], {"S": len(rows) + 1})
    return executor


def _rows(table: Any) -> list[tuple[Any, ...]]:
    """Values as they compare: doubles to twelve digits, means and deviations are rounded."""
    return [
        tuple(float(f"{v:.12g}") if isinstance(v, float) else v for v in row.values())
        for row in table.to_pylist()
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=examples(12), deadline=None)
@given(parts=st.lists(st.lists(_ROW, max_size=8), min_size=1, max_size=4))
def test_several_parts_answer_as_one(query: str, parts: list[list[tuple[Any, ...]]]) -> None:
    asked = bind_on_demand(parse_on_demand_query(query), bind(parse(APP)))
    whole = executor_of([row for part in parts for row in part]).ask(asked, 0)
    division = divide(asked)
    found = merge(division, [executor_of(part).ask(division.part, 0) for part in parts])
    assert found.schema == whole.schema
    assert _rows(found) == _rows(whole)


@pytest.mark.parametrize(
    "query",
    [
        "from T select unionSet(createSet(s)) as u",
        "from T select and(b) as u",
        "from T select count() as n having sum(k) > 2",
        "from T select odd(sum(k)) as u",
        "from T select sum(k) > 1L and count() > 2L as u",
    ],
)
def test_what_can_t_be_merged_is_refused(query: str) -> None:
    asked = bind_on_demand(parse_on_demand_query(query), bind(parse(APP)))
    with pytest.raises(MeshError, match="MESH-P900"):
        divide(asked)


def test_a_failing_row_fails_the_query() -> None:
    query = "from T select sum(k) / (count() - 1L) as a"
    asked = bind_on_demand(parse_on_demand_query(query), bind(parse(APP)))
    division = divide(asked)
    part = executor_of([("a", 1, 1, 1.0, 1.0, True)]).ask(division.part, 0)
    assert (
        merge(division, [part]).to_pylist()
        == executor_of([("a", 1, 1, 1.0, 1.0, True)]).ask(asked, 0).to_pylist()
    )
