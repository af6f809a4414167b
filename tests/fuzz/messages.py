"""A fuzzer of messages: arbitrary octets, headers and content types amid good events.

``python -m tests.fuzz.messages --minutes 10`` (``make fuzz FUZZ_MINUTES=10``) plays random batches
and prints the smallest one that breaks a promise.  Each run of the tests plays a few:
``tests/pyspark_nats/test_decode_random.py``.

The promises: nothing raises; good events are read exactly, at the server's position; an event that
can't be read is reported once; a message is read the same whatever its neighbours are.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
import orjson
import pyarrow as pa
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from pyspark_nats import decode
from pyspark_nats.arrow import arrow, ipc_stream, kernels
from pyspark_nats.decode import rules
from pyspark_nats.decode.result import ERRORS_MAX, REASON_MAX
from pyspark_nats.protocol import frames
from pyspark_nats.protocol.frames import header_values
from pyspark_nats.source import messages, rows
from pyspark_nats.source.typed_rows import METADATA_DDL, Typed

if TYPE_CHECKING:
    from collections.abc import Sequence

ARROW, MSGPACK = b"application/vnd.apache.arrow.stream", b"application/msgpack"
FIELDS: Final[dict[str, Any]] = {
    "id": pa.int64(), "n": pa.int32(), "x": pa.float64(), "s": pa.string(), "b": pa.bool_(),
    "o": pa.binary(), "l": pa.list_(pa.int64()), "d": pa.decimal128(9, 2),
}  # fmt: skip
SCHEMA: Final = pa.schema(list(FIELDS.items()))
LIMITS: Final = decode.MessageLimits(
    events_max=2000, bytes_max=100_000, event_time_ahead_ms=86_400_000
)
#: Broker time of the first message, ns.
_BEGIN_NS: Final = 1_800_000_000 * 10**9


@dataclass(frozen=True)
class Message:
    """A message as its publisher sends it."""

    payload: bytes
    #: Lines of the header block, without line ends.
    header: tuple[bytes, ...] = ()
    #: The events if it is a good one.
    events: tuple[dict[str, Any], ...] | None = None


# --- good messages

_TEXT = st.text(max_size=8)
_EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "n": st.integers(-(2**31), 2**31 - 1) | st.none(),
            "x": st.floats(allow_nan=False, allow_infinity=False) | st.none(),
            "s": _TEXT | st.none(),
            "b": st.booleans() | st.none(),
            "o": st.none(),
            "l": st.lists(st.integers(-9, 9), max_size=3) | st.none(),
            "d": st.none(),
        }
    ),
    min_size=1,
    max_size=3,
)


def _good(events: list[dict[str, Any]], form: str) -> Message:
    whole = tuple(events)
    if form == "lines":
        return Message(b"\n".join(map(orjson.dumps, events)), (), whole)
    if form == "json":
        return Message(orjson.dumps(events), (b"Content-Type: application/json",), whole)
    if form == "msgpack":
        return Message(msgpack.packb(events), (b"Content-Type: " + MSGPACK,), whole)
    batch = pa.RecordBatch.from_pylist(events, SCHEMA)
    payload = ipc_stream(batch, "zstd" if form == "zstd" else None)
    return Message(payload, (b"Content-Type: " + ARROW,), whole)


_FORMS = st.sampled_from(["lines", "json", "msgpack", "arrow", "zstd"])
GOOD: Final = st.builds(_good, _EVENTS, _FORMS)

# --- others

_LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | _TEXT | st.binary(max_size=5)
    | st.floats() | st.sampled_from(["1e999999", "2026-11-21", "AAAA", "9" * 400])
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=16))
)  # fmt: skip
_KEYS = st.sampled_from([*FIELDS, "more"]) | _TEXT
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=20,
)


@st.composite
def _deep(draw: Any) -> bytes:
    opening, closing = draw(
        st.sampled_from([(b"[", b"]"), (b'{"id":', b"}"), (b"\x91", b""), (b"\x81\xa2id", b"")])
    )
    depth = draw(st.integers(0, 3000))
    return bytes(opening * depth + draw(st.sampled_from([b"", b"1", b"\x01"])) + closing * depth)


@st.composite
def _changed(draw: Any) -> bytes:
    """A good payload with a few other octets, or cut."""
    octets = bytearray(draw(GOOD).payload)
    for _ in range(draw(st.integers(0, 4))):
        octets[draw(st.integers(0, len(octets) - 1))] = draw(st.integers(0, 255))
    return bytes(octets[: draw(st.just(len(octets)) | st.integers(0, len(octets)))])


@st.composite
def _bomb(draw: Any) -> bytes:
    """An Arrow message that claims more than its size."""
    count = draw(st.sampled_from([0, 1, 1000, 3000, 50_000, 10_000_000]))
    few = min(count, 3000)
    word = "w" * draw(st.sampled_from([0, 9, 5000]))
    column = draw(st.sampled_from(list(FIELDS)))
    kind = draw(st.sampled_from(["nulls", "zeros", "words", "runs", "lists", "times"]))
    values: Any = pa.nulls(count)
    if kind == "zeros":
        values = pa.array(np.zeros(min(count, 50_000), np.int64))
    elif kind == "words":
        values = arrow.DictionaryArray.from_arrays(pa.array([0] * few, pa.int8()), pa.array([word]))
    elif kind == "runs" and count:
        values = arrow.RunEndEncodedArray.from_arrays(
            pa.array([min(count, 2**31 - 1)], pa.int32()), pa.array([word])
        )
    elif kind == "lists":
        values = arrow.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count))
    columns = {name: pa.nulls(len(values)) for name in FIELDS} | {column: values}
    if kind == "times":
        columns = dict.fromkeys(FIELDS, pa.nulls(few // 2 * 2))
        columns[decode.EVENT_TIME] = pa.array([-1, 2**62] * (few // 2), pa.int64())
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return ipc_stream(batch, draw(st.sampled_from([None, "zstd", "lz4"])))


def _json(value: Any) -> bytes:
    return orjson.dumps(value, default=lambda one: repr(one)[:20], option=orjson.OPT_NON_STR_KEYS)


def _packed(value: Any) -> bytes:
    return bytes(msgpack.packb(value, strict_types=False))


_PAYLOADS = (
    st.binary(max_size=40) | _TREES.map(_json) | _TREES.map(_packed) | _deep() | _changed()
    | _bomb() | st.lists(_TREES, max_size=4).map(_json)
    | st.integers(0, 3000).map(lambda count: b"{}\n" * count)
    | st.integers(0, 3000).map(lambda count: _json([0] * count))
)  # fmt: skip
_TYPES = st.sampled_from(
    [b"application/json", MSGPACK, ARROW, b"image/png", b"", b"\xff", b";", b"arrow;x" * 200]
) | st.binary(max_size=9)
_LINES = st.one_of(
    _TYPES.map(lambda text: b"Content-Type: " + text),
    st.builds(
        lambda name, value: name + b": " + value,
        st.sampled_from(
            [
                b"Nats-Sequence",
                b"Nats-Subject",
                b"Nats-Time-Stamp",
                b"Nats-Stream",
                b"Mesh-Timestamp",
            ]
        ),
        st.integers(-(2**70), 2**70).map(lambda n: b"%d" % n) | st.binary(max_size=9),
    ),
    st.binary(max_size=20),
)


def _announced(payload: bytes, content_type: bytes) -> Message:
    return Message(payload, (b"Content-Type: " + content_type,))


HOSTILE: Final = (
    st.builds(Message, _PAYLOADS, st.lists(_LINES, max_size=4).map(tuple), st.none())
    | st.builds(_announced, _bomb() | _changed(), st.just(ARROW))
    | st.builds(_announced, _TREES.map(_packed) | _deep() | _changed(), st.just(MSGPACK))
)
BATCHES: Final = st.lists(GOOD | HOSTILE, min_size=1, max_size=8)


# --- the promises


def check(batch: Sequence[Message]) -> None:
    """Read a batch as Direct Get returns it, and hold the reader to its promises."""
    received = messages.of_direct_get("S", frames.split(_wire(batch)))
    assert received.sequence.tolist() == list(range(1, len(batch) + 1))
    assert received.subject.to_pylist() == ["ev.S"] * len(batch)
    assert received.time_ns.tolist() == [_BEGIN_NS + n * 10**9 for n in range(len(batch))]
    assert received.data.to_pylist() == [one.payload for one in batch]
    rows.raw(received).validate(full=True)
    rows.marked(received, "Mesh-Timestamp").validate(full=True)
    types = header_values(received.header, "Content-Type")
    _check_decoded(batch, received, types)
    _check_rows(batch, received)


def _wire(batch: Sequence[Message]) -> bytes:
    """The answers of the server, which appends its headers to those of the publisher."""
    answers = []
    for number, one in enumerate(batch):
        block = b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in one.header) + b"\r\n"
        stamp = f"{np.datetime64(_BEGIN_NS + number * 10**9, 'ns')}Z"
        own = {
            "Nats-Stream": "S", "Nats-Subject": "ev.S", "Nats-Sequence": str(number + 1),
            "Nats-Time-Stamp": stamp, "Nats-Num-Pending": "7", "Nats-Last-Sequence": "0",
        }  # fmt: skip
        block = block[:-2] + frames.header_block(own).removeprefix(b"NATS/1.0\r\n")
        head = b"HMSG _INBOX.1 1 %d %d\r\n" % (len(block), len(block) + len(one.payload))
        answers.append(head + block + one.payload + b"\r\n")
    return b"".join(answers)


def _check_decoded(batch: Sequence[Message], received: messages.Messages, types: Any) -> None:
    """Every message gives the same alone and amid the others, within the limits."""
    found = _decoded(received.data, types)
    for number, one in enumerate(batch):
        alone = _decoded(received.data.slice(number, 1), types.slice(number, 1))
        # As text: a NaN equals no NaN.
        assert repr(found[number]) == repr(alone[0])
        events, failed = alone[0]
        assert len(events) <= LIMITS.events_max
        assert len(failed) <= ERRORS_MAX
        assert all(0 < len(reason.encode()) <= 4 * REASON_MAX + 99 for _, reason in failed)
        places = [*(index for index, _ in events), *(index for index, _ in failed)]
        assert len(set(places)) == len(places)
        if one.events is not None:
            assert ([event for _, event in events], failed) == (list(one.events), [])
        elif not places:
            assert _is_empty(one.payload, types[number].as_py() or "")


def _decoded(data: Any, types: Any) -> list[tuple[list[tuple[int, Any]], list[tuple[int, str]]]]:
    """(index, event) and (index, reason) for each message."""
    events: list[list[tuple[int, Any]]] = [[] for _ in range(len(data))]
    errors: list[list[tuple[int, str]]] = [[] for _ in range(len(data))]
    at = 0
    while at < len(data):
        found = decode.decode_messages(data.slice(at), types.slice(at), SCHEMA, limits=LIMITS)
        assert found.taken > 0
        found.rows.validate(full=True)
        assert found.rows.nbytes <= 2 * LIMITS.batch_bytes_max
        values = zip(found.message, found.index, found.rows.to_pylist(), strict=True)
        for message, index, event in values:
            events[at + message].append((int(index), event))
        for message, index, reason in found.errors:
            errors[at + message].append((index, reason))
        at += found.taken
    return list(zip(events, errors, strict=True))


def _is_empty(payload: bytes, content_type: str) -> bool:
    """Whether a message holds no event, and nothing else."""
    kind = rules.kind_of(content_type)
    if kind == "json":
        return bool(orjson.loads(payload) == [])
    if kind == "msgpack":
        return bool(msgpack.unpackb(payload) == [])
    with pa.ipc.open_stream(payload) as stream:
        return stream.read_all().num_rows == 0


def _check_rows(batch: Sequence[Message], received: messages.Messages) -> None:
    """The typed rows are in order, and have a row for each event, good or bad."""
    metadata = {
        "string": pa.string(), "long": pa.int64(), "binary": pa.binary(),
        "timestamp": pa.timestamp("us", "UTC"), "map<string,array<string>>": rows.HEADERS,
    }  # fmt: skip
    columns = {name: metadata[kind] for name, kind in METADATA_DDL.items()}
    output = pa.schema([*FIELDS.items(), *columns.items()])
    typed = Typed(SCHEMA, output, "", "column", "Mesh-Timestamp", "error", LIMITS)
    places: list[tuple[int, int]] = []
    for made in typed(received):
        made.validate(full=True)
        sequences: list[Any] = made.column("_sequence").to_pylist()
        indexes: list[Any] = made.column("_index").to_pylist()
        places += zip(sequences, indexes, strict=True)
        ahead_ms = kernels.subtract(made.column("_event_time_ms"), made.column("_timestamp_ms"))
        assert all(one is None or one <= 86_400_000 for one in ahead_ms.to_pylist())
    assert places == sorted(set(places))
    good = {number for number, one in enumerate(batch, 1) if one.events is not None}
    assert good <= {sequence for sequence, _ in places}


def play(minutes: float) -> int:
    """Check random batches for so long; the number of rounds without a finding."""
    deadline_s = time.monotonic() + minutes * 60
    rounds = 0
    while time.monotonic() < deadline_s:
        number = time.time_ns() % 2**32
        print(f"round {rounds}, seed {number}", flush=True)  # noqa: T201
        one = seed(number)(
            settings(max_examples=2000, deadline=None, print_blob=True)(given(batch=BATCHES)(check))
        )
        one()
        rounds += 1
    return rounds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    play(parser.parse_args().minutes)
    sys.exit(0)
