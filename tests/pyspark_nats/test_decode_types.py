"""Attributes of every type: accepted values, errors of the others, and agreement of all paths."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import orjson
import pyarrow as pa
import pytest

from tests.support.decoded_types import ADDRESS, AT, LOCAL, decoded

pytestmark = pytest.mark.usefixtures("in_blocks")


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
