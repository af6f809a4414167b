"""Reader of flat JSON objects that share one layout, without a parser.

One encoder writes every event with the same keys in the same order with the same spaces.  The first
text of a block gives the pieces between its values.  If every text of the block has those pieces
with JSON values of the right types in between, it is an object with those values.  A few passes
over the block check that.

No value may hold a quote, so a text has exactly the quotes of the pieces.  The quotes of the block
therefore give the position of every piece.

Questions about many JSON texts at once, answered by their octets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from pyspark_nats.arrow import kernels, rows_at
from pyspark_nats.decode import columns

if TYPE_CHECKING:
    import numpy.typing as npt

    from pyspark_nats.arrow import Array
    from pyspark_nats.decode.result import Ints

    Places = npt.NDArray[np.int64]

    Flags = npt.NDArray[np.bool_]


_KEY = re.compile(rb' *[{,] *"([^"\\]*)" *: *')
_PLAIN = re.compile(rb'[^",{}\[\]: ]+')
_END = re.compile(rb" *} *")
_WORD = 8


@dataclass(frozen=True, slots=True)
class _Piece:
    """The text before a value, or after the last one."""

    octets: bytes
    #: Number of quotes in the earlier pieces.
    quotes_before: int

    @property
    def lead(self) -> int:
        """Octets before its first quote; all of them without one."""
        at = self.octets.find(b'"')
        return at if at >= 0 else len(self.octets)


@dataclass(frozen=True, slots=True)
class _Layout:
    #: One more than names.
    pieces: tuple[_Piece, ...]
    names: tuple[str, ...]
    #: Whether the value is a string.
    is_text: tuple[bool, ...]

    @property
    def quotes(self) -> int:
        """Number of quotes in a text."""
        last = self.pieces[-1]
        return last.quotes_before + last.octets.count(b'"')


def decode_alike(texts: Array, schema: pa.Schema) -> pa.RecordBatch | None:
    """One row for each text; None if the texts do not all have one layout."""
    bounds = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1]
    layout = _layout_of(texts[0].as_py(), schema)
    if layout is None:
        return None
    whole = np.frombuffer(texts.buffers()[2], np.uint8)[bounds[0] : bounds[-1]]
    quotes = np.flatnonzero(whole == ord('"'))
    if len(quotes) != layout.quotes * len(texts):
        return None
    # Control characters and backslashes need the parser; the cast checks the encoding.
    if whole.min() < ord(" ") or (whole == ord("\\")).any():
        return None
    try:
        if whole.max() > 127:
            texts.cast(pa.string())
        block = _Block(whole, bounds.astype(np.int64) - int(bounds[0]), quotes, layout)
        if not block.has_pieces():
            return None
        columns: dict[str, Array] = {
            name: block.column(n, schema) for n, name in enumerate(layout.names)
        }
    except pa.ArrowInvalid:
        return None
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _layout_of(text: bytes, schema: pa.Schema) -> _Layout | None:
    try:
        event = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(event, dict) or not all(name in event for name in schema.names):
        return None
    pieces: list[_Piece] = []
    names: list[str] = []
    is_text: list[bool] = []
    at = quotes = 0
    before = b""
    while key := _KEY.match(text, at):
        at = key.end()
        value = _PLAIN.match(text, at)
        if text[at : at + 1] == b'"':
            piece, end = before + key[0] + b'"', text.find(b'"', at + 1)
            before, at = b'"', end + 1
        elif value is not None:
            piece, before, at = before + key[0], b"", value.end()
        else:
            return None
        pieces.append(_Piece(piece, quotes))
        quotes += piece.count(b'"')
        names.append(key[1].decode())
        is_text.append(value is None)
    ending = _END.fullmatch(text, at)
    if ending is None or not names or len(set(names)) < len(names):
        return None
    pieces.append(_Piece(before + ending[0], quotes))
    return _Layout(tuple(pieces), tuple(names), tuple(is_text))


class _Block:
    """Concatenated texts, and the expected positions of their layout's pieces."""

    def __init__(
        self, octets: npt.NDArray[np.uint8], bounds: Places, quotes: Places, layout: _Layout
    ) -> None:
        self._octets = octets
        self._layout = layout
        self._count = len(bounds) - 1
        self._is_value = rows_at(np.arange(0, 2 * self._count - 1, 2))
        # Words may be read from any octet on, also from the last ones.
        self._padded = np.concatenate((octets, np.zeros(_WORD, np.uint8)))
        self._words: npt.NDArray[np.uint64] = np.ndarray(
            (len(octets) + 1,), np.dtype("<u8"), self._padded, strides=(1,)
        )
        self._buffer = pa.py_buffer(self._padded.data)
        by_quote = np.ascontiguousarray(quotes.reshape(self._count, -1).T)
        self._first, self._end = bounds[:-1], bounds[1:]
        #: Start of each piece.
        self._starts = [
            by_quote[piece.quotes_before] - piece.lead
            if b'"' in piece.octets
            else self._end - piece.lead
            for piece in layout.pieces
        ]

    def has_pieces(self) -> bool:
        """Whether every text consists of the pieces with values between them."""
        pieces, starts = self._layout.pieces, self._starts
        if not (starts[0] == self._first).all():
            return False
        if not (starts[-1] + len(pieces[-1].octets) == self._end).all():
            return False
        return all(self._stands(piece.octets, at) for piece, at in zip(pieces, starts, strict=True))

    def _stands(self, octets: bytes, at: Places) -> bool:
        if int(at.min()) < 0:
            return False
        for first in range(0, len(octets), _WORD):
            # The last word overlaps the previous one.
            first = max(0, min(first, len(octets) - _WORD))
            part = octets[first : first + _WORD]
            words = self._words[at + first if first else at]
            if len(part) < _WORD:
                words &= np.uint64((1 << 8 * len(part)) - 1)
            if not (words == np.uint64(int.from_bytes(part, "little"))).all():
                return False
        return True

    def column(self, number: int, schema: pa.Schema) -> Array | None:
        """The values of an attribute; None for one that is not in the schema.

        Raises:
            ArrowInvalid: one of them is not a JSON value of the type.
        """
        name, is_text = self._layout.names[number], self._layout.is_text[number]
        start = self._starts[number] + len(self._layout.pieces[number].octets)
        end = self._starts[number + 1]
        if name not in schema.names:
            if not is_text:
                self._numbers(start, end, pa.float64())
            return None
        kind = schema.field(name).type
        if is_text:
            return _from_text(self._slices(start, end), kind)
        if pa.types.is_boolean(kind):
            return self._truths(start, end)
        if pa.types.is_integer(kind):
            return self._numbers(start, end, kind)
        if pa.types.is_floating(kind):
            values, limit = self._numbers(start, end, kind), whole_max(kind)
            if (
                int((end - start).max()) >= len(str(limit))
                and (np.abs(values.to_numpy(zero_copy_only=False)) >= limit).any()
            ):
                raise pa.ArrowInvalid("a number that may lose digits")
            return values
        raise pa.ArrowInvalid("a type that is not read here")

    def _slices(self, start: Places, end: Places) -> Array:
        """The octets of the values; the block is known to be text."""
        both = np.empty(2 * self._count, np.int32)
        both[0::2], both[1::2] = start, end
        if (both[1::2] < both[0::2]).any():
            raise pa.ArrowInvalid("pieces overlap")
        # The values and the gaps between them are one array; every other element is a value.
        kind: Any = pa.string()
        slices = pa.Array.from_buffers(
            kind, 2 * self._count - 1, [None, pa.py_buffer(both.data), self._buffer]
        )
        return slices.take(self._is_value)

    def _truths(self, start: Places, end: Places) -> Array:
        words = self._words[start]
        lengths = end - start
        is_true = ((words & np.uint64(0xFFFFFFFF)) == _TRUE) & (lengths == 4)
        is_false = ((words & np.uint64(0xFFFFFFFFFF)) == _FALSE) & (lengths == 5)
        if not (is_true | is_false).all():
            raise pa.ArrowInvalid("neither true nor false")
        return pa.array(is_true)

    def _numbers(self, start: Places, end: Places, kind: pa.DataType) -> Array:
        texts = self._slices(start, end)
        octets = texts.buffers()[2]
        # Digits, point and sign: the parser reads exponents, and a word is not a number.
        held = np.frombuffer(octets, np.uint8)[: int((end - start).sum())]
        if (held - np.uint8(ord("-")) > ord("9") - ord("-")).any():
            raise pa.ArrowInvalid("more than digits")
        first = self._octets[start]
        negative = first == ord("-")
        if negative.any():
            start = start + negative
            first = self._padded[start]
        # JSON requires digits on both sides of the point, and allows no leading zero.
        zero_first = (first == ord("0")) & (end - start > 1)
        if (first < ord("0")).any() or (self._octets[end - 1] < ord("0")).any():
            raise pa.ArrowInvalid("a number without a digit")
        if zero_first.any() and (self._padded[start[zero_first] + 1] != ord(".")).any():
            raise pa.ArrowInvalid("a number with a zero in front")
        if not pa.types.is_floating(kind):
            return texts.cast(kind)
        values = texts.cast(pa.float64())
        return values if kind == pa.float64() else values.cast(kind, safe=False)


_TRUE = np.uint64(int.from_bytes(b"true", "little"))
_FALSE = np.uint64(int.from_bytes(b"false", "little"))


def _from_text(texts: Array, kind: pa.DataType) -> Array:
    return texts if pa.types.is_string(kind) else columns.of_type(texts, kind)


def whole_max(kind: pa.DataType) -> int:
    """The number up to which a floating-point type has every whole number."""
    return 1 << (24 if kind.bit_width == 32 else 53)


def is_read(kind: pa.DataType) -> bool:
    """Whether a type may be read here."""
    return not (pa.types.is_nested(kind) or pa.types.is_decimal(kind))


def bounds_of(texts: Array) -> Ints:
    """Start of each text in the buffer, and the end of the last one."""
    ends = np.frombuffer(texts.buffers()[1], np.int32)
    return ends[texts.offset :][: len(texts) + 1].astype(np.int64)


def octets_of(texts: Array) -> npt.NDArray[np.uint8]:
    """The octets of the buffer that the texts are in."""
    buffer = texts.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)


def are_plain(texts: Array) -> Flags:
    """Mask of the texts that start with ``{`` and end with ``}``, or ``}`` and a CR."""
    if len(texts) == 0:
        return np.zeros(0, bool)
    octets, bounds = octets_of(texts), bounds_of(texts)
    long = np.diff(bounds) >= 2
    if not long.all():
        flags = np.zeros(len(texts), bool)
        if long.any():
            flags[long] = are_plain(texts.filter(pa.array(long)))
        return flags
    last: npt.NDArray[np.uint8] = octets[bounds[1:] - 1]
    is_cut = last == ord("\r")
    if is_cut.any():
        last = np.where(is_cut, octets[bounds[1:] - 2], last)
    flags = (octets[bounds[:-1]] == ord("{")) & (last == ord("}"))
    return np.asarray(flags, bool)


def has_line_feed(texts: Array) -> bool:
    """Whether a text holds a line feed."""
    bounds = bounds_of(texts)
    return bool((octets_of(texts)[bounds[0] : bounds[-1]] == ord("\n")).any())


def lines_of(texts: Array) -> tuple[Array, Ints]:
    """The lines that are not blank, and the text of each."""
    split = kernels.split_pattern(texts, b"\n")
    offsets = split.offsets.to_numpy()
    lines = split.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    parent = np.repeat(np.arange(len(texts)), np.diff(offsets))
    is_blank = kernels.match_substring_regex(lines, r"^[ \t\r]*$").to_numpy(zero_copy_only=False)
    if is_blank.any():
        lines, parent = lines.filter(pa.array(~is_blank)), parent[~is_blank]
    return lines, parent


def is_utf8(joined: Array) -> bool:
    """Whether all octets are text."""
    try:
        joined.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def may_hold_words(text: pa.Buffer) -> bool:
    """Whether NaN or Inf appears at the position of a value."""
    octets = np.frombuffer(memoryview(text), np.uint8)
    for first, second, third in (b"NaN", b"Inf"):
        at = np.flatnonzero(octets[:-2] == first)
        at = at[(octets[at + 1] == second) & (octets[at + 2] == third)]
        if np.isin(octets[at - 1], _BEFORE_VALUES).any():
            return True
    return False


#: Octets after which a value may start; a text starts with a brace.
_BEFORE_VALUES: Final = np.frombuffer(b":,[- \t\r\n", np.uint8)
