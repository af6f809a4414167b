"""Attributes of every type: accepted values, errors of the others, and agreement of all paths."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_nats import decode
from pyspark_nats.decode import rules

pytestmark = pytest.mark.usefixtures("in_blocks")

AT = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")
ADDRESS = pa.struct([("zip", pa.int32()), ("city", pa.string())])


def decoded(
    payloads: list[bytes], schema: pa.Schema, kind: str = "json", missing: str = "error"
) -> decode.DecodeResult:
    content_type = pa.array([f"application/{kind}"] * len(payloads), pa.string())
    return decode.decode_messages(
        pa.array(payloads, pa.binary()), content_type, schema, missing=missing
    )


def instant(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]  # of any precision


READABLE: list[tuple[Any, bytes, object]] = [
    (AT, b'"2026-11-21T09:30:00Z"', instant(2026, 11, 21, 9, 30)),
    (AT, b'"2026-11-21 09:30:00.123456+02:00"', instant(2026, 11, 21, 7, 30, 0, 123456)),
    (AT, b'"2026-11-21T09:30:00.123456789Z"', instant(2026, 11, 21, 9, 30, 0, 123456)),
    (AT, b'"2026-11-21T09:30"', instant(2026, 11, 21, 9, 30)),
    (AT, b'"2026-11-21"', instant(2026, 11, 21)),
    (AT, b"1763717400", instant(2025, 11, 21, 9, 30)),
    (LOCAL, b'"2026-11-21T09:30:00.5"', datetime(2026, 11, 21, 9, 30, 0, 500000)),  # noqa: DTZ001
    (pa.date32(), b'"2026-11-21"', date(2026, 11, 21)),
    (pa.binary(), b'"AP8="', b"\0\xff"),
    (pa.binary(), b'""', b""),
    (pa.decimal128(10, 2), b"1.10", Decimal("1.10")),
    (pa.decimal128(10, 2), b'"-1.5"', Decimal("-1.50")),
    (pa.decimal128(10, 2), b"42.000", Decimal("42.00")),
    (pa.decimal128(38, 18), b"0.123456789012345678", Decimal("0.123456789012345678")),
    (pa.decimal128(38, 0), b"12345678901234567890123", Decimal("12345678901234567890123")),
    (pa.list_(pa.int64()), b"[1,null,3]", [1, None, 3]),
    (pa.list_(pa.list_(pa.string())), b'[["a"],[],null]', [["a"], [], None]),
    (ADDRESS, b'{"zip":1,"city":"x","more":[]}', {"zip": 1, "city": "x"}),
    (pa.list_(ADDRESS), b'[{"zip":1,"city":null},null]', [{"zip": 1, "city": None}, None]),
    (pa.map_(pa.string(), pa.int64()), b'{"a":1,"b":null}', [("a", 1), ("b", None)]),
    (pa.struct([("at", AT), ("raw", pa.binary())]), b'{"at":"2026-11-21","raw":"QUI="}',
     {"at": instant(2026, 11, 21), "raw": b"AB"}),
    (pa.list_(pa.date32()), b'["2026-11-21"]', [date(2026, 11, 21)]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "value"), READABLE)
def test_readable_values(kind: pa.DataType, text: bytes, value: object) -> None:
    found = decoded([b'{"v":' + text + b"}", b'{"v":null}'], pa.schema([("v", kind)]))
    assert found.errors == []
    assert found.rows.column("v").to_pylist() == [value, None]
    assert found.rows.column("v").type == kind


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (AT, b'"tomorrow"', 'attribute "v" is "tomorrow", not a timestamp'),
        (AT, b"1763717400000", 'attribute "v" is 1763717400000, not a timestamp'),
        (AT, b"1763717400.5", 'attribute "v" is 1763717400.5, not a timestamp'),
        (AT, b"true", 'attribute "v" is true, not a timestamp'),
        (AT, b'"2026-02-30T00:00:00Z"', 'attribute "v" is "2026-02-30T00:00:00Z", not a timestamp'),
        (AT, b'"0000-01-01"', 'attribute "v" is "0000-01-01", not a timestamp'),
        (LOCAL, b'"2026-11-21T09:30:00Z"',
         'attribute "v" is "2026-11-21T09:30:00Z", not a timestamp_ntz'),
        (LOCAL, b"5", 'attribute "v" is 5, not a timestamp_ntz'),
        (pa.date32(), b'"21.11.2026"', 'attribute "v" is "21.11.2026", not a date'),
        (pa.date32(), b"20000", 'attribute "v" is 20000, not a date'),
        (pa.binary(), b'"AP8"', 'attribute "v" is "AP8", not a binary'),
        (pa.binary(), b'"A=8="', 'attribute "v" is "A=8=", not a binary'),
        (pa.decimal128(4, 2), b"1.005", 'attribute "v" is 1.005, not a decimal(4,2)'),
        (pa.decimal128(4, 2), b"100", 'attribute "v" is 100, not a decimal(4,2)'),
        (pa.decimal128(4, 2), b'"1_0"', 'attribute "v" is "1_0", not a decimal(4,2)'),
        (pa.list_(pa.int32()), b"5", 'attribute "v" is 5, not an array'),
        (pa.list_(pa.int32()), b'[1,"x"]', 'attribute "v[1]" is "x", not an int'),
        (ADDRESS, b'{"zip":"x","city":"y"}', 'attribute "v.zip" is "x", not an int'),
        (ADDRESS, b'{"zip":1}', 'attribute "v.city" is missing'),
        (ADDRESS, b"[]", 'attribute "v" is [], not a struct'),
        (pa.list_(ADDRESS), b'[{"zip":1,"city":"a"},{"city":"b"}]',
         'attribute "v[1].zip" is missing'),
        (pa.map_(pa.string(), pa.int64()), b'{"a":"b"}', 'attribute "v.a" is "b", not a long'),
        (pa.map_(pa.string(), pa.int64()), b'[{"key":"a","value":1}]',
         'attribute "v" is [{"key":"a","value":1}], not a map'),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_by_its_place(kind: pa.DataType, text: bytes, reason: str) -> None:
    found = decoded([b'{"v":null}', b'{"v":' + text + b"}"], pa.schema([("v", kind)]))
    assert found.rows.num_rows == 1
    assert found.errors == [(1, 0, reason)]


def test_what_is_missing_may_stand_for_null() -> None:
    schema = pa.schema([("id", pa.int64()), ("address", ADDRESS)])
    payloads = [b'{"id":1}', b'{"address":{"zip":5}}', b'{"id":"x"}', b"{}"]
    found = decoded(payloads, schema, missing="null")
    assert found.rows.to_pylist() == [
        {"id": 1, "address": None},
        {"id": None, "address": {"zip": 5, "city": None}},
        {"id": None, "address": None},
    ]
    assert found.errors == [(2, 0, 'attribute "id" is "x", not a long')]
    packed = [msgpack.packb(orjson.loads(payload)) for payload in payloads]
    again = decoded(packed, schema, "msgpack", "null")
    assert again.rows.equals(found.rows)
    assert again.errors == found.errors


def test_messagepack_has_octets_and_times_of_its_own() -> None:
    fields: list[Any] = [("raw", pa.binary()), ("at", AT), ("price", pa.decimal128(9, 2))]
    schema = pa.schema(fields)
    at = msgpack.Timestamp(1763717400, 123_456_789)
    payloads = [
        msgpack.packb({"raw": b"\0\xff", "at": at, "price": 1.1}),
        msgpack.packb({"raw": "AP8=", "at": "2026-11-21", "price": "2.20"}),
        msgpack.packb({"raw": b"", "at": 1.5, "price": 0}),
    ]
    found = decoded(payloads, schema, "msgpack")
    assert found.rows.to_pylist() == [
        {"raw": b"\0\xff", "at": instant(2025, 11, 21, 9, 30, 0, 123456), "price": Decimal("1.10")},
        {"raw": b"\0\xff", "at": instant(2026, 11, 21), "price": Decimal("2.20")},
    ]
    assert found.errors == [(2, 0, 'attribute "at" is 1.5, not a timestamp')]


def test_a_value_never_goes_on_in_the_next_message() -> None:
    # Together they are three objects, each of them is none.
    payloads = [b'{"id":1}{"id":2}', b'{"id":3,"z":', b'{"id":4}}']
    found = decoded(payloads, pa.schema([("id", pa.int64())]))
    assert found.rows.num_rows == 0
    assert [error[0] for error in found.errors] == [0, 1, 2]


def test_an_ignored_attribute_must_be_json_too() -> None:
    schema = pa.schema([("id", pa.int64())])
    for word in (b"NaN", b"-Inf", b"Infinity", b'"\xff"'):
        found = decoded([b'{"id":1,"z":2}', b'{"id":2,"z":[' + word + b"]}"], schema)
        assert found.rows.column("id").to_pylist() == [1]
        assert [error[0] for error in found.errors] == [1]
    assert decoded([b'{"id":1,"z":"In NaN, Info"}'], schema).errors == []


# --- Whole blocks and single events, by the same rules


FIELDS: list[Any] = [
    ("n", pa.int32()), ("x", pa.float64()), ("f", pa.float32()), ("s", pa.string()),
    ("at", AT), ("ntz", LOCAL), ("day", pa.date32()), ("raw", pa.binary()),
    ("d", pa.decimal128(6, 2)), ("l", pa.list_(pa.float64())), ("o", ADDRESS),
    ("t", pa.list_(AT)), ("ol", pa.list_(pa.struct([("b", pa.bool_()), ("d", pa.date32())]))),
    ("m", pa.map_(pa.string(), pa.int64())), ("deep", pa.struct([("in", ADDRESS)])),
]  # fmt: skip
TWO = st.integers(0, 99).map("{:02d}".format)
DAYS = st.one_of(
    st.dates().map(date.isoformat),
    st.builds("{}-{}-{}".format, st.sampled_from(["0000", "0001", "2020", "9999"]), TWO, TWO),
)
TIMES = st.one_of(
    DAYS,
    st.builds(
        "{}{}{}{}{}".format, DAYS, st.sampled_from("T t"),
        st.sampled_from(["05", "05:06", "05:06:07", "23:59:59", "24:00:00", "23:59:60", "5:6", ""]),
        st.sampled_from(["", "", ".5", ".123456", ".1234567", ".", ",5"]),
        st.sampled_from(
            ["", "Z", "z", "+01", "+01:30", "-0130", "+23:59", "+24:00", "-00:60", " Z", "UTC"]
        ),
    ),
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-(2**65), 2**65).map(str), st.floats(allow_nan=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.sampled_from(["-0", "-0.0", "0.00", "1e2", "1E-2", "-1.5e+1", "1e400", "NaN", "9999.99",
                     "99999", "10000", "1.10", "01", ".5", "5.", "+1", "1e-7", "0e9", "1_0"]),
)  # fmt: skip
ENCODED = st.one_of(
    st.binary(max_size=5).map(lambda octets: base64.b64encode(octets).decode()),
    st.sampled_from(
        ["A", "AA==", "AB==", "A===", "=AAA", "AA=A", "AA==AAAA", "AA-_", "AAA=", "é€"]
    ),
)
TEXTS = st.one_of(TIMES, NUMBERS, ENCODED, st.text(max_size=4)).map(json.dumps)
SCALARS = st.one_of(TEXTS, NUMBERS, st.sampled_from(["null", "true", "false"]))
OBJECTS = st.dictionaries(
    st.sampled_from(["zip", "city", "b", "d", "in", "key", "value", "q"]), SCALARS, max_size=3
).map(lambda items: "{" + ",".join(f"{json.dumps(k)}:{v}" for k, v in items.items()) + "}")
VALUES = st.one_of(
    SCALARS, OBJECTS, st.lists(SCALARS | OBJECTS, max_size=3).map(lambda v: f"[{','.join(v)}]")
)
#: Values that are most often right, so that whole blocks are.
RIGHT: dict[str, st.SearchStrategy[str]] = {
    "n": st.integers(-9, 9).map(str), "x": NUMBERS, "f": NUMBERS,
    "s": st.text(max_size=3).map(json.dumps),
    "at": TIMES.map(json.dumps), "ntz": TIMES.map(json.dumps), "day": DAYS.map(json.dumps),
    "raw": ENCODED.map(json.dumps), "d": NUMBERS | NUMBERS.map(json.dumps),
    "l": st.lists(NUMBERS | st.just("null"), max_size=3).map(lambda v: f"[{','.join(v)}]"),
    "o": st.builds('{{"zip":{},"city":{}}}'.format, st.integers(-9, 9), TEXTS),
    "t": st.lists(TIMES.map(json.dumps), max_size=2).map(lambda v: f"[{','.join(v)}]"),
    "ol": st.lists(st.builds('{{"b":true,"d":{}}}'.format, DAYS.map(json.dumps)), max_size=2).map(
        lambda v: f"[{','.join(v)}]"
    ),
    "m": OBJECTS, "deep": st.builds('{{"in":{}}}'.format, OBJECTS | st.just("null")),
}  # fmt: skip


def _by_the_rules(
    payloads: list[bytes], schema: pa.Schema, missing: str, events_of: Any
) -> tuple[list[Any], list[tuple[int, int, str]]]:
    """Every event alone."""
    by_rules = rules.rules(schema, missing)
    rows: list[Any] = []
    errors: list[tuple[int, int, str]] = []
    for number, payload in enumerate(payloads):
        for place, event in enumerate(events_of(payload)):
            row = event if isinstance(event, str) else rules.row_of(event, by_rules, missing)
            if isinstance(row, str):
                errors.append((number, place, row))
                continue
            arrays = [pa.array([v], f.type) for v, f in zip(row, schema, strict=True)]
            rows.append((number, place, *(repr(array[0].as_py()) for array in arrays)))
    return rows, errors


def _seen(found: decode.DecodeResult) -> tuple[list[Any], list[tuple[int, int, str]]]:
    found.rows.validate(full=True)
    values = [[repr(value) for value in column.to_pylist()] for column in found.rows.columns]
    places = (found.message.tolist(), found.index.tolist())
    return list(zip(*places, *values, strict=True)), found.errors


@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_blocks_of_json_and_single_events_agree(data: st.DataObject) -> None:
    fields = data.draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3, unique=True))
    schema = pa.schema(fields)
    missing = data.draw(st.sampled_from(["error", "null"]))
    is_tidy = data.draw(st.booleans())

    def event() -> str:
        members = [
            f'"{name}":{data.draw(RIGHT[name] if is_tidy else VALUES)}'
            for name in schema.names
            if is_tidy or data.draw(st.integers(0, 5))
        ]
        return "{" + ",".join(members) + "}"

    payloads = [event().encode() for _ in range(data.draw(st.integers(1, 5)))]
    events_of = rules.reader_of_json(schema)
    expected = _by_the_rules(payloads, schema, missing, events_of)
    assert _seen(decoded(payloads, schema, missing=missing)) == expected
    # Those that can be read are read as a block.
    wrong = {error[0] for error in expected[1]}
    good = [payload for number, payload in enumerate(payloads) if number not in wrong]
    found = _seen(decoded(good, schema, missing=missing))
    assert found == _by_the_rules(good, schema, missing, events_of)
    assert found[1] == []


FLAT: list[Any] = [field for field in FIELDS if not pa.types.is_nested(field[1])]
#: Values that are laid out alike, with a wrong one among them now and then.
ALIKE: dict[str, st.SearchStrategy[str]] = {
    "n": st.integers(-(2**31), 2**31).map(str), "x": NUMBERS, "f": NUMBERS,
    "s": st.text(st.characters(codec="utf-8"), max_size=4).map(
        lambda text: json.dumps(text, ensure_ascii=False)
    ),
    "at": TIMES.map(json.dumps), "ntz": TIMES.map(json.dumps), "day": DAYS.map(json.dumps),
    "raw": ENCODED.map(json.dumps), "d": NUMBERS,
    "z": st.one_of(NUMBERS, st.text(max_size=3).map(json.dumps)),
    "t": st.sampled_from(["true", "false", "truex", "null"]),
}  # fmt: skip


@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_texts_laid_out_alike_and_single_events_agree(data: st.DataObject) -> None:
    fields = data.draw(st.lists(st.sampled_from(FLAT), min_size=1, max_size=3, unique=True))
    fields = [*fields, *data.draw(st.just([]) | st.just([("t", pa.bool_())]))]
    schema = pa.schema(fields)
    names = data.draw(
        st.permutations([*schema.names, *data.draw(st.sampled_from(["", "z", "zz"]))])
    )
    space, comma = data.draw(st.sampled_from(["", " "])), data.draw(st.sampled_from([",", ", "]))
    columns = {
        name: data.draw(
            st.one_of(
                st.lists(ALIKE[name], min_size=4, max_size=4),
                st.sampled_from(["5", "-7", "1.5", "0", '"a"', '""', '"é"', "true"]).map(
                    lambda value: [value] * 4
                ),
            )
        )
        for name in dict.fromkeys(names)
    }
    payloads = [
        ("{" + comma.join(f'"{name}":{space}{columns[name][row]}' for name in names) + "}").encode()
        for row in range(4)
    ]
    events_of = rules.reader_of_json(schema)
    assert _seen(decoded(payloads, schema)) == _by_the_rules(payloads, schema, "error", events_of)
    for payload in payloads:
        # A block of one: none of its neighbours keeps it from being read that way.
        expected = _by_the_rules([payload], schema, "error", events_of)
        assert _seen(decoded([payload], schema)) == expected


@settings(deadline=None)
@given(st.lists(st.sampled_from([b'{"a":1,', b'"a":', b'{"b":"', b'"', b"1", b"}", b'"}', b","])))
def test_no_cut_through_objects_laid_out_alike_is_taken_for_one(pieces: list[bytes]) -> None:
    schema = pa.schema([("a", pa.int64())])
    payloads = [b'{"a":1,"b":"x"}', b"".join(pieces), b'{"a":2,"b":"}{"}', *pieces]
    expected = _by_the_rules(payloads, schema, "error", rules.reader_of_json(schema))
    assert _seen(decoded(payloads, schema)) == expected


PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), TIMES, ENCODED,
    st.binary(max_size=3), st.integers(-(2**40), 2**40).map(lambda s: msgpack.Timestamp(s, 7)),
)  # fmt: skip
PACKED = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["zip", "city", "b", "d", "in", 7]), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_columns_of_messagepack_and_single_events_agree(data: st.DataObject) -> None:
    schema = pa.schema(
        data.draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=2, unique=True))
    )
    missing = data.draw(st.sampled_from(["error", "null"]))
    events = st.dictionaries(st.sampled_from(schema.names), PACKED)
    drawn = data.draw(st.lists(events | st.lists(events, max_size=2) | PLAIN, max_size=5))
    payloads = [msgpack.packb(event) for event in drawn]
    expected = _by_the_rules(payloads, schema, missing, rules.events_of_msgpack)
    assert _seen(decoded(payloads, schema, "msgpack", missing)) == expected
    wrong = {error[0] for error in expected[1]}
    good = [payload for number, payload in enumerate(payloads) if number not in wrong]
    found = _seen(decoded(good, schema, "msgpack", missing))
    assert found == _by_the_rules(good, schema, missing, rules.events_of_msgpack)
