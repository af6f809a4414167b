"""Rows on their way out: columns completed, grouped, and turned into frames with Arrow kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import arrow, kernels
from pyspark_nats.errors import RefusedError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_nats.arrow import Array

#: Column of an Arrow payload with the position of each event.
POSITION: Final = "_position"

SCHEMA: Final = arrow.schema(
    [
        pa.field("stream", pa.string()),
        pa.field("subject", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("content_type", pa.string()),
        pa.field("event_time_ms", pa.int64()),
        pa.field("producer", pa.string()),
        pa.field("position", pa.int64()),
        #: Of the first event in the payload; ``position`` is that of the last.
        pa.field("first_position", pa.int64()),
        #: Further header lines, each ended; null for none.
        pa.field("header_lines", pa.binary()),
    ]
)


def check_columns(names: list[str], *, has_subject: bool) -> None:
    """Check what a DataFrame that is written has for columns.

    Raises:
        SchemaError: one is missing or not known.
    """
    known = {"stream", "subject", "data", "content_type", "event_time_ms", "headers",
             "producer", "position", "first_position"}  # fmt: skip
    extra = sorted(set(names) - known)
    if extra:
        raise SchemaError(
            f'column "{extra[0]}" is not one the nats sink writes',
            detail=f"It writes {', '.join(sorted(known))}.",
            hint='Put the values into "data", with to_json(struct(...)) for example.',
        )
    if "data" not in names:
        raise SchemaError('column "data" is missing', hint="It holds the payload.")
    if "subject" not in names and not has_subject:
        raise SchemaError('neither a column nor an option "subject" says where rows go')
    if ("producer" in names) != ("position" in names):
        raise SchemaError('the columns "producer" and "position" go together')


def completed(
    batch: pa.RecordBatch, *, stream: str, subject: str, producer: str, first_position: int
) -> pa.RecordBatch:
    """``batch`` with exactly the columns of ``SCHEMA``.

    Args:
        batch: columns as ``check_columns`` allows them.
        stream: for a batch without that column; so are the next two.
        subject: see ``stream``.
        producer: see ``stream``.
        first_position: position of the first row of a batch without positions; they grow by one.
    """
    count = batch.num_rows
    names = set(batch.schema.names)

    def column(name: str, default: Array) -> Array:
        kind = SCHEMA.field(name).type
        return batch.column(name).cast(kind) if name in names else default.cast(kind)

    positions = column("position", pa.array(np.arange(first_position, first_position + count)))
    columns = [
        column("stream", pa.repeat(stream, count)),
        column("subject", pa.repeat(subject, count)),
        kernels.fill_null(column("data", pa.nulls(count)), b""),
        column("content_type", pa.nulls(count)),
        column("event_time_ms", pa.nulls(count)),
        column("producer", pa.repeat(producer, count)),
        positions,
        column("first_position", positions),
        _header_lines(batch.column("headers"))
        if "headers" in names
        else pa.nulls(count, pa.binary()),
    ]
    done = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    for name in ("stream", "subject", "producer", "position"):
        if done.column(name).null_count:
            raise SchemaError(f'column "{name}" is null in a row')
    for name in ("subject", "content_type"):
        wrong = kernels.match_substring_regex(
            done.column(name), r"[\r\n]" if name != "subject" else r"\s"
        )
        if kernels.any(wrong).as_py():
            value = done.column(name).filter(kernels.fill_null(wrong, False))[0].as_py()
            raise SchemaError(f"{name} {value!r} holds white space that can't be sent")
    return done


def _header_lines(headers: Array) -> Array:
    lines = [
        None if row is None else b"".join(
            f"{name}: {value}\r\n".encode()
            for name, values in row
            for value in ([values] if isinstance(values, str) else values)
        )
        for row in headers.to_pylist()
    ]  # fmt: skip
    for line in lines:
        if line and line.count(b"\n") != line.count(b": "):
            # A value with a line break would end the header block.
            _check_lines(line)
    return pa.array(lines, pa.binary())


def _check_lines(lines: bytes) -> None:
    for line in lines.split(b"\r\n")[:-1]:
        if b"\n" in line or b"\r" in line or b": " not in line:
            raise SchemaError(f"header {line!r} holds a line break")


def groups(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, str], pa.RecordBatch]]:
    """The rows of each (stream, producer), in their order."""
    if batch.num_rows == 0:
        return
    streams = batch.column("stream").dictionary_encode()
    producers = batch.column("producer").dictionary_encode()
    codes = streams.indices.to_numpy().astype(np.int64) * len(producers.dictionary)
    codes = codes + producers.indices.to_numpy()
    for code in np.unique(codes):
        stream, producer = divmod(int(code), len(producers.dictionary))
        pair = (streams.dictionary[stream].as_py(), producers.dictionary[producer].as_py())
        mine = codes == code
        yield pair, batch if mine.all() else batch.filter(pa.array(mine))


def trimmed(rows: pa.RecordBatch, at: int, position: int) -> pa.RecordBatch:
    """``rows``, with the events up to ``position`` taken out of the payload of row ``at``.

    A replay may cut messages of many events elsewhere than the first run did; then one message
    holds events that are out and events that are not.  Its payload is an Arrow stream with a
    column ``_position``.
    """
    if rows.column("first_position")[at].as_py() > position:
        return rows
    table = pa.ipc.open_stream(rows.column("data")[at].as_py()).read_all()
    kept = table.filter(kernels.greater(table.column(POSITION), position))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, kept.schema) as writer:
        writer.write_table(kept)
    data = rows.column("data")
    payload = pa.array([sink.getvalue().to_pybytes()], pa.binary())
    replaced = pa.concat_arrays([data.slice(0, at), payload, data.slice(at + 1)])
    return rows.set_column(rows.schema.get_field_index("data"), rows.schema.field("data"), replaced)


def fitting(rows: pa.RecordBatch, first: int, rows_max: int, bytes_max: int) -> int:
    """How many rows from ``first`` on stay below both bounds; at least 1."""
    lengths = kernels.binary_length(rows.column("data").slice(first, rows_max))
    total = np.cumsum(lengths.to_numpy(zero_copy_only=False).astype(np.int64))
    return max(1, int(np.searchsorted(total, bytes_max, side="right")))


def check_sizes(rows: pa.RecordBatch, bytes_max: int) -> None:
    """RefusedError when a payload is larger than the server takes."""
    largest = kernels.max(kernels.binary_length(rows.column("data"))).as_py() or 0
    if largest > bytes_max:
        raise RefusedError(
            f"a message of {largest} bytes is larger than the server takes",
            detail=f"It takes {bytes_max} bytes.",
            hint='Raise "max_payload" of the server, or put fewer rows into a message.',
        )


def atomic_frames(rows: pa.RecordBatch, batch_id: str, event_time_header: str) -> bytes:
    """``rows`` as the first messages of an atomic batch, ready to send."""
    numbers = pa.array(np.arange(1, rows.num_rows + 1)).cast(pa.string())
    batch = kernels.binary_join_element_wise(
        f"Nats-Batch-Id: {batch_id}\r\nNats-Batch-Sequence: ", numbers, "\r\n", ""
    )
    return _frames(rows, batch.cast(pa.binary()), "", event_time_header)


def acked_frames(rows: pa.RecordBatch, inbox: str, event_time_header: str) -> bytes:
    """``rows`` as messages whose acks go to ``inbox``, ready to send."""
    return _frames(rows, pa.nulls(rows.num_rows, pa.binary()), f" {inbox}", event_time_header)


def _frames(rows: pa.RecordBatch, lines: Array, reply: str, event_time_header: str) -> bytes:
    """One ``HPUB`` frame a row; ``lines`` are ended header lines, null for none."""
    header = _joined(
        b"NATS/1.0\r\n",
        lines,
        _line("Content-Type", rows.column("content_type")),
        _line(event_time_header, rows.column("event_time_ms").cast(pa.string())),
        rows.column("header_lines"),
        b"\r\n",
    )
    data = rows.column("data")
    header_size = kernels.binary_length(header)
    total = kernels.add(header_size, kernels.binary_length(data))
    whole = _joined(
        b"HPUB ", rows.column("subject").cast(pa.binary()), f"{reply} ".encode(),
        _text(header_size), b" ", _text(total), b"\r\n", header, data, b"\r\n",
    )  # fmt: skip
    # The strings of an array lie behind each other: that is what goes over the wire.
    _, bounds, octets = whole.buffers()
    ends = np.frombuffer(bounds, np.int32)[whole.offset : whole.offset + len(whole) + 1]
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


def matches(pattern: str, subject: str) -> bool:
    """Whether NATS delivers ``subject`` to a subscription to ``pattern``."""
    wanted, tokens = pattern.split("."), subject.split(".")
    for at, token in enumerate(wanted):
        if token == ">":
            return len(tokens) > at
        if at >= len(tokens) or token not in ("*", tokens[at]):
            return False
    return len(wanted) == len(tokens)
