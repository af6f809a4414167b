"""JSON as a source of events: envelopes, and groups that read messages themselves."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mesh.mapping import source_mapper
from mesh.mapping.json_source import decode_mapped
from mesh.model.types import Attribute, AttributeType, StreamSchema
from pyspark_nats.arrow import ipc_stream
from tests.support.mappers import BATCH, ROWS, STREAM, decoded


@pytest.mark.parametrize(
    "odd",
    [
        b'{"event":{"s":"x","n":1,"d":1,"b":true},"more":{}}',
        b'{"event":{"s":"x","n":1,"d":1,"b":true}{"s":"y"}}',
        b'{"event":{"s":"x","n":1,"d":1,"b":true}, "event":{"s":"y","n":2,"d":2,"b":true}}',
        b'{"event":{"s":"x","n":1,"d":1,"b":true}\r}}',
        b'{"event":{"s":"x","n":1,"d":1,"b":{"c":1}}',
        b'{"event":{"s":"x","n":"1","d":1,"b":true}}',
        b'{"event":{"s":"x"}}',
        b'{"event":{"s":"\xff","n":1,"d":1,"b":true}}',
        b'{"event":{"s":"}}","n":1,"d":1,"b":true,"t":{"u":[{}]}}}',
        b'{"event":{}}',
        b'{"event":{},{}}',
    ],
)
@pytest.mark.parametrize("count", [1, 700])
def test_events_of_envelopes_of_one_layout_are_those_of_others(odd: bytes, count: int) -> None:
    """A space after the first brace has them read as envelopes of any form."""
    good = b'{"event":{"s":"x","n":1,"d":1.5,"b":true}}'
    mapper = source_mapper("json", {}, (), STREAM)
    payloads = [*[good] * count, odd, good]
    found = mapper.decode(payloads)
    expected = mapper.decode([b"{ " + payload[1:] for payload in payloads])
    assert found.rows.equals(expected.rows)
    assert found.message.tolist() == expected.message.tolist()
    assert [e[:2] for e in found.errors] == [e[:2] for e in expected.errors]
    assert found.taken == expected.taken


ALIKE = b'{"event":{"s":"x","n":1,"d":1.5,"b":true}}'
BARE = b'{"s":"y","n":2,"d":2.5,"b":false}'
#: As an app of the original may get them from a source with the mapper json.
MIXED: list[bytes] = [
    BARE,
    ALIKE,
    b"[" + BARE + b"," + BARE + b"]",
    b"[" + ALIKE + b"," + ALIKE + b"]",
    ALIKE + b"\n" + ALIKE,
    b'{"s":{"a":[1, 2.50]},"n":3,"d":3,"b":true}',
    b'{"event":{"s":12.30,"n":4,"d":1e400,"b":true}}',
    b"\xef\xbb\xbf" + ALIKE,
    b'{"event":{"s":"x","n":"1","d":1,"b":true}}',
    b'{"event":null}',
    b"no JSON",
    b"",
]


@pytest.mark.parametrize("first", [BARE, ALIKE])
@pytest.mark.parametrize("many", [0, 700])
def test_a_group_that_reads_messages_itself_has_the_events_of_the_mapper(
    first: bytes, many: int
) -> None:
    payloads = [first] * (many + 1) + MIXED + [first] * many
    expected = decoded("json", payloads)
    found = decode_mapped(
        pa.array(payloads, pa.binary()), pa.nulls(len(payloads), pa.string()), STREAM.arrow
    )
    assert found.rows.equals(expected.rows)
    assert found.rows.num_rows > len(payloads) - 5
    assert (found.message.tolist(), found.index.tolist()) == (
        expected.message.tolist(),
        expected.index.tolist(),
    )
    assert found.errors == expected.errors
    assert {number - many - 1 for number, _, _ in found.errors} == {6, 8, 9, 10, 11}


def test_messages_of_other_types_keep_their_times_beside_such_events() -> None:
    table = BATCH.append_column("_event_time_ms", pa.array([7, 8, 9]))
    payloads = pa.array([ipc_stream(table), ALIKE, b'{"event":1}'], pa.binary())
    kinds = pa.array(["application/vnd.apache.arrow.stream", "application/json", None])
    found = decode_mapped(payloads, kinds, STREAM.arrow)
    assert found.rows.to_pylist() == [*ROWS, {"s": "x", "n": 1, "d": 1.5, "b": True}]
    assert found.event_time_ms.to_pylist() == [7, 8, 9, None]
    assert [number for number, _, _ in found.errors] == [2]
    # Octets are not taken for text.
    refused = decode_mapped(pa.array([ALIKE]), pa.array(["application/msgpack"]), STREAM.arrow)
    assert refused.rows.num_rows == 0


@pytest.mark.parametrize("kind", ["json", "keyvalue"])
def test_a_document_in_each_line_is_read_by_all_mappings(kind: str) -> None:
    stream = StreamSchema("S", (Attribute("n", AttributeType.LONG),))
    given = (("n", "$.n"),) if kind == "json" else ()
    mapper = source_mapper(kind, {}, given, stream)
    payloads = [
        b'{"n":1}\n{"n":12345678901}\r\n\r\n', b'\xef\xbb\xbf{"n":3}\nx\n{"n":1e2}\n[{"n":5}]',
        b'{\n"n":6\n}', b'{\n"n":\n}',
    ]  # fmt: skip
    found = mapper.decode(payloads)
    assert [row["n"] for row in found.rows.to_pylist()] == [1, 12345678901, 3, 5, 6]
    assert found.message.tolist() == [0, 0, 1, 1, 2]
    assert found.index.tolist() == [0, 1, 0, 3, 0]
    errors = [(number, at) for number, at, _ in found.errors]
    # One that is no document in its first line is one error.
    assert sorted(errors) == [(1, 1), (1, 2), (3, 0)]
