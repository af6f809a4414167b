"""Rows of the raw form: schemas, and the conversion of messages to them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import arrow, constant, kernels, rows_at
from pyspark_nats.protocol import frames
from pyspark_nats.protocol.frames import header_values
from pyspark_nats.source.few_messages import decode_few

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from pyspark_nats.arrow import Array
    from pyspark_nats.decode.result import DecodeResult, MessageLimits
    from pyspark_nats.source.messages import Messages
    from pyspark_nats.source.ranges import StreamRange

MESSAGE: Final = 0
RANGE_START: Final = 1
RANGE_END: Final = 2

_RAW_DDL: Final = (
    "subject string, data binary, headers map<string,array<string>>, stream string, "
    "sequence long, timestamp timestamp"
)
MARKED_DDL: Final = (
    "kind int, stream string, sequence long, time_ms long, event_time_ms long, subject string, "
    "content_type string, data binary"
)

#: Type of a column with the headers of messages.
HEADERS: Final = pa.map_(pa.string(), pa.list_(pa.string()))

RAW: Final = arrow.schema(
    [
        pa.field("subject", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("stream", pa.string()),
        pa.field("sequence", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
    ]
)
MARKED: Final = arrow.schema(
    [
        pa.field("kind", pa.int32()),
        pa.field("stream", pa.string()),
        pa.field("sequence", pa.int64()),
        pa.field("time_ms", pa.int64()),
        pa.field("event_time_ms", pa.int64()),
        pa.field("subject", pa.string()),
        pa.field("content_type", pa.string()),
        pa.field("data", pa.binary()),
    ]
)

_HEADERS_AT: Final = 2
#: Names of headers that a publisher can write only as octets of its own.
_NO_NAME: Final = r"[ \r\n]|^$"
#: Digits of a time; no plausible one has more.
_DIGITS_MAX: Final = 18

#: Headers that the server and the sink add to stored messages; not headers of the publisher.
_BOOKKEEPING: Final = (
    "Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending",
    "Nats-Last-Sequence", "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit",
)  # fmt: skip


def raw_ddl(include_headers: bool, *, is_marked: bool = False) -> str:
    """The columns of the plain form or of range markers, with or without ``headers``."""
    if is_marked:
        return f"{MARKED_DDL}, headers map<string,array<string>>" if include_headers else MARKED_DDL
    columns = _RAW_DDL.split(", ")
    return ", ".join(columns if include_headers else _without(columns))


def raw_schema(include_headers: bool) -> pa.Schema:
    """``raw_ddl`` as a schema of Arrow."""
    schema: pa.Schema = RAW
    return schema if include_headers else schema.remove(_HEADERS_AT)


def marked_schema(include_headers: bool) -> pa.Schema:
    """The columns of the ``rangeMarkers`` form."""
    schema: pa.Schema = MARKED
    return schema.append(pa.field("headers", HEADERS)) if include_headers else schema


def _without(columns: list[str]) -> list[str]:
    return columns[:_HEADERS_AT] + columns[_HEADERS_AT + 1 :]


def event_times(messages: Messages, header: str) -> Array:
    """The event times in ``header``: int64 ms since 1970, null if absent or not a number.

    A number of more than 18 digits is the greatest, or least, of 18: no time either way.
    """
    if not header:
        return pa.nulls(len(messages), pa.int64())
    texts = header_values(messages.header, header)
    if texts.null_count == len(texts):
        return pa.nulls(len(messages), pa.int64())
    # A foreign publisher may write any text; 18 digits always fit.
    if kernels.max(kernels.binary_length(texts)).as_py() > _DIGITS_MAX:
        texts = kernels.replace_substring_regex(texts, r"^(-?)[0-9]{19,}$", r"\1" + "9" * 18)
    is_number = kernels.match_substring_regex(texts, r"^-?[0-9]{1,18}$")
    return kernels.cast(kernels.if_else(is_number, texts, None), pa.int64())


def range_markers(
    kind: int, ranges: Sequence[StreamRange], *, include_headers: bool = False
) -> pa.RecordBatch:
    """The rows before (``RANGE_START``) or after (``RANGE_END``) a partition's messages."""
    at_start = kind == RANGE_START
    count = len(ranges)
    more = [arrow.nulls(count, HEADERS)] if include_headers else []
    return pa.RecordBatch.from_arrays(
        [
            pa.array([kind] * count, pa.int32()),
            pa.array([r.stream for r in ranges], pa.string()),
            pa.array([r.start if at_start else r.end for r in ranges], pa.int64()),
            pa.array([r.start_ms if at_start else r.end_ms for r in ranges], pa.int64()),
            pa.nulls(count, pa.int64()),
            pa.nulls(count, pa.string()),
            pa.nulls(count, pa.string()),
            pa.nulls(count, pa.binary()),
            *more,
        ],
        schema=marked_schema(include_headers),
    )


def marked(
    messages: Messages, event_time_header: str, *, include_headers: bool = False
) -> pa.RecordBatch:
    """Messages as rows of the ``rangeMarkers`` form."""
    count = len(messages)
    more = [header_maps(messages.header)] if include_headers else []
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.zeros(count, np.int32)),
            constant(messages.stream, count),
            pa.array(messages.sequence),
            pa.array(messages.time_ns // 1_000_000),
            event_times(messages, event_time_header),
            messages.subject,
            header_values(messages.header, "Content-Type"),
            messages.data,
            *more,
        ],
        schema=marked_schema(include_headers),
    )


class MessageRows:
    """Messages of one stream as rows of the ``rangeMarkers`` form, each column made when needed.

    Its methods are those of a record batch, which costs more to make than few messages to process.
    """

    def __init__(self, messages: Messages, event_time_header: str) -> None:
        self.messages = messages
        self._header = event_time_header
        self._columns: dict[str, Array] = {}

    @property
    def num_rows(self) -> int:
        """Number of messages."""
        return len(self.messages)

    def column(self, name: str) -> Array:
        """A column of ``MARKED``."""
        array = self._columns.get(name)
        if array is None:
            array = self._columns[name] = self._computed(name)
        return array

    def _computed(self, name: str) -> Array:
        messages = self.messages
        match name:
            case "sequence":
                return pa.array(messages.sequence)
            case "time_ms":
                return pa.array(messages.time_ns // 1_000_000)
            case "event_time_ms":
                return event_times(messages, self._header)
            case "subject":
                return messages.subject
            case "content_type":
                return header_values(messages.header, "Content-Type")
            case "data":
                return messages.data
            case _:
                return self.whole().column(name)

    def numbers(self, name: str) -> npt.NDArray[np.int64]:
        """Column ``sequence`` or ``time_ms`` as an array of NumPy."""
        if name == "sequence":
            return self.messages.sequence
        return self.messages.time_ns // 1_000_000

    def decode_few(self, schema: pa.Schema, limits: MessageLimits) -> DecodeResult | None:
        """See ``few_messages.decode_few``."""
        return decode_few(self.messages, schema, self._header, limits)

    def slice(self, first: int, count: int | None = None) -> MessageRows:
        """The rows from index ``first`` on, at most ``count``."""
        end = self.num_rows if count is None else min(self.num_rows, first + count)
        return MessageRows(self.messages.slice(first, end), self._header)

    def filter(self, mask: Array) -> MessageRows:
        """The rows where ``mask``, of Arrow and without nulls, is true."""
        keep = np.asarray(mask.to_numpy(zero_copy_only=False), bool)
        return MessageRows(self.messages.take(keep), self._header)

    def whole(self) -> pa.RecordBatch:
        """All columns."""
        return marked(self.messages, self._header)


def raw(messages: Messages) -> pa.RecordBatch:
    """Messages as rows of the plain form."""
    columns = _plain(messages)
    columns.insert(_HEADERS_AT, header_maps(messages.header))
    return pa.RecordBatch.from_arrays(columns, schema=RAW)


def raw_without_headers(messages: Messages) -> pa.RecordBatch:
    """Messages as rows without ``headers``, the most expensive column to read."""
    return pa.RecordBatch.from_arrays(_plain(messages), schema=raw_schema(False))


def _plain(messages: Messages) -> list[Array]:
    return [
        messages.subject,
        messages.data,
        constant(messages.stream, len(messages)),
        pa.array(messages.sequence),
        timestamps(messages),
    ]


def timestamps(messages: Messages) -> Array:
    """The broker's times, with microseconds."""
    return pa.array(messages.time_ns // 1000).cast(pa.timestamp("us", "UTC"))


def header_maps(headers: Array) -> Array:
    """Header blocks as maps from a name to its values in their order.

    Args:
        headers: length n, binary; null or empty for a message without headers.

    Returns:
        Length n, ``HEADERS``, no nulls; without the headers of the server and the sink, and without
        those whose name no sink could write.  A line break in a value is a space.
    """
    if len(headers) == 0 or not kernels.max(kernels.binary_length(headers)).as_py():
        return _maps(np.zeros(len(headers) + 1, np.int64), pa.array([], pa.string()), _no_lists())
    lines = kernels.split_pattern(kernels.fill_null(headers, b""), b"\r\n")
    message = np.repeat(np.arange(len(headers)), np.diff(lines.offsets.to_numpy()))
    texts = frames.as_text(lines.flatten())
    pairs = kernels.split_pattern(texts, ":", max_splits=1)
    # The first line is the version, the last two are empty: none of them has a colon.
    bounds = pairs.offsets.to_numpy()
    at = np.flatnonzero(np.diff(bounds) == 2)
    parts = pairs.flatten()
    names = parts.take(rows_at(bounds[at].astype(np.int64) - int(bounds[0])))
    left_out = kernels.or_(
        kernels.is_in(names, value_set=_bookkeeping()),
        kernels.match_substring_regex(names, _NO_NAME),
    )
    mask = ~left_out.to_numpy(zero_copy_only=False)
    at, names = at[mask], names.filter(pa.array(mask))
    values = kernels.utf8_trim_whitespace(
        parts.take(rows_at(bounds[at].astype(np.int64) - int(bounds[0]) + 1))
    )
    if kernels.any(kernels.match_substring_regex(values, r"[\r\n]")).as_py():
        values = kernels.replace_substring_regex(values, r"[\r\n]+", " ")
    # Values of one name are grouped, at the index of the first of them.
    message = message[at]
    code = names.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    key = message * (int(code.max(initial=0)) + 1) + code
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first[group], kind="stable")
    starts = np.flatnonzero(np.diff(first[group][order], prepend=-1))
    lists = arrow.ListArray.from_arrays(
        pa.array(np.append(starts, len(order)).astype(np.int32)), values.take(rows_at(order))
    )
    entries = np.sort(first)
    offsets = np.searchsorted(message[entries], np.arange(len(headers) + 1))
    return _maps(offsets, names.take(rows_at(entries)), lists)


def _maps(offsets: np.ndarray, names: Array, lists: Array) -> Array:
    return arrow.MapArray.from_arrays(pa.array(offsets.astype(np.int32)), names, lists)


# Not at the top of the module: the first array that pyarrow creates from Python values imports
# pandas, and most of the processes that import this module never create one.
@cache
def _bookkeeping() -> Array:
    return pa.array(_BOOKKEEPING)


@cache
def _no_lists() -> Array:
    return pa.array([], pa.list_(pa.string()))
