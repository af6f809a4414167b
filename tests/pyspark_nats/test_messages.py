"""Broker times of many messages of a consumer, read from the lines before the payloads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pyspark_nats.protocol import frames
from pyspark_nats.source import messages
from tests.support.together import together

COUNT = 400
FIRST_NS = 1_764_000_000_123_456_789


def _frames(prefix: str = "$JS.ACK.S.C.1", suffix: str = "", head: str = "") -> frames.Frames:
    """Messages whose sequences, counts and payloads have different lengths."""
    found = b""
    for n in range(COUNT):
        reply = f"{prefix}.{95 + n}.{n + 1}.{FIRST_NS + n * 1001}.{COUNT - n}{suffix}"
        payload = b"a 1.2\r\nMSG b 1 3\r\n" * (n % 3)
        sizes = f"{len(head)} {len(head) + len(payload)}" if head else f"{len(payload)}"
        kind = "HMSG" if head else "MSG"
        found += f"{kind} a.b 7 {reply} {sizes}\r\n{head}".encode() + payload + b"\r\n"
    return frames.split(found)


def _two_parts() -> messages.Messages:
    return messages.concatenated(
        [messages.of_consumer("S", "C", 0, _frames())[0] for _ in range(2)]
    )


def _times() -> list[int]:
    return [FIRST_NS + n * 1001 for n in range(COUNT)]


def test_they_are_read_in_bulk() -> None:
    times = _frames().reply_times_ns()
    assert times is not None
    assert times.tolist() == _times()


@pytest.mark.parametrize(
    ("prefix", "suffix", "head"),
    [
        ("$JS.ACK.hub.account.S.C.1", ".token", ""),
        ("$JS.ACK.hub.account.S.C.1", ".123", ""),
        ("$JS.ACK.S.C.1", "", "NATS/1.0\r\na: b\r\n\r\n"),
    ],
)
def test_other_forms_are_read_one_word_after_the_other(prefix: str, suffix: str, head: str) -> None:
    found = _frames(prefix, suffix, head)
    assert found.reply_times_ns() is None
    got, pending = messages.of_consumer("S", "C", 0, found)
    assert got.time_ns.tolist() == _times()
    assert got.sequence.tolist() == list(range(95, 95 + COUNT))
    assert pending == 1


@together("at", range(19))
@together("other", "/:a.")
def test_a_time_with_another_character_is_not_read_in_bulk(at: int, other: str) -> None:
    time = "1764000000123456789"
    wrong = time[:at] + other + time[at + 1 :]
    good, bad = (f"MSG a.b 7 $JS.ACK.S.C.1.9.9.{one}.12 5\r\nhello\r\n" for one in (time, wrong))
    assert frames.split((good * COUNT).encode()).reply_times_ns() is not None
    assert frames.split((good * COUNT + bad + good).encode()).reply_times_ns() is None


@pytest.mark.parametrize("has_columns", [False, True])
def test_messages_are_taken_before_and_after_their_columns_are_made(has_columns: bool) -> None:
    whole = _two_parts()
    if has_columns:
        assert len(whole.data) == 2 * COUNT
    keep = np.arange(2 * COUNT) % 3 == 1
    taken = whole.take(keep)
    assert len(taken) == keep.sum()
    other = _two_parts()
    assert taken.sequence.tolist() == other.sequence[keep].tolist()
    assert taken.time_ns.tolist() == other.time_ns[keep].tolist()
    for name in ("data", "subject", "header"):
        assert getattr(taken, name).equals(getattr(other, name).filter(pa.array(keep)))


@pytest.mark.parametrize("has_columns", [False, True])
@pytest.mark.parametrize(("first", "end"), [(0, 5), (COUNT - 3, COUNT + 3), (COUNT, 2 * COUNT)])
def test_slices_are_taken_of_before_and_after_columns_are_made(
    first: int, end: int, has_columns: bool
) -> None:
    whole, other = _two_parts(), _two_parts()
    if has_columns:
        assert len(whole.data) == 2 * COUNT
    part = whole.slice(first, end)
    keep = np.arange(end - first) % 3 == 1
    for found, mask in ((part, np.ones(end - first, bool)), (part.take(keep), keep)):
        at = np.arange(first, end)[mask]
        assert found.sequence.tolist() == other.sequence[at].tolist()
        assert found.time_ns.tolist() == other.time_ns[at].tolist()
        for name in ("data", "subject", "header"):
            assert getattr(found, name).equals(getattr(other, name).take(pa.array(at)))


def test_messages_without_a_reply_have_none() -> None:
    octets = b"MSG a.b 7 5\r\nhello\r\n" * COUNT
    found = frames.split(octets)
    assert len(found) == COUNT
    assert found.reply_times_ns() is None
    assert np.array_equal(found.sid, np.full(COUNT, 7))
