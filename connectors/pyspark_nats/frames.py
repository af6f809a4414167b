"""The client protocol of NATS as bytes: frames taken apart in bulk, and made.  No I/O here.

A buffer of what the server sent is mostly ``MSG`` and ``HMSG`` frames.  ``split`` finds them all
with a few passes of NumPy and Arrow over the buffer: every line that looks like the head of a
message is a candidate, and the lengths in the heads prove or disprove the candidates, because each
frame has to end where the next one starts.  A payload may hold lines that look like heads; then the
lengths disagree, and a walk from frame to frame finds the true ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import int64s, kernels, rows_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from pyspark_nats.arrow import Array

    Ints = npt.NDArray[np.int64]

_CRLF = b"\r\n"
#: The reply subject is optional, and may look like a number; so the two heads are told apart.
_HEAD = re.compile(
    rb"MSG [^ \r\n]+ \d+ (?:[^ \r\n]+ )?(\d+)\r\n"
    rb"|HMSG [^ \r\n]+ \d+ (?:[^ \r\n]+ )?(\d+) (\d+)\r\n"
)
#: A control line longer than this is no control line.
_LINE_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Frames:
    """Messages in the order in which they came; every column has one entry a message."""

    subject: Array
    sid: Ints
    #: Null where the message has none.
    reply: Array
    #: The header block with its first line and its empty last one; empty where there is none.
    header: Array
    data: Array
    #: Bytes of the buffer that these messages took; what follows is no complete message.
    consumed: int

    def __len__(self) -> int:
        return len(self.sid)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the parts of the frames stand in the buffer, in bytes."""

    line: Ints
    line_end: Ints
    payload: Ints
    end: Ints


def split(buffer: bytes | bytearray | memoryview) -> Frames:
    """Take apart the complete messages at the start of ``buffer``.

    Stops at the first thing that is no complete message: a partial one, or another frame such as
    ``PING``, which is the caller's to read at ``consumed``.
    """
    layout = _layout_in_bulk(buffer)
    if layout is None:
        layout = _layout_by_walking(buffer)
    return _columns(buffer, layout)


def _layout_in_bulk(buffer: bytes | bytearray | memoryview) -> _Layout | None:
    """The layout, or None when candidates mislead and a walk is needed."""
    octets = np.frombuffer(buffer, np.uint8)
    newlines = np.flatnonzero(octets == 0x0A)
    if len(newlines) == 0:
        return _EMPTY
    # A candidate starts behind a newline and its line ends at the next one.
    starts = np.concatenate(([0], newlines[:-1] + 1))
    first = octets[starts]
    is_head = (first == ord("M")) | (first == ord("H"))
    starts, line_ends = starts[is_head], newlines[is_head] - 1
    tagged = np.minimum(starts + (octets[starts] == ord("H")), len(octets) - 4)
    is_head = (
        (octets[tagged] == ord("M"))
        & (octets[tagged + 1] == ord("S"))
        & (octets[tagged + 2] == ord("G"))
        & (octets[tagged + 3] == ord(" "))
        & (line_ends - starts < _LINE_MAX)
    )
    starts, line_ends = starts[is_head], line_ends[is_head]
    if len(starts) == 0 or starts[0] != 0:
        return _EMPTY
    lines = _slices(buffer, starts, line_ends, pa.large_string())
    tokens = kernels.split_pattern(lines, " ")
    try:
        total, header = _sizes(tokens, octets[starts] == ord("H"))
    except pa.ArrowInvalid:
        return None
    payload = line_ends + 2 + header
    end = line_ends + 2 + total + 2
    fits = end <= len(octets)
    chained = np.ones(len(starts), bool)
    chained[1:] = end[:-1] == starts[1:]
    count = int(np.argmin(np.append(fits & chained, False)))
    if 0 < count < len(starts) and starts[count] < end[count - 1]:
        return None
    return _Layout(starts[:count], line_ends[:count], payload[:count], end[:count])


def _sizes(tokens: Array, has_header: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Total and header length in bytes, from the last tokens of each head."""
    offsets = tokens.offsets.to_numpy()
    last = offsets[1:] - 1
    total = int64s(tokens.values.take(pa.array(last)))
    header = np.zeros(len(total), np.int64)
    with_header = np.flatnonzero(has_header)
    header[with_header] = int64s(tokens.values.take(pa.array(last[with_header] - 1)))
    return total, header


def _layout_by_walking(buffer: bytes | bytearray | memoryview) -> _Layout:
    rows: list[tuple[int, int, int, int]] = []
    at = 0
    while found := _HEAD.match(buffer, at):
        line_end = found.end() - 2
        header = int(found[2] or 0)
        end = found.end() + int(found[1] or found[3]) + 2
        if end > len(buffer):
            break
        rows.append((at, line_end, found.end() + header, end))
        at = end
    if not rows:
        return _EMPTY
    columns = np.array(rows, np.int64).T
    return _Layout(columns[0], columns[1], columns[2], columns[3])


def _columns(buffer: bytes | bytearray | memoryview, layout: _Layout) -> Frames:
    tokens = kernels.split_pattern(
        _slices(buffer, layout.line, layout.line_end, pa.large_string()), " "
    )
    offsets = tokens.offsets.to_numpy()
    values = tokens.values
    octets = np.frombuffer(buffer, np.uint8)
    has_header = (octets[layout.line] == ord("H")) if len(layout.line) else np.zeros(0, bool)
    # MSG subject sid [reply] total; HMSG subject sid [reply] header total.
    has_reply = (offsets[1:] - offsets[:-1]) == np.where(has_header, 6, 5)
    reply_at = pa.array(np.where(has_reply, offsets[:-1] + 3, 0), mask=~has_reply)
    return Frames(
        subject=values.take(pa.array(offsets[:-1] + 1)).cast(pa.string()),
        sid=int64s(values.take(pa.array(offsets[:-1] + 2))),
        reply=values.take(reply_at),
        header=_slices(buffer, layout.line_end + 2, layout.payload, pa.large_binary()),
        data=_slices(buffer, layout.payload, layout.end - 2, pa.large_binary()).cast(pa.binary()),
        consumed=int(layout.end[-1]) if len(layout.end) else 0,
    )


def _slices(
    buffer: bytes | bytearray | memoryview, starts: Ints, ends: Ints, kind: pa.DataType
) -> Array:
    """Copies of ``buffer[starts[i]:ends[i]]``; the slices must be in order and not overlap."""
    if len(starts) == 0:
        return pa.array([], kind)
    # The slices and the gaps between them are one array; every other element is wanted.
    bounds = np.empty(2 * len(starts), np.int64)
    bounds[0::2], bounds[1::2] = starts, ends
    both = pa.Array.from_buffers(
        kind, len(bounds) - 1, [None, pa.py_buffer(bounds.data), pa.py_buffer(buffer)]
    )
    return both.take(rows_at(np.arange(0, len(bounds) - 1, 2)))


_NONE = np.zeros(0, np.int64)
_EMPTY = _Layout(_NONE, _NONE, _NONE, _NONE)


def header_values(headers: Array, name: str) -> Array:
    """The first value of header ``name`` in each header block.

    Args:
        headers: length n, binary; null or empty where a message has no headers.
        name: as it is written on the wire.

    Returns:
        Length n, string, without surrounding spaces; null where the header is absent.
    """
    key = f"\r\n{name}:".encode()
    has = kernels.fill_null(kernels.match_substring(headers, key.decode()), False)
    at = np.flatnonzero(np.asarray(has.to_numpy(zero_copy_only=False), bool))
    texts = pa.nulls(len(headers), pa.string())
    if len(at) == 0:
        return texts
    halves = kernels.split_pattern(headers.take(pa.array(at)), key, max_splits=1)
    behind = halves.values.take(pa.array(halves.offsets.to_numpy()[:-1] + 1))
    cut = kernels.split_pattern(behind, _CRLF, max_splits=1)
    found = cut.values.take(cut.offsets[:-1])
    trimmed = kernels.utf8_trim_whitespace(found.cast(pa.string(), safe=False))
    if len(at) == len(headers):
        return trimmed
    place = np.zeros(len(headers), np.int64)
    place[at] = np.arange(len(at))
    absent = np.ones(len(headers), bool)
    absent[at] = False
    return trimmed.take(pa.array(place, mask=absent))


def header_block(headers: Mapping[str, str]) -> bytes:
    """``headers`` as they stand on the wire; empty for none."""
    if not headers:
        return b""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def publish(subject: str, data: bytes, *, reply: str = "", header: bytes = b"") -> bytes:
    """A ``PUB`` or ``HPUB`` frame; ``header`` is a block as ``header_block`` makes it."""
    target = f"{subject} {reply}" if reply else subject
    if header:
        head = f"HPUB {target} {len(header)} {len(header) + len(data)}\r\n"
    else:
        head = f"PUB {target} {len(data)}\r\n"
    return b"".join((head.encode(), header, data, _CRLF))


def status(header: bytes) -> tuple[int, str] | None:
    """The status of a message that is the server's answer and no data: (404, "No Messages")."""
    line = header.split(_CRLF, 1)[0]
    if not line.startswith(b"NATS/1.0 "):
        return None
    code, _, text = line[9:].decode().partition(" ")
    return int(code), text
