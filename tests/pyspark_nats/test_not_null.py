"""NOT NULL inside of structs, arrays and maps: an event with a null there can't be read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import types as sql

from pyspark_nats.arrow import arrow, ipc_stream
from pyspark_nats.source import source_options
from pyspark_nats.source.messages import Messages
from pyspark_nats.source.typed_rows import is_strict, nulls_inside, typed
from pyspark_nats.sql_types import event_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


def schema_of(*, nullable: bool) -> sql.StructType:
    item = sql.StructType([sql.StructField("x", sql.LongType(), nullable)])
    return sql.StructType(
        [
            sql.StructField("id", sql.IntegerType()),
            sql.StructField(
                "a",
                sql.StructType(
                    [
                        sql.StructField("zip", sql.IntegerType(), nullable),
                        sql.StructField("town", sql.StringType()),
                    ]
                ),
            ),
            sql.StructField("list", sql.ArrayType(sql.IntegerType(), nullable)),
            sql.StructField("map", sql.MapType(sql.StringType(), sql.IntegerType(), nullable)),
            sql.StructField("items", sql.ArrayType(item)),
        ]
    )


GOOD: dict[str, Any] = {
    "a": {"zip": 1, "town": None}, "list": [1, 2], "map": {"k": 1}, "items": [{"x": 1}, None],
}  # fmt: skip
NULLS: dict[str, Any] = {"a": None, "list": None, "map": None, "items": None}
BAD: dict[str, dict[str, Any]] = {
    "a.zip": {"a": {"zip": None, "town": "t"}},
    "list[]": {"list": [1, None]},
    "map.*": {"map": {"k": None}},
    "items[].x": {"items": [None, {"x": 1}, {"x": None}]},
}


def as_arrow(event: dict[str, Any]) -> bytes:
    schema = event_schema(schema_of(nullable=True).fields)
    maps = {k: [*v.items()] if isinstance(v, dict) and k == "map" else v for k, v in event.items()}
    return ipc_stream(pa.RecordBatch.from_pylist([maps], schema=schema))


ENCODERS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "json": lambda event: json.dumps(event).encode(),
    "msgpack": msgpack.packb,
    "arrow": as_arrow,
}


def read(form: str, events: list[dict[str, Any]]) -> Any:
    """The result of events, each in a message."""
    given = {"servers": "nats://h", "stream": "S", "format": form, "corrupt": "drop"}
    function = typed(source_options.source_options(given), schema_of(nullable=False))
    payloads = pa.array([ENCODERS[form](event) for event in events], pa.binary())
    count = len(events)
    texts = pa.array([b""] * count, pa.binary()), pa.array(["s"] * count)
    times = np.zeros(count, np.int64)
    messages = Messages(
        "S", np.arange(count), lambda: payloads, lambda: texts[0], lambda: texts[1], lambda: times
    )
    (batch,) = function(messages)
    batch.validate(full=True)
    return batch, function.decoded(messages).errors


@pytest.mark.parametrize("form", ENCODERS)
@pytest.mark.parametrize("copies", [1, 60])
def test_a_null_inside_of_what_is_not_null_is_a_bad_event(form: str, copies: int) -> None:
    events: list[dict[str, Any]] = [{**GOOD, "id": 0}, {**NULLS, "id": 1}]
    for more in BAD.values():
        events += [{**GOOD, **more, "id": 2}, {**GOOD, "id": 3}]
    batch, errors = read(form, events * copies)
    assert batch.column("id").to_pylist() == [0, 1, 3, 3, 3, 3] * copies
    reasons = [f'attribute "{path}" is null, and the schema has it as not null' for path in BAD]
    assert [reason for _, _, reason in errors] == reasons * copies
    good = batch.to_pylist()[0]
    assert good == {"id": 0, **GOOD, "map": [("k", 1)]}


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_a_field_that_is_missing_is_null(form: str) -> None:
    _, errors = read(form, [{**GOOD, "a": {"town": "t"}}])
    assert [reason for _, _, reason in errors] == [
        'attribute "a.zip" is null, and the schema has it as not null'
    ]


INNER = pa.struct([pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.string())])
KINDS: dict[str, Any] = {
    "struct": INNER,
    "list": pa.list_(pa.field("item", INNER)),
    "map": arrow.map_(pa.string(), pa.field("value", INNER, nullable=False)),
    "lists": pa.list_(pa.field("item", pa.list_(pa.field("item", INNER, nullable=False)))),
}
_inner = st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 3), "y": st.just("t")})
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "struct": _inner,
    "list": st.none() | st.lists(_inner, max_size=3),
    "map": st.none() | st.lists(st.tuples(st.sampled_from("ab"), _inner), max_size=2),
    "lists": st.none() | st.lists(st.none() | st.lists(_inner, max_size=2), max_size=2),
}


def paths_of(kind: str, value: Any) -> set[str]:
    """Paths of the nulls that a value may not have, found one by one."""
    if value is None:
        return set()
    match kind:
        case "struct":
            return {".x"} if value["x"] is None else set()
        case "list":
            return {f"[]{path}" for one in value for path in paths_of("struct", one)}
        case "map":
            nulls = {".*" for _, one in value if one is None}
            return nulls | {f".*{path}" for _, one in value for path in paths_of("struct", one)}
        case _:
            pass
    nulls = {"[][]" for some in value for one in some or () if one is None}
    return nulls | {f"[]{path}" for some in value for path in paths_of("list", some)}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_nulls_are_found_as_one_by_one_in_any_slice(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES[kind], max_size=8))
    start = data.draw(st.integers(0, len(values)))
    column = pa.array(values, KINDS[kind]).slice(start)
    assert is_strict(column.type)
    found: dict[int, set[str]] = {}
    for rows, path in nulls_inside("v", column):
        for row in rows.tolist():
            found.setdefault(row, set()).add(path.removeprefix("v"))
    expected = {row: paths_of(kind, value) for row, value in enumerate(values[start:])}
    assert found == {row: paths for row, paths in expected.items() if paths}


@pytest.mark.spark
@pytest.mark.nats
@pytest.mark.slow
def test_a_null_field_fails_a_query_of_spark_or_is_dropped(
    spark: SparkSession, broker: Any
) -> None:
    broker.create("S")
    broker.publish("ev.S", '{"a":{"zip":7}}', '{"a":{"zip":null}}', '{"a":null}')
    given = {
        **broker.given,
        "stream": "S",
        "format": "json",
        "schema": "a struct<zip:int not null>",
    }
    reader = spark.read.format("nats").options(**given)
    with pytest.raises(PySparkException, match=r'attribute "a.zip" is null, and the schema has it'):
        reader.load().collect()
    rows = reader.option("corrupt", "drop").load().select("a", "a.zip").collect()
    assert rows == [((7,), 7), (None, None)]
    column = reader.option("corrupt", "column").load().select("a.zip", "_error").collect()
    assert [row.zip for row in column] == [7, None, None]
    assert [bool(row["_error"]) for row in column] == [False, True, False]
