"""Messages with what careless and hostile publishers write around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

from mesh.model import names
from tests.fuzz import messages
from tests.fuzz.messages import Message

_START_MS: Final = 1_700_000_000_000
#: Times of events: of usual ones, of careless publishers, and out of bounds.
_TIMES: Final = (
    st.integers(0, 6 * 3_600_000).map(lambda ms: _START_MS + ms)
    | st.sampled_from([0, 1, -1, _START_MS // 1000, _START_MS * 1000, 10**18, 10**30, 2**63])
    | st.integers(-(2**64), 2**64)
)
_SERVERS: Final = st.sampled_from(
    [
        b"Nats-Rollup: all", b"Nats-Rollup: sub", b"Nats-Msg-Id: a", b"Nats-TTL: 1s",
        b"Nats-TTL: never", b"Nats-Marker-Reason: MaxAge", b"Nats-Expected-Stream: other",
        b"Nats-Expected-Last-Sequence: 1", b"Nats-Batch-Id: b", b"Nats-Batch-Sequence: 1",
        b"Nats-Batch-Commit: 1", b"Nats-Schedule: @every 1s", b"Nats-Schedule-Target: x",
        b"Nats-Sequence: 2", b"Nats-Subject: mesh._marker.x", b"Nats-Num-Pending: 0",
        b"Nats-Stream: other", b"Nats-Last-Sequence: 9", b"Nats-UpTo-Sequence: 1",
        b"Nats-Time-Stamp: 2001-01-01T00:00:00Z", b"Nats-Incr: 1", b"KV-Operation: DEL",
        b"Status: 404", b"Description: No Messages", b"Nats-Pending-Messages: 0",
    ]
)  # fmt: skip
#: First line of a header block: publishers can write a status there.
_VERSIONS: Final = st.just(b"NATS/1.0") | st.sampled_from(
    [b"NATS/1.0 404 No Messages", b"NATS/1.0 503", b"NATS/1.0 204 EOB", b"NATS/1.0 100 Idle"]
)


@dataclass(frozen=True)
class Sent:
    """A message with what its publisher writes around it."""

    message: Message
    #: The first line of its header block.
    version: bytes
    #: Of the header ``Mesh-Timestamp``; None for none.
    time_ms: int | None
    #: Lines of the server's own headers.
    forged: tuple[bytes, ...]

    @property
    def header(self) -> bytes:
        """The header block; empty for none."""
        lines = [*self.message.header, *self.forged]
        if self.time_ms is not None:
            lines.append(f"{names.EVENT_TIME_HEADER}: {self.time_ms}".encode())
        if not lines and self.version == b"NATS/1.0":
            return b""
        return self.version + b"\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


_GOOD: Final = st.builds(
    Sent,
    messages.GOOD,
    st.just(b"NATS/1.0"),
    st.integers(0, 6 * 3_600_000).map(lambda ms: _START_MS + ms),
    st.just(()),
)
_ANY: Final = st.builds(
    Sent,
    messages.GOOD | messages.HOSTILE,
    _VERSIONS,
    st.none() | _TIMES,
    st.lists(_SERVERS, max_size=2).map(tuple),
)
#: Messages in the batches in which they are published.
BATCHES: Final = st.lists(st.lists(_GOOD | _ANY, min_size=1, max_size=6), min_size=1, max_size=4)
