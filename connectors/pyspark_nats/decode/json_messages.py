"""Decoder of JSON messages, whole blocks at a time.

Flat objects with one layout are read by ``json_layout``, others by Arrow's parser.  The rules are
those of ``decode.rules``.  Arrow's parser is more lenient (a missing attribute reads as null) and
rejects a block with one wrong value.  So a rejected block is halved, rows with nulls are checked
again, and the rest is read message by message.  All three ways give the same rows.

A parsed block has one row for each message, for this reason: every text starts with ``{`` and ends
with ``}``, and a line feed separates texts.  The parser accepts no line feed inside a string, and
inside an object or an array no ``{`` may follow a ``}``.  So no value continues from one text into
the next, and each text holds at least one object.  Equal numbers of rows and texts then mean one
row each.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from pyspark_nats.arrow import arrow, concat_batches, kernels
from pyspark_nats.decode import columns, json_layout, rules
from pyspark_nats.decode.result import part, row_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

    from pyspark_nats.arrow import Array, DataType
    from pyspark_nats.decode.result import DecodedPart, Ints, MessageLimits, Unreadable

    Flags = npt.NDArray[np.bool_]

#: Up to so many messages, reading one by one costs less than the passes over a block.
_FEW: Final = 128
#: For fewer texts, reading one by one costs no more than another attempt of the parser.
_TEXTS_MIN: Final = 512
#: Octets that are checked together for a common layout, so that they stay in the cache.
_ALIKE_BYTES: Final = 480 << 10
#: After a block without a common layout, one of this many blocks is tried.
_ALIKE_SKIPPED: Final = 5
#: A block's text must stay addressable by 32-bit offsets.
_BLOCK_BYTES_MAX: Final = 64 << 20


def decode_json(
    data: Array,
    at: Ints,
    schema: pa.Schema,
    missing: str,
    errors: list[Unreadable],
    limits: MessageLimits,
) -> list[DecodedPart]:
    """Decode JSON messages.

    Args:
        data: length n, binary, no nulls.
        at: length n, the messages' numbers.
        schema: the attributes.
        missing: "error" or "null".
        errors: receives what can't be read.
        limits: of one message.
    """
    parts: list[DecodedPart] = []
    odd: list[Ints] = []
    if len(data) > _FEW and len(schema) and all(_is_parsed(field.type) for field in schema):
        blocks = _Blocks(schema, missing == "error", at, parts, odd)
        texts, places = data, np.arange(len(data))
        may_be_beyond = np.diff(json_layout.bounds_of(data)) > _bytes_within(limits, schema)
        if may_be_beyond.any():
            odd.append(places[may_be_beyond])
            texts, places = data.filter(pa.array(~may_be_beyond)), places[~may_be_beyond]
        for first, last in _stretches(texts):
            blocks.decode_stretch(texts.slice(first, last - first), places[first:last])
    else:
        odd.append(np.arange(len(data)))
    if odd:
        left = np.sort(np.concatenate(odd))
        chosen = data if len(left) == len(data) else data.take(pa.array(left))
        read = rules.reader_of_json(schema)
        parts += rules.decode_each(chosen, at[left], schema, missing, errors, read, limits)
    return parts


def _bytes_within(limits: MessageLimits, schema: pa.Schema) -> int:
    """Size of a payload whose events are within the limits, even if each is ``{}`` on a line."""
    return 3 * min(limits.events_max, limits.bytes_max // row_bytes(schema))


def _stretches(texts: Array) -> list[tuple[int, int]]:
    """Slices (first, last + 1) of bounded size."""
    bounds = json_layout.bounds_of(texts)
    cuts = np.flatnonzero(np.diff((bounds[1:] - bounds[0]) // _BLOCK_BYTES_MAX)) + 1
    edges = [0, *cuts.tolist(), len(texts)]
    return list(pairwise(edges))


class _Blocks:
    """Decoder of blocks of messages; cases that the parser may misread are left to the rules."""

    def __init__(
        self,
        schema: pa.Schema,
        is_strict: bool,
        at: Ints,
        parts: list[DecodedPart],
        odd: list[Ints],
    ) -> None:
        self._schema = schema
        #: Whether a missing attribute is an error.
        self._is_strict = is_strict
        self._at = at
        self._parts = parts
        #: Indices in ``at`` of the messages that are left.
        self._odd = odd
        self._read_schema = pa.schema([(f.name, _parsed_type(f.type)) for f in schema])
        self._may_be_alike = all(json_layout.is_read(field.type) for field in schema)
        # Events without further attributes are parsed and checked with less work.
        self._has_more = False

    def decode_stretch(self, texts: Array, places: Ints) -> None:
        """Decode texts with a common layout by that, and the rest with the parser."""
        left: list[int] = []
        skipped = 0
        together = _alike_together(texts)
        for first in range(0, len(texts) if self._may_be_alike else 0, together):
            block = texts.slice(first, together)
            rows = None if skipped else json_layout.decode_alike(block, self._schema)
            if rows is None:
                left.append(first)
                # An attempt costs a tenth of parsing: after a failure the next one may fail as
                # well.
                skipped = (skipped + 1) % _ALIKE_SKIPPED
                continue
            if left:
                self.decode(texts.slice(left[0], first - left[0]), places[left[0] : first])
                left = []
            self._keep(rows, block, None, places[first : first + len(block)])
        if left or not self._may_be_alike:
            at = left[0] if left else 0
            self.decode(texts.slice(at), places[at:])

    def decode(self, texts: Array, places: Ints) -> None:
        """Decode a block; ``places`` are the indices of its messages in ``at``."""
        if len(texts) == 0:
            return
        parent = rows = None
        lines = texts
        has_lines = json_layout.has_line_feed(texts)
        if has_lines:
            lines, parent = json_layout.lines_of(texts)
            rows = self._rows_of_lines(lines)
        is_plain = json_layout.are_plain(texts)
        if rows is None and is_plain.all():
            # The line feeds may be inside the objects.
            lines, parent = texts, None
            rows = self._parsed(texts)
        if rows is not None:
            # A message of blank lines has none left, and can't be read.
            if parent is not None:
                self._odd.append(places[np.setdiff1d(np.arange(len(texts)), parent)])
            self._keep(rows, lines, parent, places)
        elif len(texts) <= _TEXTS_MIN:
            self._odd.append(places)
        elif not is_plain.all() and not has_lines:
            self._odd.append(places[~is_plain])
            self.decode(texts.filter(pa.array(is_plain)), places[is_plain])
        else:
            middle = len(texts) // 2
            self.decode(texts.slice(0, middle), places[:middle])
            self.decode(texts.slice(middle), places[middle:])

    def _rows_of_lines(self, lines: Array) -> pa.RecordBatch | None:
        """One row for each line, by a common layout if possible; None if some are unreadable."""
        batches: list[pa.RecordBatch] = []
        together = _alike_together(lines)
        for first in range(0, len(lines) if self._may_be_alike else 0, together):
            rows = json_layout.decode_alike(lines.slice(first, together), self._schema)
            if rows is None:
                break
            batches.append(rows)
        else:
            if batches:
                return concat_batches(batches)
        return self._parsed(lines) if json_layout.are_plain(lines).all() else None

    def _parsed(self, texts: Array) -> pa.RecordBatch | None:
        """One row for each text; None if the parser does not accept them all."""
        joined = kernels.binary_join(_as_one_list(texts), b"\n")
        text = joined.buffers()[2]
        if text is None or not json_layout.is_utf8(joined):
            return None
        table = None
        if not self._has_more:
            try:
                table = _read(text, self._read_schema, "error")
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                if "unexpected field" not in str(error):
                    return None
                self._has_more = True
        if table is None:
            # Ignored attributes are not read, and Arrow's parser accepts words that JSON does not.
            if json_layout.may_hold_words(text):
                return None
            try:
                table = _read(text, self._read_schema, "ignore")
            except (pa.ArrowInvalid, UnicodeDecodeError):
                return None
        if table.num_rows != len(texts):
            return None
        try:
            columns = [
                _converted(table.column(f.name).combine_chunks(), f.type) for f in self._schema
            ]
        except pa.ArrowInvalid:
            return None
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _keep(self, rows: pa.RecordBatch, lines: Array, parent: Ints | None, places: Ints) -> None:
        """Keep the rows of the messages that are beyond doubt.

        Args:
            rows: length n.
            lines: length n, the text of each row.
            parent: length n, the index in ``places`` of each row's message; None for one row each.
            places: indices of the messages in ``at``.
        """
        nulls = np.zeros(rows.num_rows, bool)
        wrong = np.zeros(rows.num_rows, bool)
        for column in rows.columns:
            nulls_of, wrong_of = _doubts(column, self._is_strict)
            if nulls_of is not None:
                nulls |= nulls_of
            if wrong_of is not None:
                wrong |= wrong_of
        # A null may be a missing attribute: only the text decides.
        at = np.flatnonzero(nulls & ~wrong)
        if len(at):
            for row, line in zip(at, lines.take(pa.array(at)).to_pylist(), strict=True):
                wrong[row] = not rules.is_complete(line, self._schema)
        if parent is None and not wrong.any():
            index = np.zeros(len(places), np.int64)
            self._parts.append(part(rows, self._at[places], index))
            return
        if parent is None:
            parent = np.arange(len(places))
        index = np.arange(len(parent)) - np.searchsorted(parent, parent)
        if wrong.any():
            is_odd = np.zeros(len(places), bool)
            is_odd[parent[wrong]] = True
            self._odd.append(places[is_odd])
            keep = ~is_odd[parent]
            rows, parent, index = rows.filter(pa.array(keep)), parent[keep], index[keep]
        self._parts.append(part(rows, self._at[places[parent]], index))


def _alike_together(texts: Array) -> int:
    """The number of texts that are checked together for a common layout."""
    bounds = json_layout.bounds_of(texts)
    mean = max(1, int(bounds[-1] - bounds[0]) // max(1, len(texts)))
    return max(1, _ALIKE_BYTES // mean)


def _as_one_list(texts: Array) -> Array:
    return arrow.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)


def _read(text: pa.Buffer, schema: pa.Schema, unexpected: Literal["error", "ignore"]) -> pa.Table:
    return pj.read_json(
        arrow.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    )


# --- Types: the parser's reading of them, and the remaining conversion


def _is_parsed(kind: pa.DataType) -> bool:
    """Whether the parser can read a type: it can't read objects as maps."""
    if pa.types.is_map(kind):
        return False
    if pa.types.is_list(kind):
        return _is_parsed(kind.value_type)
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_parsed(field.type) for field in kind.fields)
    return True


def _parsed_type(kind: pa.DataType) -> pa.DataType:
    """The type as which the parser reads a type.

    Floats are read as doubles and rounded once more, as the rules do.  For times without a zone the
    parser would accept times with one, and for days numbers.
    """
    types = pa.types
    if types.is_floating(kind):
        return pa.float64()
    if types.is_date(kind) or types.is_binary(kind) or (types.is_timestamp(kind) and not kind.tz):
        return pa.string()
    if types.is_list(kind):
        return pa.list_(_parsed_type(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([(field.name, _parsed_type(field.type)) for field in kind.fields])
    return kind


def _converted(column: Array, kind: DataType) -> Array:
    """Convert a column of ``_parsed_type`` to ``kind``; ArrowInvalid if the result may be wrong."""
    types = pa.types
    if types.is_nested(kind):
        assert column.offset == 0
        if types.is_list(kind):
            children = [_converted(column.values, kind.value_type)]
        else:
            fields = arrow.schema(kind)
            children = [_converted(column.field(n), f.type) for n, f in enumerate(fields)]
        buffers = column.buffers()[: 2 if types.is_list(kind) else 1]
        return pa.Array.from_buffers(kind, len(column), buffers, children=children)
    if types.is_timestamp(kind) and kind.tz:
        return columns.checked_times(column)
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_binary(kind):
        return columns.of_type(column, kind)
    if types.is_decimal(kind):
        # The parser does not check the precision once the scale fits.
        column.validate(full=True)
        return column
    return column if column.type == kind else column.cast(kind, safe=False)


def _doubts(column: Array, is_strict: bool) -> tuple[Flags | None, Flags | None]:
    """Rows with nulls, if they matter, and rows with values that the rules may read differently."""
    nulls = _flags(column.is_null()) if is_strict and column.null_count else None
    wrong: Flags | None = None
    if pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            # The integer -0 is 0, the number -0.0 is not; a word may represent a number; and a
            # large whole number may lose digits.
            is_small = np.abs(values) < json_layout.whole_max(column.type)
            wrong = ~is_small | ((values == 0) & np.signbit(values))
        if column.null_count:
            wrong &= ~_flags(column.is_null())
    elif pa.types.is_struct(column.type):
        for n in range(column.type.num_fields):
            nulls_of, wrong_of = _doubts(column.field(n), is_strict)
            nulls, wrong = _either(nulls, nulls_of), _either(wrong, wrong_of)
    elif pa.types.is_list(column.type):
        offsets = column.offsets.to_numpy()
        row = np.repeat(np.arange(len(column)), np.diff(offsets))
        inner = _doubts(column.values[int(offsets[0]) : int(offsets[-1])], is_strict)
        nulls = _either(nulls, _by_row(inner[0], row, len(column)))
        wrong = _either(wrong, _by_row(inner[1], row, len(column)))
    return nulls, wrong


def _flags(mask: Array) -> Flags:
    return np.asarray(mask.to_numpy(zero_copy_only=False), bool)


def _either(some: Flags | None, others: Flags | None) -> Flags | None:
    if some is None or others is None:
        return others if some is None else some
    return some | others


def _by_row(items: Flags | None, row: Ints, count: int) -> Flags | None:
    if items is None or not items.any():
        return None
    flags = np.zeros(count, bool)
    flags[row[items]] = True
    return flags
