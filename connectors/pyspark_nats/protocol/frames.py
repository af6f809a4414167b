"""The client protocol of NATS as bytes: parses and builds frames in bulk.  No I/O here.

A receive buffer holds mostly ``MSG`` and ``HMSG`` frames.  ``split`` finds them with a few NumPy
passes over the buffer.  Every line that looks like the head of a message is a candidate; the
lengths in the heads confirm or reject it, because each frame must end where the next one starts.
If a payload holds lines that look like heads, the lengths disagree, and a walk from frame to frame
finds the true heads.

Only offsets are computed.  A column is cut out of the buffer on demand; no caller needs all.

Values of headers as columns, cut out of many header blocks at once.  No I/O here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import FEW, int64s, kernels, rows_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt

    from pyspark_nats.arrow import Array

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]
    Octets = npt.NDArray[np.uint8]


def header_values(headers: Array, name: str, *, is_servers: bool = False) -> Array:
    """The first value of header ``name`` in each header block.

    Args:
        headers: length n, binary; null or empty where a message has no headers.
        name: in its spelling on the wire.
        is_servers: take the last value instead.  The server appends its own headers to those of the
            publisher, who may have written the same names.

    Returns:
        Length n, string, without surrounding spaces; null where the header is absent.
    """
    if headers.null_count == len(headers):
        return pa.nulls(len(headers), pa.string())
    key = f"\r\n{name}:".encode()
    if len(headers) <= FEW:
        return pa.array(few_header_values(headers.to_pylist(), name, is_servers), pa.string())
    has = kernels.fill_null(kernels.match_substring(headers, key.decode()), False)
    at = np.flatnonzero(np.asarray(has.to_numpy(zero_copy_only=False), bool))
    texts = pa.nulls(len(headers), pa.string())
    if len(at) == 0:
        return texts
    halves = kernels.split_pattern(
        headers.take(pa.array(at)), key, max_splits=1, reverse=is_servers
    )
    behind = halves.values.take(pa.array(halves.offsets.to_numpy()[:-1] + 1))
    cut = kernels.split_pattern(behind, _CRLF, max_splits=1)
    values = cut.values.take(cut.offsets[:-1])
    trimmed = kernels.utf8_trim_whitespace(as_text(values))
    if len(at) == len(headers):
        return trimmed
    place = np.zeros(len(headers), np.int64)
    place[at] = np.arange(len(at))
    absent = np.ones(len(headers), bool)
    absent[at] = False
    return trimmed.take(pa.array(place, mask=absent))


def few_header_values(
    headers: Iterable[bytes | None], name: str, is_servers: bool = False
) -> list[str | None]:
    """``header_values`` of few messages, as a list."""
    key = f"\r\n{name}:".encode()
    values: list[str | None] = []
    for header in headers:
        at = -1
        if header:
            at = header.rfind(key) if is_servers else header.find(key)
        if header is None or at < 0:
            values.append(None)
            continue
        value = header[at + len(key) :].split(_CRLF, 1)[0]
        values.append(value.decode(errors="replace").strip())
    return values


_CRLF = b"\r\n"
#: The reply subject is optional, and may look like a number; so the two heads differ.
_HEAD = re.compile(
    rb"MSG [^ \r\n]+ \d+ (?:[^ \r\n]+ )?(\d+)\r\n"
    rb"|HMSG [^ \r\n]+ \d+ (?:[^ \r\n]+ )?(\d+) (\d+)\r\n"
)
#: The longest control line.
_LINE_MAX = 64 * 1024
#: Digits of the longest length that a head may hold.
_DIGITS_MAX = 10
#: Digits of a time in nanoseconds since 1970, until the year 2286.
_TIME_DIGITS = 19
#: Up to so many bytes, a walk from frame to frame costs less than passes over the buffer; and with
#: frames of so many bytes.
_FEW_BYTES = 8 << 10
_LARGE_FRAME = 4 << 10
#: Start of a header block; a line break or the status of an answer follows.
_VERSION = b"NATS/1.0"
_STATUS = _VERSION + b" "
_BEAT = b"NATS/1.0 100 Idle Heartbeat"

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class _Layout:
    """Offsets of the frames' parts in the buffer, in bytes."""

    line: Ints
    line_end: Ints
    payload: Ints
    end: Ints
    has_header: Bools

    def of(self, which: Bools | slice) -> _Layout:
        """The layout of some of the frames."""
        return _Layout(
            self.line[which], self.line_end[which], self.payload[which], self.end[which],
            self.has_header[which],
        )  # fmt: skip


class Frame(NamedTuple):
    """One message."""

    sid: int
    subject: str
    #: Reply subject; empty without one.
    reply: bytes
    #: Header block; empty without one.
    header: bytes
    data: bytes

    @property
    def is_beat(self) -> bool:
        """Whether it is an idle heartbeat of a consumer."""
        return self.header.startswith(_BEAT)

    @property
    def is_status(self) -> bool:
        """Whether it is a status answer of the server without data."""
        return self.header.startswith(_STATUS)


class Frames:
    """Messages in order of arrival; every column has one entry for each message.

    The buffer must not change while columns are read.
    """

    def __init__(self, buffer: Buffer, layout: _Layout, consumed: int) -> None:
        self._buffer = buffer
        self._layout = layout
        #: Bytes of the buffer that these messages occupy; an incomplete message may follow.
        self.consumed = consumed

    def __len__(self) -> int:
        return len(self._layout.line)

    def where(self, keep: Bools) -> Frames:
        """The messages where ``keep`` is true."""
        if keep.all():
            return self
        return self.of(keep)

    def of(self, which: Bools | slice) -> Frames:
        """The messages where a mask is true, or of a slice."""
        return Frames(self._buffer, self._layout.of(which), self.consumed)

    def head(self, at: int) -> list[bytes]:
        """The words of one frame's first line."""
        line = slice(int(self._layout.line[at]), int(self._layout.line_end[at]))
        return bytes(self._buffer[line]).split(b" ")

    def reply_at(self, at: int) -> bytes:
        """One frame's reply subject; empty without one."""
        words = self.head(at)
        return words[3] if len(words) == (6 if words[0] == b"HMSG" else 5) else b""

    @cached_property
    def has_headers(self) -> bool:
        """Whether any of the messages has headers."""
        return bool(self._layout.has_header.any())

    @property
    def is_status(self) -> Bools:
        """Mask of the frames that are status answers of the server without data."""
        mask = np.zeros(len(self), bool)
        at = np.flatnonzero(self._layout.has_header)
        behind = self._layout.line_end[at] + 2 + len(_VERSION)
        mask[at] = np.frombuffer(self._buffer, np.uint8)[behind] == ord(" ")
        return mask

    @cached_property
    def data(self) -> Array:
        """The payloads, binary."""
        layout = self._layout
        return _slices(self._buffer, layout.payload, layout.end - 2, pa.binary())

    @cached_property
    def few(self) -> list[tuple[bytes, bytes]] | None:
        """Header block, empty without one, and payload of each message; None for many messages."""
        if len(self) > FEW:
            return None
        buffer, layout = memoryview(self._buffer), self._layout
        bounds = zip(*(part.tolist() for part in (layout.line_end, layout.payload, layout.end)),
                     strict=True)  # fmt: skip
        return [
            (bytes(buffer[line_end + 2 : payload]), bytes(buffer[payload : end - 2]))
            for line_end, payload, end in bounds
        ]

    @cached_property
    def header(self) -> Array:
        """The header blocks, binary, with their first line and their empty last one.

        Null or empty where there is none.
        """
        layout = self._layout
        if not self.has_headers:
            return pa.nulls(len(self), pa.binary())
        return _slices(self._buffer, layout.line_end + 2, layout.payload, pa.binary())

    @cached_property
    def subject(self) -> Array:
        """The subjects, string."""
        if self.few_subjects is not None:
            return pa.array(self.few_subjects, pa.string())
        layout = self._layout
        if len(self):
            # Mostly all have one length; then no search is needed.
            length = len(self.head(0)[1])
            starts = layout.line + len("MSG ") + layout.has_header
            behind = np.minimum(starts + length, layout.line_end)
            if (np.frombuffer(self._buffer, np.uint8)[behind] == ord(" ")).all():
                texts = as_text(_slices(self._buffer, starts, behind, pa.binary()))
                if not kernels.any(kernels.match_substring(texts, " ")).as_py():
                    return texts
        values, bounds = self._words
        return as_text(values.take(rows_at(bounds[:-1] + 1)).cast(pa.binary()))

    @cached_property
    def few_subjects(self) -> list[str] | None:
        """The subjects; None for many messages."""
        if self._heads is None:
            return None
        return [words[1].decode(errors="replace") for words in self._heads]

    @cached_property
    def sid(self) -> Ints:
        """The numbers of the subscriptions."""
        if self._heads is not None:
            return np.array([int(words[2]) for words in self._heads], np.int64)
        values, bounds = self._words
        return int64s(values.take(rows_at(bounds[:-1] + 2)))

    @cached_property
    def reply(self) -> Array:
        """The reply subjects, large string; null for a message without one."""
        values, bounds = self._words
        # MSG subject sid [reply] total; HMSG subject sid [reply] header total.
        has_reply = np.diff(bounds) == np.where(self._layout.has_header, 6, 5)
        at = pa.array(np.where(has_reply, bounds[:-1] + 3, 0), mask=~has_reply)
        return values.take(at)

    def reply_times_ns(self) -> Ints | None:
        """The last but one number of each reply subject, if all have 19 digits there.

        That is the time of a message of a consumer.  None for anything else, also with headers.
        """
        layout = self._layout
        if layout.has_header.any():
            return None
        octets = np.frombuffer(self._buffer, np.uint8)
        # The line ends with the size of the payload, and the reply before it with a count.
        sizes = layout.end - 2 - layout.payload
        space = layout.line_end - 2 - np.searchsorted(_POWERS, sizes, side="right")
        dot = space - 2
        for _ in range(_TIME_DIGITS):
            is_digit = octets[dot] != ord(".")
            if not is_digit.any():
                break
            dot -= is_digit
        first = dot - _TIME_DIGITS
        if not len(self) or first.min() < 1:
            return None
        if (octets[space] != ord(" ")).any() or (octets[first - 1] != ord(".")).any():
            return None
        # Of nineteen digits these are the first eight, and the last sixteen.
        starts = (first, dot - 16, dot - 8)
        highest, middle, lowest = (_eight_digits(self._buffer, at) for at in starts)
        if highest is None or middle is None or lowest is None:
            return None
        return highest // 10**5 * 10**16 + middle * 10**8 + lowest

    @cached_property
    def _heads(self) -> list[list[bytes]] | None:
        """The words of each head; None for many messages."""
        return [self.head(at) for at in range(len(self))] if len(self) <= FEW else None

    @cached_property
    def _words(self) -> tuple[Array, Ints]:
        """All words of all heads, and the index of each head's first word."""
        lines = _slices(self._buffer, self._layout.line, self._layout.line_end, pa.string())
        words = kernels.split_pattern(lines, " ")
        return words.values, words.offsets.to_numpy().astype(np.int64)


def split(buffer: Buffer) -> Frames:
    """Parse the complete messages at the start of ``buffer``.

    Stops before a partial message or another frame such as ``PING``; the caller reads on at
    ``consumed``.
    """
    layout = _layout_in_bulk(buffer) if _has_many(buffer) else None
    if layout is None:
        layout = _layout_by_walking(buffer)
    return Frames(buffer, layout, int(layout.end[-1]) if len(layout.end) else 0)


def few(buffer: Buffer) -> tuple[list[Frame], int] | None:
    """``split`` for few messages: each by itself, and the bytes of all; None for many.

    Columns of few messages cost more to make than to read.
    """
    if _has_many(buffer):
        return None
    found: list[Frame] = []
    at = 0
    with memoryview(buffer) as octets:
        while head := _HEAD.match(buffer, at):
            has_header, begin = head[2] is not None, head.end()
            payload = begin + int(head[2] or 0)
            end = begin + int(head[1] or head[3])
            if end + 2 > len(octets):
                break
            if len(octets) > FEW * max(end + 2, _LARGE_FRAME):
                # The others are mostly like this one.
                return None
            words = bytes(octets[at : begin - 2]).split(b" ")
            reply = words[3] if len(words) == 5 + has_header else b""
            subject = words[1].decode(errors="replace")
            header, data = bytes(octets[begin:payload]), bytes(octets[payload:end])
            found.append(Frame(int(words[2]), subject, reply, header, data))
            if len(found) > FEW:
                return None
            at = end + 2
    return found, at


def _has_many(buffer: Buffer) -> bool:
    """Whether there are probably many frames for the size of the buffer."""
    if len(buffer) <= _FEW_BYTES:
        return False
    # The others are mostly like the first.
    first = _HEAD.match(buffer)
    return first is None or int(first[1] or first[3]) < _LARGE_FRAME


def _layout_in_bulk(buffer: Buffer) -> _Layout | None:
    """The layout, or None if candidates mislead and a walk is needed."""
    octets = np.frombuffer(buffer, np.uint8)
    newlines = np.flatnonzero(octets == 0x0A)
    if len(newlines) == 0:
        return _EMPTY
    # A candidate starts after a newline and its line ends at the next one.
    starts = np.concatenate(([0], newlines[:-1] + 1))
    first = octets[starts]
    candidates = np.flatnonzero((first == ord("M")) | (first == ord("H")))
    starts, line_ends = starts[candidates], newlines[candidates] - 1
    has_header = first[candidates] == ord("H")
    is_head = (line_ends - starts < _LINE_MAX) & (line_ends - starts > len("MSG a 1 0"))
    tagged = np.minimum(starts + has_header, len(octets) - 4)
    for at, letter in enumerate(b"MSG "):
        is_head &= octets[tagged + at] == letter
    if not is_head.all():
        starts, line_ends, has_header = starts[is_head], line_ends[is_head], has_header[is_head]
    if len(starts) == 0 or starts[0] != 0:
        return _EMPTY
    total, behind = _number_before(octets, line_ends)
    header = np.zeros(len(starts), np.int64)
    if has_header.any():
        header[has_header] = _number_before(octets, behind[has_header])[0]
    if (total < 0).any() or (header < 0).any():
        return None
    end = line_ends + 2 + total + 2
    chained = np.ones(len(starts), bool)
    chained[1:] = end[:-1] == starts[1:]
    count = int(np.argmin(np.append((end <= len(octets)) & chained, False)))
    if 0 < count < len(starts) and starts[count] < end[count - 1]:
        return None
    return _Layout(starts, line_ends, line_ends + 2 + header, end, has_header).of(slice(count))


def _number_before(octets: Octets, ends: Ints) -> tuple[Ints, Ints]:
    """Decimal numbers that end before ``ends``, and the positions of the spaces before them.

    -1 for invalid numbers.
    """
    total = np.zeros(len(ends), np.int64)
    is_open = np.ones(len(ends), bool)
    at = ends.copy()
    scale = 1
    for _ in range(_DIGITS_MAX):
        at -= is_open
        digit = octets[at].astype(np.int64) - ord("0")
        is_open &= (digit >= 0) & (digit <= 9)
        if not is_open.any():
            break
        total += np.where(is_open, digit * scale, 0)
        scale *= 10
    total[(octets[at] != ord(" ")) | (at == ends - 1)] = -1
    return total, at


def _eight_digits(buffer: Buffer, starts: Ints) -> Ints | None:
    """Numbers of eight digits at ``starts``; None if one has another character.

    Eight octets are one integer here, of which the first digit is the lowest octet.
    """
    words: npt.NDArray[np.uint64] = np.ndarray(len(buffer) - 7, "<u8", buffer, strides=(1,))
    digits = words[starts] - np.uint64(0x3030303030303030)
    # Above nine, or below zero, an octet has its highest bit in one of the two.
    if ((digits | (digits + np.uint64(0x7676767676767676))) & np.uint64(0x8080808080808080)).any():
        return None
    pairs = digits * np.uint64(10) + (digits >> np.uint64(8))
    mask = np.uint64(0x000000FF000000FF)
    numbers = (pairs & mask) * np.uint64(1_000_000 << 32 | 100)
    numbers += ((pairs >> np.uint64(16)) & mask) * np.uint64(10_000 << 32 | 1)
    return (numbers >> np.uint64(32)).astype(np.int64)


def _layout_by_walking(buffer: Buffer) -> _Layout:
    rows: list[tuple[int, int, int, int, bool]] = []
    at = 0
    while head := _HEAD.match(buffer, at):
        line_end = head.end() - 2
        header = int(head[2] or 0)
        end = head.end() + int(head[1] or head[3]) + 2
        if end > len(buffer):
            break
        rows.append((at, line_end, head.end() + header, end, head[2] is not None))
        at = end
    if not rows:
        return _EMPTY
    columns = np.array(rows, np.int64).T
    return _Layout(columns[0], columns[1], columns[2], columns[3], columns[4] == 1)


def _slices(buffer: Buffer, starts: Ints, ends: Ints, kind: pa.DataType) -> Array:
    """Copies of ``buffer[starts[i]:ends[i]]``; the slices must be in order and not overlap."""
    if len(starts) == 0:
        return pa.array([], kind)
    if len(starts) <= FEW and pa.types.is_binary(kind):
        places = zip(starts.tolist(), ends.tolist(), strict=True)
        return pa.array([bytes(buffer[first:end]) for first, end in places], kind)
    # The slices and the gaps between them are one array; every other element is a slice.
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[0::2], bounds[1::2] = starts, ends
    both = pa.Array.from_buffers(
        kind, len(bounds) - 1, [None, pa.py_buffer(bounds.data), pa.py_buffer(buffer)]
    )
    return both.take(rows_at(np.arange(0, len(bounds) - 1, 2)))


#: The least numbers of two digits, of three, and so on.
_POWERS = 10 ** np.arange(1, _DIGITS_MAX + 1)
_NONE = np.zeros(0, np.int64)
_EMPTY = _Layout(_NONE, _NONE, _NONE, _NONE, np.zeros(0, bool))


def as_text(octets: Array) -> Array:
    """Binary as string; octets that are no UTF-8, which a publisher may write, are replaced."""
    try:
        return octets.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if one is None else one.decode(errors="replace") for one in octets.to_pylist()
        ]
        return pa.array(texts, pa.string())


def header_block(headers: Mapping[str, str]) -> bytes:
    """``headers`` in wire format; empty for none."""
    if not headers:
        return b""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def publish(subject: str, data: bytes, *, reply: str = "", header: bytes = b"") -> bytes:
    """A ``PUB`` or ``HPUB`` frame; ``header`` is a block from ``header_block``."""
    target = f"{subject} {reply}" if reply else subject
    if header:
        head = f"HPUB {target} {len(header)} {len(header) + len(data)}\r\n"
    else:
        head = f"PUB {target} {len(data)}\r\n"
    return b"".join((head.encode(), header, data, _CRLF))


def status(header: bytes) -> tuple[int, str] | None:
    """Status of an answer of the server without data: (404, "No Messages")."""
    line = header.split(_CRLF, 1)[0]
    if not line.startswith(b"NATS/1.0 "):
        return None
    code, _, text = line[9:].decode().partition(" ")
    return int(code), text
