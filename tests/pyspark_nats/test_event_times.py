"""Times that events bring: within bounds of the server's time, or recorded as unreadable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_nats import decode, encode
from pyspark_nats.protocol import frames
from pyspark_nats.source import rows
from pyspark_nats.source.messages import Messages

SCHEMA = pa.schema([("id", pa.int32())])
DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
LIMITS = decode.MessageLimits(event_time_ahead_ms=DAY_MS)
ARROW = "application/vnd.apache.arrow.stream"


def decoded(
    payloads: list[bytes], own_ms: list[int | None], limits: decode.MessageLimits = LIMITS
) -> decode.DecodeResult:
    types = pa.array([None if one[:1] in b"[{" else ARROW for one in payloads], pa.string())
    found = decode.decode_messages(pa.array(payloads), types, SCHEMA, limits=limits)
    stored_ms = np.full(len(payloads), NOW_MS)
    return decode.with_event_times(found, pa.array(own_ms, pa.int64()), lambda: stored_ms, limits)


def arrow_events(*times: int | None) -> bytes:
    batch = pa.RecordBatch.from_pydict({"id": list(range(len(times)))}, SCHEMA)
    payloads, _ = encode.to_arrow(batch, pa.array(times, pa.int64()), 1000)
    return bytes(payloads[0].as_py())


@pytest.mark.parametrize("time_ms", [-1, -(10**18) + 1, NOW_MS + DAY_MS + 1, 10**18 - 1, 2**63 - 1])
def test_a_time_out_of_bounds_is_an_error_of_its_event_alone(time_ms: int) -> None:
    found = decoded(
        [b'{"id":7}', b'{"id":8}', arrow_events(0, time_ms, None), b'{"id":9}'],
        [5, time_ms, None, None],
    )
    assert found.rows.column("id").to_pylist() == [7, 0, 2, 9]
    assert found.event_time_ms.to_pylist() == [5, 0, None, None]
    assert found.message.tolist() == [0, 2, 2, 3]
    assert found.index.tolist() == [0, 0, 2, 0]
    assert [error[:2] for error in found.errors] == [(1, 0), (2, 1)]
    assert found.errors[0][2].startswith(f"event time {time_ms} is ")


@pytest.mark.parametrize("time_ms", [0, 1, NOW_MS - 1, NOW_MS + DAY_MS])
def test_a_time_within_bounds_is_the_events(time_ms: int) -> None:
    found = decoded([b'[{"id":1},{"id":2}]'], [time_ms])
    assert (found.errors, found.event_time_ms.to_pylist()) == ([], [time_ms, time_ms])


def test_any_time_is_accepted_without_a_limit() -> None:
    found = decoded([b'{"id":1}', b'{"id":1}'], [-1, 10**18 - 1], decode.MessageLimits())
    assert (found.errors, found.event_time_ms.to_pylist()) == ([], [-1, 10**18 - 1])


def test_many_times_out_of_bounds_are_a_few_errors() -> None:
    found = decoded([arrow_events(*[-1] * 900), b'{"id":1}'], [None, None])
    assert len(found.errors) == 100
    assert found.message.tolist() == [1]


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [("5", 5), ("-5", -5), ("x", None), ("", None), ("1" * 18, int("1" * 18)),
     ("1" * 19, 10**18 - 1), ("-" + "1" * 99, 1 - 10**18), ("1e3", None)],
)  # fmt: skip
def test_a_number_of_many_digits_is_no_plausible_time(text: str, time_ms: int | None) -> None:
    blocks = pa.array([b"", frames.header_block({"T": text}), frames.header_block({"T": "1"})])
    none: Any = None
    messages = Messages("S", np.arange(3), none, lambda: blocks, none, none)
    assert rows.event_times(messages, "T").to_pylist() == [None, time_ms, 1]
