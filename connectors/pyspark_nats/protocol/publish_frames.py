"""Encoder of outgoing rows as frames of the NATS protocol, many at a time, with Arrow kernels."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, count, repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import FEW, kernels, sizes_of
from pyspark_nats.few_rows import as_batch, values_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from pyspark_nats.arrow import Array

    Ints = npt.NDArray[np.int64]

_BATCH: Final = "Nats-Batch-Id:"
_NUMBER: Final = "Nats-Batch-Sequence:"
_COLUMNS: Final = ("subject", "content_type", "event_time_ms", "header_lines", "data")


def header_lines(rows: pa.RecordBatch, event_time_header: str) -> Array | None:
    """The header lines of each row, each terminated; None if no row has any.

    Args:
        rows: columns as ``messages_out.SCHEMA``.
        event_time_header: header for ``event_time_ms``.
    """
    parts = []
    if rows.column("content_type").null_count < rows.num_rows:
        parts.append(_line("Content-Type", rows.column("content_type")))
    if rows.column("event_time_ms").null_count < rows.num_rows:
        parts.append(_line(event_time_header, rows.column("event_time_ms").cast(pa.string())))
    if rows.column("header_lines").null_count < rows.num_rows:
        parts.append(rows.column("header_lines"))
    return _joined(*parts) if parts else None


def atomic_frames(rows: pa.RecordBatch, batch_id: str, event_time_header: str) -> bytes:
    """``rows`` as the first messages of an atomic batch, ready to send."""
    if rows.num_rows <= FEW:
        heads = (f"{_BATCH}{batch_id}\r\n{_NUMBER}{number}\r\n" for number in count(1))
        return b"".join(_few_frames(rows, repeat(""), heads, event_time_header))
    numbers, sizes = _numbers(rows.num_rows, len(batch_id))
    data = rows.column("data")
    lines = header_lines(rows, event_time_header)
    extra = () if lines is None else (lines,)
    if lines is not None:
        sizes = kernels.add(sizes, kernels.binary_length(lines))
    total = kernels.add(sizes, kernels.binary_length(data))
    return _octets(
        _joined(
            b"HPUB ", rows.column("subject").cast(pa.binary()), b"  ", _text(sizes), b" ",
            _text(total), f"\r\nNATS/1.0\r\n{_BATCH}{batch_id}\r\n{_NUMBER}".encode(), numbers,
            b"\r\n", *extra, b"\r\n", data, b"\r\n",
        )
    )  # fmt: skip


def _few_frames(
    rows: pa.RecordBatch, replies: Iterable[str], heads: Iterable[str], event_time_header: str
) -> Iterator[bytes]:
    """The frame of each row, with its reply subject, or "", and its first header lines."""
    columns = [values_of(rows, name) for name in _COLUMNS]
    for reply, head, row in zip(replies, heads, zip(*columns, strict=True), strict=False):
        subject, *_, data = row
        block = _block(head, row[:4], event_time_header)
        sizes = f"{len(block)} {len(block) + len(data)}"
        yield b"".join((f"HPUB {subject} {reply} {sizes}\r\n".encode(), block, data, b"\r\n"))


def _block(head: str, row: tuple[Any, ...], event_time_header: str) -> bytes:
    """Header block of a row: ``head`` and its own lines."""
    _, content_type, event_time_ms, lines = row
    headers = f"Content-Type: {content_type}\r\n" if content_type is not None else ""
    if event_time_ms is not None:
        headers += f"{event_time_header}: {event_time_ms}\r\n"
    return f"NATS/1.0\r\n{head}{headers}".encode() + (lines or b"") + b"\r\n"


@lru_cache(maxsize=8)
def _numbers(count: int, id_size: int) -> tuple[Array, Array]:
    """Each message's number in its batch, as text; and the size of its header without lines."""
    numbers = _text(pa.array(np.arange(1, count + 1)))
    fixed = len(f"NATS/1.0\r\n{_BATCH}\r\n{_NUMBER}\r\n\r\n") + id_size
    return numbers, kernels.add(kernels.binary_length(numbers), pa.scalar(fixed, pa.int32()))


def acked_frames(rows: pa.RecordBatch, inbox: str, event_time_header: str) -> bytes:
    """``rows`` as messages with acks to ``inbox``, ready to send."""
    lines = header_lines(rows, event_time_header)
    if lines is None:
        data = rows.column("data")
        return _octets(
            _joined(
                b"PUB ", rows.column("subject").cast(pa.binary()), f" {inbox} ".encode(),
                _text(kernels.binary_length(data)), b"\r\n", data, b"\r\n",
            )
        )  # fmt: skip
    return _with_header(rows, _joined(b"NATS/1.0\r\n", lines, b"\r\n"), f" {inbox}")


def ingest_frames(
    rows: pa.RecordBatch,
    batch: str,
    begin: str,
    first: int,
    tags: bytes,
    event_time_header: str,
    fence: str = "",
) -> tuple[bytes, Sequence[int] | Ints]:
    """``rows`` as messages of an ingest batch, ready to send, and the end of each message.

    Args:
        rows: n rows, columns as ``messages_out.SCHEMA``; one, if it is the first of the batch.
        batch: the reply subject up to the number of a message.
        begin: of each row's own header line, up to the position: ``row_tags.line_begin``.
        first: number of the first row in the batch.
        tags: of the rows, which end these lines: ``row_tags.tags``.
        event_time_header: header for ``event_time_ms``.
        fence: further header lines.

    Source:
        github.com/nats-io/nats-architecture-and-design, ADR-50, "fast-ingest".
    """
    total = rows.num_rows
    width = len(tags) // total
    if total <= FEW:
        each = range(first, first + total)
        replies = (f"{batch}.{number}.{int(number > 1)}.$FI" for number in each)
        entries = zip(values_of(rows, "position"), each, count(width, width), strict=False)
        heads = (
            f"{begin}{position} {number} {tags[end - width : end].decode()}\r\n{fence}"
            for position, number, end in entries
        )
        few = list(_few_frames(rows, replies, heads, event_time_header))
        return b"".join(few), [*accumulate(map(len, few))]
    rows = as_batch(rows)
    numbers = _text(pa.array(np.arange(first, first + total)))
    bounds = pa.py_buffer(np.arange(0, len(tags) + 1, width, dtype=np.int32).data)
    tag_column = pa.Array.from_buffers(pa.binary(), total, [None, bounds, pa.py_buffer(tags)])
    data, position = rows.column("data"), _text(rows.column("position"))
    lines = header_lines(rows, event_time_header)
    extra = () if lines is None else (lines,)
    fixed = len(f"NATS/1.0\r\n{begin}  \r\n\r\n") + width
    size = kernels.add(kernels.binary_length(numbers), pa.scalar(fixed, pa.int32()))
    for part in (position, *extra):
        size = kernels.add(size, kernels.binary_length(part))
    whole = _joined(
        b"HPUB ", rows.column("subject").cast(pa.binary()), f" {batch}.".encode(), numbers,
        b".1.$FI ", _text(size), b" ", _text(kernels.add(size, kernels.binary_length(data))),
        f"\r\nNATS/1.0\r\n{begin}".encode(), position, b" ", numbers, b" ", tag_column, b"\r\n",
        *extra, b"\r\n", data, b"\r\n",
    )  # fmt: skip
    return _octets(whole), np.cumsum(sizes_of(whole))


def _with_header(rows: pa.RecordBatch, header: Array, reply: str) -> bytes:
    """One ``HPUB`` frame for each row."""
    data = rows.column("data")
    header_size = kernels.binary_length(header)
    total = kernels.add(header_size, kernels.binary_length(data))
    return _octets(
        _joined(
            b"HPUB ", rows.column("subject").cast(pa.binary()), f"{reply} ".encode(),
            _text(header_size), b" ", _text(total), b"\r\n", header, data, b"\r\n",
        )
    )  # fmt: skip


def _octets(values: Array) -> bytes:
    """The concatenated values, as contiguous bytes for the wire."""
    _, bounds, octets = values.buffers()
    ends = np.frombuffer(bounds, np.int32)[values.offset : values.offset + len(values) + 1]
    return bytes(memoryview(octets)[int(ends[0]) : int(ends[-1])])


def _line(name: str, values: Array) -> Array:
    """``name: value`` lines, null where the value is."""
    return kernels.binary_join_element_wise(f"{name}: ", values, "\r\n", "").cast(pa.binary())


def _text(numbers: Array) -> Array:
    return numbers.cast(pa.string()).cast(pa.binary())


def _joined(*parts: Array | bytes) -> Array:
    scalars = [pa.scalar(p, pa.binary()) if isinstance(p, bytes) else p for p in parts]
    return kernels.binary_join_element_wise(
        *scalars, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=""
    )
