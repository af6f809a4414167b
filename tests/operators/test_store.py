"""Rows of tables: the same however they are put, and a state that changes where they do."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.functions.vectors import from_arrow
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.operators.executor import ExecutionMode
from mesh.operators.tables import Table
from tests.support.joins import DEFINITIONS, random_steps, run


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(10))
def test_tables_are_the_same_however_the_input_is_cut(seed: int) -> None:
    rnd = random.Random(seed)
    key = rnd.choice(("", "@PrimaryKey('k') ", "@PrimaryKey('k', 'v') ", "@Index('v') "))
    app = (
        f"{DEFINITIONS} {key}define table T (k string, v int, n long); "
        "from R select k, w as v, 0L as n insert into T; "
        "from Q select k, v, 1L as n update or insert into T set T.n = n + v on T.k == k; "
        "from Q[v > 3] delete T on T.v == v; "
        "from L join T on L.k == T.k or L.v < T.v select L.k as k, T.v, T.n insert into O;"
    )
    steps = random_steps(seed, "LRQ", 60)
    whole = run(app, steps, ExecutionMode.AUTO, set())
    cuts = {n for n in range(1, len(steps)) if rnd.random() < 0.3}
    assert run(app, steps, ExecutionMode.AUTO, cuts, saves=True) == whole


def test_a_tables_state_changes_only_where_rows_do() -> None:
    schema = StreamSchema(
        "T", (Attribute("k", AttributeType.STRING), Attribute("v", AttributeType.INT))
    )
    table = Table(schema, ("k",), ("v",))

    def rows(start: int, stop: int) -> pa.RecordBatch:
        keys = [f"k{n}" for n in range(start, stop)]
        arrays: list[pa.Array[Any]] = [
            pa.array(keys),
            pa.array([n % 7 for n in range(start, stop)], pa.int32()),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)

    assert table.insert(rows(0, 5000)) == {}
    before = set(table.snapshot().pieces)
    assert table.insert(rows(4999, 5001)) == {
        0: "table \"T\" has a row with the primary key 'k4999'"
    }
    after = set(table.snapshot().pieces)
    assert len(before) == 5
    assert len(before - after) == 1
    table.remove(np.arange(4500))
    assert len(table) == 501
    again = Table(schema, ("k",), ("v",))
    again.restore(table.snapshot())
    assert again.rows().equals(table.rows())
    assert again.by_index("v", 3).tolist() == table.by_index("v", 3).tolist()


def test_rows_that_are_put_at_once_are_put_one_after_the_other() -> None:
    rnd = random.Random(1)
    types = (AttributeType.STRING, AttributeType.INT, AttributeType.DOUBLE)
    attributes = tuple(Attribute(n, t) for n, t in zip("kvd", types, strict=True))
    schema = StreamSchema("T", attributes)
    rows = [
        (rnd.choice(("a", "b", "c", None)), rnd.choice((1, 2, None)), rnd.random())
        for _ in range(40)
    ]
    one, all_ = (Table(schema, ("k",)) for _ in range(2))
    for start in range(0, 40, 8):
        columns = zip(*rows[start : start + 8], strict=True)
        arrays = [pa.array(c, a.type.arrow) for c, a in zip(columns, attributes, strict=True)]
        vectors = [from_arrow(c, a.type) for c, a in zip(arrays, attributes, strict=True)]
        assert all_.put_all(vectors, 8)
        for row in range(8):
            assert one.put([vector.take(np.array([row])) for vector in vectors]) is None
        assert all_.rows() == one.rows()
        assert all_.snapshot().pieces.keys() == one.snapshot().pieces.keys()
        assert all_.snapshot().scalars == one.snapshot().scalars
