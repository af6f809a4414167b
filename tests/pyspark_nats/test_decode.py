"""Readable events, and their independence of neighbouring events."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_nats import decode, encode

pytestmark = pytest.mark.usefixtures("in_blocks")

FIELDS: list[pa.Field[Any]] = [
    pa.field("id", pa.int64()),
    pa.field("n", pa.int32()),
    pa.field("x", pa.float64()),
    pa.field("s", pa.string()),
    pa.field("b", pa.bool_()),
]
SCHEMA = pa.schema(FIELDS)
ONE = pa.schema([("id", pa.int32())])


def decoded(
    payloads: list[bytes], schema: pa.Schema = SCHEMA, content_type: str | None = None
) -> decode.DecodeResult:
    return decode.decode_messages(
        pa.array(payloads, pa.binary()),
        pa.array([content_type] * len(payloads), pa.string()),
        schema,
    )


def event(number: int) -> bytes:
    return b'{"id":%d,"n":1,"x":2.5,"s":"t","b":true}' % number


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"{", "not JSON: unexpected end of data"),
        (b"", "not JSON: empty"),
        (b"5", "5 is not an object"),
        (b"{}", 'attribute "id" is missing'),
        (b'{"id":"5"}', 'attribute "id" is "5", not an int'),
        (b'{"id":42.0}', 'attribute "id" is 42.0, not an int'),
        (b'{"id":true}', 'attribute "id" is true, not an int'),
        (b'{"id":3000000000}', 'attribute "id" is 3000000000, not an int'),
        (b'{"id":[1]}', 'attribute "id" is [1], not an int'),
        (b'{"id":1,"z":NaN}', "not JSON: unexpected character, expected a JSON value"),
        (b'{"id":1}{"id":2}', "not JSON: unexpected content after document"),
        (b'{"id":1,"z":"\xff"}', "not JSON: str is not valid UTF-8: surrogates not allowed"),
    ],
)
def test_an_unreadable_event_says_why_and_spoils_no_other(payload: bytes, reason: str) -> None:
    found = decoded([b'{"id":1}', payload, b'{"id":null}'], ONE)
    assert found.rows.column("id").to_pylist() == [1, None]
    assert found.message.tolist() == [0, 2]
    (error,) = found.errors
    assert error[:2] == (1, 0)
    assert error[2].startswith(reason)


@pytest.mark.parametrize(
    ("kind", "payload", "value"),
    [
        (pa.float64(), b'{"v":5}', 5.0),
        (pa.float32(), b'{"v":0.1}', float(np.float32(0.1))),
        (pa.float64(), b'{"v":18446744073709551616}', 18446744073709551616.0),
        (pa.int64(), b'{"v":9223372036854775807}', 2**63 - 1),
        (pa.string(), b'{"v":"2020-01-01T00:00:00Z"}', "2020-01-01T00:00:00Z"),
        (pa.string(), b'{"v":"\\u0000\\ud83d\\ude00"}', "\0😀"),
        (pa.bool_(), b' {"more":{"deep":[1,{}]},"v":false} ', False),
        (pa.string(), b'{"v":"a","v":"b"}', "b"),
    ],
)
def test_readable_values(kind: pa.DataType, payload: bytes, value: object) -> None:
    found = decoded([payload], pa.schema([("v", kind)]))
    assert found.errors == []
    assert found.rows.column("v").to_pylist() == [value]


def test_a_message_holds_one_event_or_an_array_or_one_a_line() -> None:
    found = decoded([b'{"id":1}', b'[{"id":2},{"id":3}]', b'{"id":4}\n\r\n{"id":5}\n', b"[]"], ONE)
    assert found.rows.column("id").to_pylist() == [1, 2, 3, 4, 5]
    assert found.message.tolist() == [0, 1, 1, 2, 2]
    assert found.index.tolist() == [0, 0, 1, 0, 1]


def test_an_object_may_be_printed_over_several_lines() -> None:
    assert decoded([b'{\n "id": 1\n}'], ONE).rows.column("id").to_pylist() == [1]


@pytest.mark.parametrize(
    "odd",
    [
        b'{"id":7,"s":"t"}',
        b'{"s":"t","id":7}',
        b'{ "id": 7, "s": "t" }\r',
        b'{"id":7,"s":"\\u0074"}',
        b'{"id":7,"s":"t","more":[{}]}',
        b'\n\t{"id":7,"s":"t"}\n',
        b'{\n"id":7,\n"s":"t"\n}',
    ],
)
def test_lines_are_read_whatever_layout_one_of_them_has(odd: bytes) -> None:
    fields: list[pa.Field[Any]] = [pa.field("id", pa.int64()), pa.field("s", pa.string())]
    schema = pa.schema(fields)
    lines = [b'{"id":%d,"s":"t"}' % n for n in range(900)]
    payloads = [b"\n".join(lines[n : n + 3]) for n in range(0, 900, 3)]
    payloads[150] = odd
    found = decoded(payloads, schema)
    ids = [*range(450), 7, *range(453, 900)]
    assert found.rows.to_pylist() == [{"id": n, "s": "t"} for n in ids]
    assert found.message.tolist() == sorted([*range(150), *range(151, 300)] * 3 + [150])
    assert found.index.tolist() == [0, 1, 2] * 150 + [0] + [0, 1, 2] * 149
    assert not found.errors


def test_the_wrong_line_of_a_message_is_the_only_one_lost() -> None:
    found = decoded([b'{"id":1}\n{"id":\n{"id":3}'], ONE)
    assert found.rows.column("id").to_pylist() == [1, 3]
    assert found.index.tolist() == [0, 2]
    assert [e[:2] for e in found.errors] == [(0, 1)]


def test_formats_may_be_mixed_and_keep_their_order() -> None:
    rows = pa.RecordBatch.from_pydict({"id": [2, 3]}, ONE)
    arrow = encode.to_arrow(rows, pa.array([20, None], pa.int64()), 10)[0][0].as_py()
    found = decode.decode_messages(
        pa.array([b'{"id":1}', arrow, msgpack.packb([{"id": 4}, {}]), b"x", b'{"id":5}']),
        pa.array([None, "application/vnd.apache.arrow.stream", "application/x-msgpack", "image/png",
                  "application/json; charset=utf-8"]),
        ONE,
    )  # fmt: skip
    assert found.rows.column("id").to_pylist() == [1, 2, 3, 4, 5]
    assert found.message.tolist() == [0, 1, 1, 2, 4]
    assert found.event_time_ms.to_pylist() == [None, 20, None, None, None]
    assert found.errors == [
        (2, 1, 'attribute "id" is missing'),
        (3, 0, 'content type "image/png" is not known'),
    ]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "not an Arrow stream"),
        (b"nonsense", "not an Arrow stream"),
        (
            encode.to_arrow(pa.RecordBatch.from_pydict({"id": ["x"]}), None, 1)[0][0].as_py(),
            'attribute "id" is of Arrow type string, not an int',
        ),
        (
            encode.to_arrow(pa.RecordBatch.from_pydict({"other": [1]}), None, 1)[0][0].as_py(),
            'attribute "id" is missing',
        ),
    ],
)
def test_an_unreadable_arrow_message_spoils_no_other(payload: bytes, reason: str) -> None:
    good = encode.to_arrow(pa.RecordBatch.from_pydict({"id": [7]}, ONE), None, 1)[0][0].as_py()
    found = decoded([good, payload, good], ONE, "application/vnd.apache.arrow.stream")
    assert found.rows.column("id").to_pylist() == [7, 7]
    assert [e[:2] for e in found.errors] == [(1, 0)]
    assert found.errors[0][2].startswith(reason)


def test_one_wrong_event_among_many_is_found() -> None:
    payloads = [event(n) for n in range(5000)]
    payloads[3333] = b'{"id":1,"n":1,"x":"?","s":"t","b":true}'
    found = decoded(payloads)
    assert found.rows.num_rows == 4999
    assert found.errors == [(3333, 0, 'attribute "x" is "?", not a double')]


def test_nothing_is_read_from_nothing() -> None:
    found = decoded([])
    assert found.rows.num_rows == 0
    assert found.rows.schema.names == SCHEMA.names


JSON_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.integers(-5, 5),
    st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5),
    st.lists(st.integers(0, 9), max_size=2),
)  # fmt: skip
EVENTS = st.one_of(
    st.dictionaries(st.sampled_from(["id", "n", "x", "s", "b", "z"]), JSON_VALUES),
    st.fixed_dictionaries(
        {"id": st.integers(0, 9), "n": st.integers(0, 9), "x": st.floats(-9, 9),
         "s": st.text(max_size=3), "b": st.booleans()}
    ),
)  # fmt: skip
PAYLOADS = st.one_of(
    EVENTS.map(orjson.dumps),
    st.lists(EVENTS, max_size=3).map(orjson.dumps),
    st.lists(EVENTS, max_size=3).map(lambda events: b"\n".join(map(orjson.dumps, events))),
    st.binary(max_size=6),
    st.sampled_from([b'{"id":1,', b'{"id":NaN}', b'{"s":"\xff"}', b"{}{}", b"null", b"\n"]),
)


@given(payloads=st.lists(PAYLOADS, max_size=12), cut=st.integers(0, 12))
@example(payloads=[b"", b"{}\n{}"], cut=1)
@example(payloads=[b"{}\n{}", b" \n"], cut=1)
def test_any_cut_of_a_sequence_of_messages_gives_the_same(payloads: list[bytes], cut: int) -> None:
    def seen(part: list[bytes], first: int) -> tuple[list[object], list[object]]:
        found = decoded(part)
        places = zip((found.message + first).tolist(), found.index.tolist(), strict=True)
        rows = list(zip(places, map(repr, found.rows.to_pylist()), strict=True))
        return list(rows), [(m + first, i, why) for m, i, why in found.errors]

    whole = seen(payloads, 0)
    left, right = seen(payloads[:cut], 0), seen(payloads[cut:], cut)
    assert whole == (left[0] + right[0], left[1] + right[1])
    alone = [seen([payload], n) for n, payload in enumerate(payloads)]
    assert whole == ([r for a in alone for r in a[0]], [e for a in alone for e in a[1]])


@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.integers(-(2**31), 2**31 - 1),
            st.none() | st.floats(), st.none() | st.text(), st.none() | st.booleans(),
        ),
        min_size=1, max_size=20,
    )
)  # fmt: skip
def test_what_is_encoded_is_decoded_to_the_same(rows: list[tuple[Any, ...]]) -> None:
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    texts = encode.to_json(batch)
    assert all(orjson.loads(text).keys() == set(SCHEMA.names) for text in texts.to_pylist())
    back = decoded(texts.to_pylist())
    assert back.errors == []
    finite = [
        (*row[:2], row[2] if np.isfinite(np.float64(row[2] or 0)) else None, *row[3:])
        for row in rows
    ]
    assert [tuple(r.values()) for r in back.rows.to_pylist()] == finite
    arrow = encode.to_arrow(batch, None, 7)[0].to_pylist()
    again = decoded(arrow, content_type="application/vnd.apache.arrow.stream")
    assert repr(again.rows.to_pylist()) == repr(batch.to_pylist())
