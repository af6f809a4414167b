"""Arrow messages: types that agree or widen, compressed bodies, and input of foreign clients."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_nats import decode

AT = pa.timestamp("us", "UTC")
ADDRESS = pa.struct([("zip", pa.int32()), ("city", pa.string())])
WORDS: Any = pa.dictionary(pa.int8(), pa.string())


def stream(table: pa.Table, compression: str | None = None, size: int | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    chosen: Any = compression
    options: Any = pa.ipc.IpcWriteOptions(compression=chosen)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=size)
    return sink.getvalue().to_pybytes()


def of(values: list[Any], kind: Any) -> bytes:
    return stream(pa.table({"v": pa.array(values, kind)}))


def decoded(
    payloads: list[bytes], schema: pa.Schema, missing: str = "error"
) -> decode.DecodeResult:
    content_type = pa.array(["application/vnd.apache.arrow.stream"] * len(payloads), pa.string())
    found = decode.decode_messages(
        pa.array(payloads, pa.binary()), content_type, schema, missing=missing
    )
    found.rows.validate(full=True)
    return found


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
BARE = datetime(2026, 11, 21, 12)  # noqa: DTZ001
WIDENING: list[tuple[Any, list[Any], Any, list[Any]]] = [
    (pa.int8(), [1, None], pa.int64(), [1, None]),
    (pa.uint32(), [2**32 - 1], pa.int64(), [2**32 - 1]),
    (pa.int64(), [3], pa.float64(), [3.0]),
    (pa.float32(), [0.5], pa.float64(), [0.5]),
    (pa.large_string(), ["a"], pa.string(), ["a"]),
    (pa.string_view(), ["a"], pa.string(), ["a"]),
    (pa.large_binary(), [b"\xff"], pa.binary(), [b"\xff"]),
    (pa.binary(2), [b"\xff\0"], pa.binary(), [b"\xff\0"]),
    (WORDS, ["a", "b", "a", None], pa.string(), ["a", "b", "a", None]),
    (pa.timestamp("ms", "UTC"), [NOON], AT, [NOON]),
    (pa.timestamp("ns", "Europe/Berlin"), [NOON], AT, [NOON]),
    (pa.timestamp("s"), [BARE], AT, [NOON]),
    (pa.timestamp("s"), [BARE], pa.timestamp("us"), [BARE]),
    (pa.date32(), [date(2026, 11, 21)], AT, [datetime(2026, 11, 21, tzinfo=UTC)]),
    (pa.date64(), [date(2026, 11, 21)], pa.date32(), [date(2026, 11, 21)]),
    (pa.decimal128(4, 2), [Decimal("1.50")], pa.decimal128(10, 3), [Decimal("1.500")]),
    (pa.int32(), [7], pa.decimal128(12, 2), [Decimal("7.00")]),
    (pa.large_list(pa.int32()), [[1], None, []], pa.list_(pa.int64()), [[1], None, []]),
    (pa.list_(pa.int32(), 2), [[1, 2], None], pa.list_(pa.int64()), [[1, 2], None]),
    (pa.list_(WORDS), [["a", "a"]], pa.list_(pa.string()), [["a", "a"]]),
    (pa.struct([("city", pa.large_string()), ("more", pa.bool_()), ("zip", pa.int16())]),
     [{"city": "x", "more": True, "zip": 1}, None], ADDRESS, [{"zip": 1, "city": "x"}, None]),
    (pa.map_(pa.string(), pa.int8()), [[("a", 1)], None], pa.map_(pa.string(), pa.int64()),
     [[("a", 1)], None]),
    (pa.null(), [None, None], ADDRESS, [None, None]),
]  # fmt: skip


@pytest.mark.parametrize(("given_type", "values", "wanted", "expected"), WIDENING)
def test_a_type_may_stand_for_a_wider_one(
    given_type: pa.DataType, values: list[Any], wanted: pa.DataType, expected: list[Any]
) -> None:
    payload = of(values, given_type)
    found = decoded([payload, payload], pa.schema([("v", wanted)]))
    assert found.errors == []
    assert found.rows.column("v").to_pylist() == expected * 2
    assert found.rows.column("v").type == wanted


@pytest.mark.parametrize(
    ("given_type", "values", "wanted", "reason"),
    [
        (pa.int64(), [1], pa.int32(), "is of Arrow type int64, not an int"),
        (pa.uint64(), [1], pa.int64(), "is of Arrow type uint64, not a long"),
        (AT, [NOON], pa.timestamp("us"),
         "is of Arrow type timestamp[us, tz=UTC], not a timestamp_ntz"),
        (pa.string(), ["2026-11-21"], AT, "is of Arrow type string, not a timestamp"),
        (pa.decimal128(10, 3), [Decimal(1)], pa.decimal128(10, 2),
         "is of Arrow type decimal128(10, 3), not a decimal(10,2)"),
        (pa.int64(), [1], pa.list_(pa.int64()), "is of Arrow type int64, not an array"),
    ],
)  # fmt: skip
def test_other_types_are_refused(
    given_type: pa.DataType, values: list[Any], wanted: pa.DataType, reason: str
) -> None:
    found = decoded([of(values, given_type)], pa.schema([("v", wanted)]))
    assert found.errors == [(0, 0, f'attribute "v" {reason}')]


def test_places_inside_are_named() -> None:
    schema = pa.schema([("v", pa.list_(ADDRESS))])
    texts = pa.struct([("zip", pa.string()), ("city", pa.string())])
    wrong = of([[{"zip": "x", "city": "y"}]], pa.list_(texts))
    lacking = of([[{"zip": 1}]], pa.list_(pa.struct([("zip", pa.int32())])))
    assert [error[2] for error in decoded([wrong, lacking], schema).errors] == [
        'attribute "v[].zip" is of Arrow type string, not an int',
        'attribute "v[].city" is missing',
    ]
    found = decoded([lacking], schema, "null")
    assert found.rows.to_pylist() == [{"v": [{"zip": 1, "city": None}]}]


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_messages_of_many_batches_alike_or_not(compression: str | None) -> None:
    fields: list[Any] = [("id", pa.int64()), ("name", pa.string())]
    schema = pa.schema(fields)
    payloads = []
    for first in range(0, 3000, 300):
        ids = list(range(first, first + 300))
        table = pa.table({"id": ids, "name": [f"n{n % 7}" for n in ids]}, schema=schema)
        if first % 900 == 0:
            table = table.set_column(1, "name", table.column("name").dictionary_encode())
        payloads.append(stream(table, compression, size=128))
    payloads.insert(4, stream(schema.empty_table()))
    payloads.insert(6, payloads[5][:-8])  # Without the mark of its end.
    found = decoded(payloads, schema)
    assert found.errors == []
    assert found.rows.num_rows == 3300
    by_message = [found.rows.filter(pa.array(found.message == n)) for n in range(len(payloads))]
    assert by_message[4].num_rows == 0
    assert by_message[5].equals(by_message[6])
    assert by_message[11].column("id").to_pylist() == list(range(2700, 3000))
    assert found.index[found.message == 3].tolist() == list(range(300))
    assert set(found.rows.column("name").to_pylist()) == {f"n{n}" for n in range(7)}


def test_octets_after_the_end_of_a_stream_are_never_dropped() -> None:
    fields: list[Any] = [("id", pa.int64())]
    schema = pa.schema(fields)
    one = stream(pa.table({"id": [1]}, schema=schema))
    found = decoded([one, one + one, one + b"\0", one], schema)
    assert found.rows.to_pylist() == [{"id": 1}, {"id": 1}]
    reason = "octets follow the end of the Arrow stream"
    assert found.errors == [(1, 0, reason), (2, 0, reason)]


def test_a_time_out_of_range_is_no_time() -> None:
    raw = pa.array([2**62], pa.int64()).cast(AT)
    found = decoded([stream(pa.table({"v": raw})), of([NOON], AT)], pa.schema([("v", AT)]))
    assert [error[:2] for error in found.errors] == [(0, 0)]
    assert found.rows.column("v").to_pylist() == [NOON]


@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_octets_of_a_stranger_spoil_no_other_message(data: st.DataObject) -> None:
    fields: list[Any] = [("id", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.string()))]
    schema = pa.schema(fields)
    table = pa.table({"id": [1, 2], "s": ["ab", None], "l": [["x", "y"], []]}, schema=schema)
    good = stream(table, data.draw(st.sampled_from([None, "zstd"])))
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    bad = bad[: data.draw(st.integers(0, len(bad)) | st.just(len(bad)))]
    found = decoded([good, bytes(bad), good], schema)
    for number in (0, 2):
        rows = found.rows.filter(pa.array(found.message == number))
        assert rows.to_pylist() == table.to_pylist()
    alone = decoded([bytes(bad)], schema)
    assert found.rows.filter(pa.array(found.message == 1)).equals(alone.rows)
    # Of octets that make no sense Arrow says different things at different addresses.
    told, told_alone = (
        [error[2].partition(":")[0] for error in one.errors] for one in (found, alone)
    )
    assert told == told_alone


def test_a_reason_does_not_depend_on_the_messages_around_it() -> None:
    good = of([1, 2, None], pa.int64())
    wanted = pa.schema([("v", pa.int64())])
    reasons = set()
    # The octets of the record batch's head; those before are the schema's.
    first = 8 + int.from_bytes(good[4:8], "little")
    for at in range(first, min(first + 200, len(good))):
        for changed in (good[at] ^ 1, good[at] ^ 0xFF):
            bad = good[:at] + bytes([changed]) + good[at + 1 :]
            alone, amid = decoded([bad], wanted), decoded([good, bad, good], wanted)
            assert [r for _, _, r in alone.errors] == [r for _, _, r in amid.errors], at
            assert amid.rows.num_rows == 6 + alone.rows.num_rows
            reasons |= {r for _, _, r in alone.errors}
    assert len(reasons) > 3
