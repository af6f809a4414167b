"""Each cell of the tables of conversions of payloads in docs/types.md."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
import pyarrow as pa

from mesh.mapping import conversions as tables
from mesh.mapping import source_mapper
from mesh.model.types import Attribute, AttributeType, StreamSchema
from tests.support.conversions import AppRefusedError, EventRefusedError, Sample, check
from tests.support.payloads import (
    NULL,
    ODD,
    REAL,
    WHOLE,
    cases,
    read,
    stream_of,
    whole,
    written,
)
from tests.support.together import together

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark_nats.conversions import ConversionCell

# JSON


class Text(str):
    """A number as a document has it."""


def document(value: Any) -> bytes:
    return b'{"a":%b}' % (value if isinstance(value, Text) else json.dumps(value)).encode()


FRACTIONS = [
    Sample(Text(text), {"string": text, "float": value, "double": value}, {
        "float": Text("1e39"), "double": Text("1e400")})
    for text, value in (("1.50", 1.5), ("-2.5E1", -25.0))
]  # fmt: skip
JSON = {
    "null": [Sample(None, NULL)],
    "true, false": [Sample(v, {"string": json.dumps(v), "bool": v}) for v in (True, False)],
    "whole number": [Sample(7, whole(7), WHOLE), Sample(-1, whole(-1), WHOLE)],
    "number with point or exponent": FRACTIONS,
    "string": [Sample(text, {"string": text}) for text in ("ä", "", "7", "true", "null")],
    "array, object": [
        Sample(Text('[1.10, {"b": 12345678901234567890}, 1e400]'),
               {"string": '[1.10,{"b":12345678901234567890},1e400]'}),
        Sample({"b": None}, {"string": '{"b":null}'}),
    ],
}  # fmt: skip


@together("mapper", ["json", "passThrough", "keyvalue", "paths"])
@together(("kind", "column", "cell", "sample"), cases(tables.JSON_READ, JSON))
def test_json_is_read_as_the_table_says(
    mapper: str, kind: str, column: str, cell: ConversionCell, sample: Sample
) -> None:
    def convert(value: Any) -> Any:
        if mapper == "paths":
            payload = b'{"e":%b}' % document(value)
            return read("json", column, payload, **{"enclosing.element": "$.e"})
        return read(mapper, column, document(value))

    check(cell, sample, column, convert)


@together("count", [1, 700])
@together(("kind", "column", "cell", "sample"), cases(tables.JSON_READ, JSON))
def test_values_of_json_do_not_depend_on_their_neighbours(
    count: int, kind: str, column: str, cell: ConversionCell, sample: Sample
) -> None:
    """Many events are read as a block; one other among them must not change its own value."""
    if column == "object":
        return
    usual = {"string": "x", "int": 1, "long": 1, "float": 1.5, "double": 1.5, "bool": True}
    source = source_mapper("json", {}, (), stream_of(column))

    def convert(value: Any) -> Any:
        others = [b'{"event":{"a":%b}}' % json.dumps(usual[column]).encode()] * count
        payload = b'{"event":%b}' % document(value)
        found = source.decode([*others, payload, *others])
        assert found.rows.num_rows == 2 * count + 1 - len(found.errors)
        if found.errors:
            raise EventRefusedError(found.errors)
        return found.rows.column(0)[count].as_py()

    check(cell, sample, column, convert)


VALUES: dict[str, list[Any]] = {
    "string": ["ä\n\"<&>", "null", ""], "int": [7, -(1 << 31)], "long": [1 << 62, -(1 << 63)],
    "float": [1.5, -0.0, float(np.float32(0.1))], "double": [0.1, 1e300, 5e-324],
    "bool": [True, False],
}  # fmt: skip
NOT_FINITE = {"float": math.nan, "double": -math.inf}


def written_samples(name: str) -> dict[str, list[Sample]]:
    """One sample for each value of a type, for tables with one row."""
    count = max(map(len, VALUES.values()))
    events = [{c: values[n % len(values)] for c, values in VALUES.items()} for n in range(count)]
    beyond = {c: {c: v} for c, v in NOT_FINITE.items()}
    return {name: [Sample(event, event, beyond) for event in [*events, NULL]]}


@together("mapper", ["json", "passThrough", "keyvalue"])
@together(
    ("kind", "column", "cell", "sample"), cases(tables.JSON_WRITTEN, written_samples("value"))
)
def test_json_is_written_as_the_table_says(
    mapper: str, kind: str, column: str, cell: ConversionCell, sample: Sample
) -> None:
    def convert(given: Any) -> Any:
        payload = written(mapper, column, given.get(column))
        event = json.loads(payload)
        value = event.get("event", event)["a"]
        assert type(value) in (type(given[column]), type(None))
        return read(mapper, column, payload)

    check(cell, sample, column, convert)


# Texts

TEXTS = {
    "whole number": [Sample(t, whole(n, t), {"float": "16777217", "int": "2147483648",
                                             "long": "9223372036854775808", "double": str(ODD)})
                     for t, n in (("7", 7), ("-12", -12), ("+5", 5), ("007", 7))],
    "number with point or exponent": [
        Sample(t, {"string": t, "float": v, "double": v}, {"float": "1e39", "double": "1e400"})
        for t, v in (("1.50", 1.5), (".5", 0.5), ("-2e1", -20.0))
    ],
    "NaN, Infinity": [
        Sample(t, {"string": t, "float": v, "double": v})
        for t, v in (("NaN", math.nan), ("-Infinity", -math.inf))
    ],
    "true, false in any case": [
        Sample(t, {"string": t, "bool": t.lower() == "true"})
        for t in ("true", "false", "TRUE", "False")
    ],
    "1, 0": [Sample(t, {**whole(int(t)), "bool": t == "1"}) for t in ("1", "0")],
    "empty text": [Sample("", {**NULL, "string": ""})],
    "other text": [Sample(t, {"string": t}) for t in ("yes", "0x10", "inf", "1_0", "1d", "ä b")],
}  # fmt: skip
FORMATS: dict[str, Callable[[str], bytes]] = {
    "csv": lambda text: text.encode() or b'""',
    "quoted csv": lambda text: f'"{text}"'.encode(),
    "xml": lambda text: f"<event><a>{text}</a></event>".encode(),
    "text": lambda text: f'a:"{text}"'.encode(),
    "keyvalue": lambda text: f"a={text.replace('+', '%2B')}".encode(),
}


@together("form", [*FORMATS, "property"])
@together(("kind", "column", "cell", "sample"), cases(tables.TEXT_READ, TEXTS))
def test_texts_are_read_as_the_table_says(
    form: str, kind: str, column: str, cell: ConversionCell, sample: Sample
) -> None:
    def convert(text: Any) -> Any:
        if form == "property":
            return read_property(column, text)
        options = {"delimiter": "~~~"} if form == "text" else {}
        return read(form.split()[-1], column, FORMATS[form](text), **options)

    check(cell, sample, column, convert)


def read_property(column: str, text: str) -> Any:
    try:
        source = source_mapper("json", {}, [("a", "trp:p")], stream_of(column))
    except ValueError as error:
        raise AppRefusedError(error) from error
    found = source.decode([b""], [{"p": text}])
    if found.errors:
        raise EventRefusedError(found.errors)
    return found.rows.column(0)[0].as_py()


@together("form", ["csv", "xml"])
@together(("kind", "column", "cell", "sample"), cases(tables.TEXT_WRITTEN, written_samples("text")))
def test_texts_are_written_as_the_table_says(
    form: str, kind: str, column: str, cell: ConversionCell, sample: Sample
) -> None:
    check(cell, sample, column, lambda v: read(form, column, written(form, column, v.get(column))))


# MessagePack

MSGPACK = {
    "nil": JSON["null"],
    "boolean": JSON["true, false"],
    "integer": JSON["whole number"],
    "float 32, float 64": [
        Sample(1.5, {"string": "1.5", "float": 1.5, "double": 1.5}, {"float": 1e39}),
        Sample(math.nan, {"string": "NaN", "float": math.nan, "double": math.nan},
               {"float": -1e300}),
    ],
    "string": JSON["string"],
    "binary": [Sample(b"\x01"), Sample(b"text")],
    "array, map": [Sample([1, {"b": None}], {"string": '[1,{"b":null}]'})],
    "timestamp": [
        Sample(msgpack.Timestamp(1, 5_000_000), whole(1005, "1970-01-01T00:00:01.005Z"), {
            "int": msgpack.Timestamp(1 << 33), "long": msgpack.Timestamp(1, 5),
            "float": msgpack.Timestamp(16777, 217_000_000),
            "double": msgpack.Timestamp(9007199254740, 993_000_000)}),
    ],
    "other extension": [Sample(msgpack.ExtType(7, b"x"))],
}  # fmt: skip


@together(("kind", "column", "cell", "sample"), cases(tables.MSGPACK_READ, MSGPACK))
def test_msgpack_is_read_as_the_table_says(
    kind: str, column: str, cell: ConversionCell, sample: Sample
) -> None:
    check(cell, sample, column, lambda v: read("msgpack", column, msgpack.packb({"a": v})))


@together("mapper", ["msgpack", "arrow"])
@together(
    ("kind", "column", "cell", "sample"),
    [
        *cases(tables.MSGPACK_WRITTEN, written_samples("value")),
        *cases(tables.ARROW_WRITTEN, written_samples("column")),
    ],
)
def test_msgpack_and_arrow_are_written_as_the_tables_say(
    mapper: str, kind: str, column: str, cell: ConversionCell, sample: Sample
) -> None:
    check(
        cell, sample, column, lambda v: read(mapper, column, written(mapper, column, v.get(column)))
    )


# Arrow


def columns(
    kinds: Sequence[Any], value: Any, inside: Mapping[str, Any], **beyond: Any
) -> list[Sample]:
    return [
        Sample((kind, value), inside, {c: (kind, v) for c, v in beyond.items()}) for kind in kinds
    ]


SHORT = [pa.int8(), pa.int16(), pa.uint8(), pa.uint16()]
ARROW = {
    "null": columns([pa.null(), pa.string(), pa.int32()][:1], None, NULL),
    "bool": columns([pa.bool_()], True, {"bool": True}),
    "int8 to int32, uint8, uint16": columns(
        [pa.int32(), pa.dictionary(pa.int8(), pa.int32())], 7, whole(7), float=(1 << 24) + 1
    ),
    "int64": columns([pa.int64()], 7, whole(7), float=(1 << 24) + 1, double=ODD),
    "uint32": columns([pa.uint32()], 7, whole(7), float=(1 << 24) + 1),
    "uint64": columns([pa.uint64()], 7, whole(7), float=(1 << 24) + 1, double=ODD),
    "halffloat, float": columns([pa.float32()], 0.5, REAL),
    "double": columns([pa.float64()], 0.5, REAL),
    "string, large_string, string_view": columns(
        [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
        "ä", {"string": "ä"},
    ),
    "binary, decimal": [
        *columns([pa.binary(), pa.large_binary(), pa.binary_view()], b"x", {}),
        *columns([pa.decimal128(10, 2)], 1, {}),
    ],
    "date, time, timestamp, duration": columns(
        [pa.date32(), pa.time64("us"), pa.timestamp("ns", "Asia/Tokyo"), pa.timestamp("ms"),
         pa.duration("s")], 7, {},
    ),
    "list, map, struct": [
        *columns([pa.list_(pa.int32())], [1], {}),
        *columns([pa.map_(pa.string(), pa.int32())], [("k", 1)], {}),
        *columns([pa.struct([("x", pa.int32())])], {"x": 1}, {}),
    ],
}  # fmt: skip


@together(("kind", "column", "cell", "sample"), cases(tables.ARROW_READ, ARROW))
def test_arrow_is_read_as_the_table_says(
    kind: str, column: str, cell: ConversionCell, sample: Sample
) -> None:
    def convert(given: Any) -> Any:
        array = pa.array([given[1]], given[0])
        sink = pa.BufferOutputStream()
        batch = pa.RecordBatch.from_arrays([array], names=["a"])
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return read("arrow", column, sink.getvalue().to_pybytes())

    check(cell, sample, column, convert)


def test_a_wrong_value_of_arrow_costs_its_row() -> None:
    whole = [1, (1 << 53) + 1, None, 3, (1 << 60) + 1]
    single = [1, 2, 3, (1 << 24) + 1, 5]
    batch = pa.RecordBatch.from_pydict({"d": whole, "f": single})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch.slice(0, 2))
        stream.write_batch(batch.slice(2))
    schema = StreamSchema(
        "S", (Attribute("d", AttributeType.DOUBLE), Attribute("f", AttributeType.FLOAT))
    )
    payload = sink.getvalue().to_pybytes()
    found = source_mapper("arrow", {}, (), schema).decode([payload, payload])
    assert found.rows.to_pylist() == 2 * [{"d": 1.0, "f": 1.0}, {"d": None, "f": 3.0}]
    assert found.message.tolist() == [0, 0, 1, 1]
    assert found.index.tolist() == [0, 2, 0, 2]
    assert [error for error in found.errors if error[0] == 1] == [
        (1, 1, 'attribute "d" is 9007199254740993, not a double'),
        (1, 3, 'attribute "f" is 16777217, not a float'),
        (1, 4, 'attribute "d" is 1152921504606846977, not a double'),
    ]


@together("mapper", ["json", "passThrough", "keyvalue"])
@together("count", [1, 700])
def test_whole_numbers_beyond_64_bits_keep_their_digits(mapper: str, count: int) -> None:
    source = source_mapper(mapper, {}, (), stream_of("double"))
    texts = [b"18446744073709551617", b"18446744073709551616", b"1" + b"0" * 22, b"1e19"]
    found = source.decode([b'{"a":%b}' % text for text in count * texts])
    assert found.rows.column(0).to_pylist() == count * [2.0**64, 1e22, 1e19]
    reason = 'attribute "a" is 18446744073709551617, not a double'
    assert found.errors == [(4 * n, 0, reason) for n in range(count)]


@together("kind", SHORT)
def test_short_integers_of_arrow_are_read(kind: Any) -> None:
    array = pa.array([7], kind)
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([array], names=["a"])
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    for column in ("int", "long", "float", "double"):
        assert read("arrow", column, sink.getvalue().to_pybytes()) == 7
