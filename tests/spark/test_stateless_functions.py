"""Stateless queries in Spark: Catalyst and our kernels compute one and the same."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh import java
from mesh.functions.objects import from_binary
from mesh.language.parser import parse
from mesh.model.cluster import Assignment
from mesh.operators.expressions import compile_expression
from mesh.operators.frame import Frame
from mesh.plan.bind import bind
from mesh.plan.build import plan
from mesh.spark import stateless
from mesh.spark.expressions import is_native, to_column
from mesh.spark.stateless import numbered
from mesh.spark.wiring import METADATA, Wiring
from pyspark_nats.encode import to_json
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STREAM = (
    "define stream S (i int, i2 int, l long, l2 long, f float, f2 float, d double, d2 double, "
    "b bool, b2 bool, s string, s2 string); "
)
NAN, INF = math.nan, math.inf
VALUES: dict[str, list[Any]] = {
    "i": [0, 1, -1, 2**31 - 1, -(2**31), 7, None],
    "l": [0, 1, -1, 2**63 - 1, -(2**63), 16777217, None],
    "f": [0.0, -0.0, 1.5, NAN, INF, -INF, 3.4028235e38, 16777216.0, 1e-45, None],
    "d": [0.0, -0.0, 2.5, NAN, INF, -INF, 1.7976931348623157e308, 5e-324, 0.1, None],
    "b": [True, False, None],
    "s": ["", "a", "b", "Ä", None],
}
NATIVE = [
    *(f"{x} {op} {y}" for op in "+-*/%" for x in "ilfd" for y in ("i2", "f2", "d2")),
    *(
        f"{x} {op} {y}"
        for op in ("<", "<=", ">", ">=", "==", "!=")
        for x in "ilfd"
        for y in ("i2", "l2", "f2", "d2")
    ),
    "s == s2", "s != s2", "b == b2", "b != b2", "b and b2", "b or b2", "not b", "not (d > d2)",
    "d is null", "(f / f2) > d", "f / f2 + f", "l % l2", "l / l2",
    "coalesce(d, d2)", "coalesce(b, b2)", "coalesce(s, s2)", "default(s, 'z')", "default(i, 3)",
    "ifThenElse(b, d, d2)", "ifThenElse(b, b, b2)", "ifThenElse(i > 0, s, s2)",
    "maximum(i, i2)", "minimum(i, i2)",
]  # fmt: skip
NOW_MS = 1_570_442_400_000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from mesh.spark.session import CONF

    scratch = tmp_path_factory.mktemp("spark")
    before = dict(os.environ)
    os.environ["JAVA_HOME"] = str(java.java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join((str(ROOT / "connectors"), str(ROOT)))
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
    )
    for key, value in CONF.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def rows() -> pa.RecordBatch:
    rng = np.random.default_rng(7)
    schema = bind(parse(f"{STREAM} from S select i insert into T;")).stream("S").arrow
    columns = []
    for field in schema:
        values = VALUES[field.name[0]]
        chosen = [values[k] for k in rng.integers(0, len(values), 400)]
        columns.append(pa.array(chosen, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def frame_of(spark: SparkSession, rows: pa.RecordBatch) -> DataFrame:
    """``rows`` as the source gives them, each a message of its own."""
    count = rows.num_rows
    numbers = pa.array(range(1, count + 1), pa.int64())
    times = pa.array([NOW_MS] * count, pa.int64())
    metadata = {
        "_sequence": numbers,
        "_index": pa.array([0] * count, pa.int32()),
        "_timestamp_ms": times,
        "_event_time_ms": pa.nulls(count, pa.int64()),
        "_error": pa.nulls(count, pa.string()),
        "_data": pa.nulls(count, pa.binary()),
    }
    arrays: list[Any] = [*rows.columns, *metadata.values()]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, [*rows.schema.names, *metadata]))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (
            a == b and math.copysign(1, a) == math.copysign(1, b)
        )
    return type(a) is type(b) and bool(a == b)


def test_catalyst_has_the_results_of_the_kernels(spark: SparkSession, rows: pa.RecordBatch) -> None:
    from pyspark.sql import functions as F

    outputs = ", ".join(f"{call} as x{n}" for n, call in enumerate(NATIVE))
    query = bind(parse(f"{STREAM} from S select {outputs} insert into T;")).queries[0]
    assert is_native(query)
    columns = [
        to_column(o.expression, lambda c: F.col(c.name)).alias(o.name) for o in query.outputs
    ]
    found = frame_of(spark, rows).select("_sequence", *columns).orderBy("_sequence").toArrow()
    there = Frame.of_rows(rows)
    for output, call in zip(query.outputs, NATIVE, strict=True):
        ours = compile_expression(output.expression)(there).spread(rows.num_rows)
        expected = ours.to_arrow(rows.num_rows)
        column = found.column(output.name).combine_chunks()
        assert column.type == expected.type, call
        for row, (a, b) in enumerate(zip(column.to_pylist(), expected.to_pylist(), strict=True)):
            assert same(a, b), (call, rows.slice(row, 1).to_pylist(), a, b)


APP = """@App:name('A')
define stream S (i int, s string);
define function twice[python] return int {
    return 2 * data[0]
};
@info(name='q')
from S[str:length(s) > 0]
select i, twice(i) as t, math:parseInt(s) as n, createSet(s) as o, UUID() as u,
    currentTimeMillis() as c
insert into Out;
"""


def test_what_catalyst_has_not_our_kernels_compute(spark: SparkSession) -> None:
    group = plan(APP).spec.groups[0]
    wiring = Wiring(group, Assignment("i1", "A", group.name, 1, "a1", "w", 1, 1))
    (one,) = numbered(wiring)
    leg = one.leg
    assert not is_native(leg.queries[0])
    events: list[dict[str, Any]] = [
        {"i": 1, "s": "5"},
        {"i": 2, "s": ""},
        {"i": None, "s": "6"},
        {"i": 4, "s": "x"},
    ]
    rows = pa.RecordBatch.from_pylist(events, leg.input.channel.stream.arrow)
    made = stateless._query(wiring, leg.queries[0], one, frame_of(spark, rows)).toArrow()
    assert made.column_names == ["i", "t", "n", "o", "u", "c", *METADATA]
    told = made.select(["i", "t", "n", "c", "_sequence"]).to_pylist()
    assert told[0] == {"i": 1, "t": 2, "n": 5, "c": NOW_MS, "_sequence": 1}
    assert [list(o) for o in from_binary(made.column("o").combine_chunks().slice(0, 1))] == [["5"]]
    failed = {row["_sequence"]: row for row in made.to_pylist() if row["_error"] is not None}
    assert sorted(failed) == [3, 4]
    assert 'function "twice" failed in line 2 (return 2 * data[0])' in failed[3]["_error"]
    assert failed[4]["_error"] == "'x' is no whole number to base 10"
    assert failed[4]["_data"] == b'{"i":4,"s":"x"}'
    again = stateless._query(wiring, leg.queries[0], one, frame_of(spark, rows)).toArrow()
    assert again.column("u").to_pylist() == made.column("u").to_pylist()


def test_catalyst_writes_the_json_of_our_encoder(spark: SparkSession, rows: pa.RecordBatch) -> None:
    names = ["i", "l", "f", "d", "b", "s"]
    app = f"@App:name('A') {STREAM} from S select {', '.join(names)} insert into T;"
    group = plan(app).spec.groups[0]
    wiring = Wiring(group, Assignment("i1", "A", group.name, 1, "a1", "w", 1, 1))
    frame = stateless.build(wiring, lambda _: frame_of(spark, rows))
    written = frame.orderBy("position").select("data").toArrow().column("data").to_pylist()
    for by_catalyst, by_us in zip(written, to_json(rows.select(names)).to_pylist(), strict=True):
        assert by_catalyst is not None
        assert by_us is not None
        one, other = json.loads(by_catalyst), json.loads(by_us)
        assert list(one) == list(other) == names
        # Each writes the shortest text for a float, which as a double is another number.
        floats = [None if v["f"] is None else np.float32(v["f"]) for v in (one, other)]
        assert floats[0] == floats[1]
        assert one | {"f": None} == other | {"f": None}
