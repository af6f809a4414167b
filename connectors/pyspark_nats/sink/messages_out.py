"""Outgoing messages as columns: completes, groups and checks the columns for publishing.

Header of a row of an ingest batch: its producer, its position, and a tag.

The header is ``Mesh-Row:producer position number tag``.  The producer is a hash of its name.  Rows
are numbered from 1 in their batch.  The tags of a batch are the output of a hash function for its
key, which only the marker has.  A client that may publish on the subject of the events learns a tag
only from the row that has it, and the first message with a number counts.

Source:
    FIPS 202, SHAKE128.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import FEW, arrow, ipc_stream, kernels, sizes_of
from pyspark_nats.errors import OrderError, RefusedError, SchemaError
from pyspark_nats.few_rows import FewRows, as_batch, values_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    import numpy.typing as npt

    from pyspark_nats.arrow import Array
    from pyspark_nats.protocol.connection import Connection

    Ints = npt.NDArray[np.int64]

#: Most messages of one task and batch if positions are counted.
ROWS_BITS: Final = 32

#: Bytes left for the head and the headers of a message, below the server's ``max_payload``.
HEAD_ROOM: Final = 4096

#: Most octets of a subject: it is in one line with its reply and sizes, and of a line a server
#: takes 4096 by default.
SUBJECT_MAX: Final = 3840

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
        #: Further header lines, each terminated; null for none.
        pa.field("header_lines", pa.binary()),
    ]
)

_LINES: Final = "header_lines"
_OTHERS: Final = tuple(name for name in SCHEMA.names if name != _LINES)

# Not from a list: the first array that pyarrow creates from Python values imports pandas.
NO_ROWS: Final = pa.RecordBatch.from_arrays(
    [pa.nulls(0, field.type) for field in SCHEMA], schema=SCHEMA
)

#: Beginning of headers that are instructions to the server (purge, delay, expire, deduplicate), or
#: its own: a publisher of the message that is copied must not give any to the target.
_SERVERS: Final = "nats-"


def with_schema_columns(
    batch: pa.RecordBatch, *, stream: str, subject: str, producer: str, first_position: int
) -> pa.RecordBatch:
    """``batch`` with exactly the columns of ``SCHEMA``.

    Args:
        batch: ``data``, and any of the other columns of ``SCHEMA``; ``headers``, a map of string to
            string or to a list of strings, instead of ``header_lines``.
        stream: for a batch without that column; likewise the next two.
        subject: see ``stream``.
        producer: see ``stream``.
        first_position: position of the first row of a batch without positions; each row adds one.

    Raises:
        SchemaError: a value is missing, or can't be sent.
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
        header_lines(batch.column("headers"), replaced=names & {"content_type"})
        if "headers" in names
        else pa.nulls(count, pa.binary()),
    ]
    done = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    for name in ("stream", "subject", "producer", "position"):
        if done.column(name).null_count:
            raise SchemaError(f'column "{name}" is null in a row')
    for name, pattern in (
        # A request about another name has no answer, or is about another stream.
        ("stream", r"[\s.*>/\\]|^$"),
        ("subject", r"\s|^$"),
        ("content_type", r"[\r\n]"),
    ):
        if name not in names and name != "subject":
            continue
        unique = kernels.unique(done.column(name))
        wrong = kernels.fill_null(kernels.match_substring_regex(unique, pattern), False)
        if kernels.any(wrong).as_py():
            value = unique.filter(wrong)[0].as_py()
            if name == "stream":
                raise SchemaError(
                    f"no JetStream stream has the name {value!r}",
                    hint="A name is not empty, and has no white space, dots, wildcards or slashes.",
                )
            raise SchemaError(f"{name} {value!r} is empty or holds white space that can't be sent")
    return done


def with_header_line(rows: pa.RecordBatch, line: bytes | None) -> pa.RecordBatch:
    """``rows`` with this header line, or none, as the last column of ``SCHEMA``.

    Their first columns are the others of ``SCHEMA``; what follows is left out.  The caller vouches
    for the values, as for rows that a program made.
    """
    if isinstance(rows, FewRows):
        lists = {name: rows.lists[name] for name in _OTHERS}
        lists[_LINES] = [line] * rows.num_rows
        return FewRows(SCHEMA, lists, rows.num_rows)
    lines = pa.nulls(rows.num_rows, pa.binary())
    if line is not None:
        lines = pa.repeat(pa.scalar(line, pa.binary()), rows.num_rows)
    columns = rows.columns[: len(SCHEMA) - 1]
    return pa.RecordBatch.from_arrays([*columns, lines], schema=SCHEMA)


def header_lines(headers: Array, *, replaced: Collection[str] = ()) -> Array:
    """Header maps as lines, without any ``Nats-`` header.

    Args:
        headers: length n, map of string to string or to a list of strings; null for none, also
            among the strings.
        replaced: columns of ``SCHEMA`` that replace a header: "content_type".

    Returns:
        Length n, binary, each line terminated; null for none.

    Raises:
        SchemaError: a name or a value holds a line break, or a name a colon.
    """
    if headers.null_count == len(headers) or not len(headers.items):
        return pa.nulls(len(headers), pa.binary())
    left_out = {"content-type"} if "content_type" in replaced else set()
    return pa.array(
        [None if row is None else _lines(row, left_out) or None for row in headers.to_pylist()],
        pa.binary(),
    )


def _lines(headers: list[tuple[str, str | list[str | None] | None]], left_out: set[str]) -> bytes:
    lines: list[str] = []
    for name, values in headers:
        if name.lower() in left_out or name.lower().startswith(_SERVERS):
            continue
        for value in [values] if isinstance(values, str) else values or ():
            if value is None:
                continue
            if not name or any(c in name for c in ":\r\n ") or any(c in value for c in "\r\n"):
                # It would end the header block, or begin another header.
                raise SchemaError(f"header {name!r} with {value!r} can't be sent")
            lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode()


def groups(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, str], pa.RecordBatch]]:
    """The rows of each (stream, producer), in their order."""
    if batch.num_rows <= FEW:
        pairs = list(zip(values_of(batch, "stream"), values_of(batch, "producer"), strict=True))
        for pair in sorted(set(pairs)):
            keep = [one == pair for one in pairs]
            yield pair, batch if all(keep) else batch.filter(pa.array(keep))
        return
    batch = as_batch(batch)
    streams = batch.column("stream").dictionary_encode()
    producers = batch.column("producer").dictionary_encode()
    codes = streams.indices.to_numpy().astype(np.int64) * len(producers.dictionary)
    codes = codes + producers.indices.to_numpy()
    for code in np.unique(codes):
        stream, producer = divmod(int(code), len(producers.dictionary))
        pair = (streams.dictionary[stream].as_py(), producers.dictionary[producer].as_py())
        mine = codes == code
        yield pair, batch if mine.all() else batch.filter(pa.array(mine))


def positions(rows: pa.RecordBatch, name: str = "position") -> Ints:
    """A column of positions as numbers."""
    if isinstance(rows, FewRows):
        return np.array(rows.lists[name], np.int64)
    return np.asarray(rows.column(name).to_numpy(zero_copy_only=False), np.int64)


def are_growing(rows: pa.RecordBatch, last: int) -> bool:
    """Whether each position is greater than the one before, and the first than ``last``."""
    if isinstance(rows, FewRows):
        few: list[int] = rows.lists["position"]
        return few[0] > last and all(one < other for one, other in pairwise(few))
    at = positions(rows)
    return bool(at[0] > last and (at[1:] > at[:-1]).all())


def check_growing(pair: tuple[str, str], last: tuple[int, int], rows: pa.RecordBatch) -> None:
    """Check that positions grow.

    Rows of one block of events, with several subjects, have the same first and last position.

    Args:
        pair: (stream, producer) of the rows.
        last: (first position, position) of the previous row; (-1, -1) for none.
        rows: columns as ``SCHEMA``.

    Raises:
        OrderError: a position does not grow.
    """
    if are_growing(rows, last[1]):
        return
    at = positions(rows)
    first = positions(rows, "first_position")
    before = np.concatenate(([last[1]], at[:-1]))
    first_before = np.concatenate(([last[0]], first[:-1]))
    same_block = (at == before) & (first == first_before) & (first < at)
    wrong = np.flatnonzero((at <= before) & ~same_block)
    if len(wrong):
        n = int(wrong[0])
        raise OrderError(
            f'producer "{pair[1]}" gave position {at[n]} after {before[n]}',
            detail=f'The rows are for stream "{pair[0]}".',
            hint="Positions must grow from row to row, within one Spark partition a producer; one "
            'event gives one row at the most, or a column "_index" of your own distinguishes them.',
        )


def trimmed(rows: pa.RecordBatch, at: int, position: int) -> pa.RecordBatch | None:
    """``rows``, without the events up to ``position`` in the payload of row ``at``.

    A replay may cut messages of many events differently from the first run; then one message holds
    published and unpublished events.  Its payload is an Arrow stream with a column ``_position``;
    None if it is not, and events can't be removed.
    """
    if rows.column("first_position")[at].as_py() > position:
        return rows
    try:
        table = pa.ipc.open_stream(rows.column("data")[at].as_py()).read_all()
    except pa.ArrowInvalid:
        return None
    if POSITION not in table.schema.names:
        return None
    events = table.filter(kernels.greater(table.column(POSITION), position))
    data = rows.column("data")
    payload = pa.array([ipc_stream(events)], pa.binary())
    replaced = pa.concat_arrays([data.slice(0, at), payload, data.slice(at + 1)])
    return rows.set_column(rows.schema.get_field_index("data"), rows.schema.field("data"), replaced)


def fitting(rows: pa.RecordBatch, first: int, rows_max: int, bytes_max: int) -> int:
    """Number of rows from ``first`` on that stay below both bounds; at least 1.

    Rows with the same position stay together, whatever their size.
    """
    total = np.cumsum(sizes_of(rows.column("data").slice(first, rows_max)))
    count = max(1, int(np.searchsorted(total, bytes_max, side="right")))
    if first + count == rows.num_rows:
        return count
    at = positions(rows)[first : first + count + 1]
    if at[-1] != at[-2]:
        return count
    # The cut would split a block: cut at the start of the block, or at its end if the block is
    # first.
    start = int(np.searchsorted(at, at[-1], side="left"))
    behind = int(np.searchsorted(positions(rows)[first:], at[-1], side="right"))
    return start or behind


def room(connection: Connection) -> int:
    """Most bytes of a payload; by default until the connection knows its server."""
    return int(connection.info.get("max_payload", 1 << 20)) - HEAD_ROOM


def largest_size(rows: pa.RecordBatch) -> int:
    """Octets of the largest payload; 0 without rows."""
    if isinstance(rows, FewRows):
        return max(map(len, rows.lists["data"]), default=0)
    return int(sizes_of(rows.column("data")).max(initial=0))


def payload_bytes(rows: pa.RecordBatch) -> int:
    """Octets of all payloads, about."""
    if isinstance(rows, FewRows):
        return sum(map(len, rows.lists["data"]))
    return int(rows.column("data").nbytes)


def check_sizes(rows: pa.RecordBatch, bytes_max: int) -> None:
    """RefusedError if a payload or a subject is larger than the server accepts.

    The server closes the connection at such a subject, so that it would be sent without end.
    """
    if isinstance(rows, FewRows):
        longest = max((len(one.encode()) for one in rows.lists["subject"]), default=0)
    else:
        longest = int(sizes_of(rows.column("subject")).max(initial=0))
    if longest > SUBJECT_MAX:
        raise RefusedError(
            f"a subject of {longest} bytes is longer than the server takes",
            detail=f"The sink takes {SUBJECT_MAX} bytes.",
            hint="Leave long values out of the subject, or take their hash.",
        )
    largest = largest_size(rows)
    if largest > bytes_max:
        raise RefusedError(
            f"a message of {largest} bytes is larger than the server takes",
            detail=f"It takes {bytes_max} bytes.",
            hint='Raise "max_payload" of the server, or put fewer rows into a message.',
        )


def matches(pattern: str, subject: str) -> bool:
    """Whether NATS delivers ``subject`` to a subscription to ``pattern``."""
    parts, tokens = pattern.split("."), subject.split(".")
    for at, token in enumerate(parts):
        if token == ">":
            return len(tokens) > at
        if at >= len(tokens) or token not in ("*", tokens[at]):
            return False
    return len(parts) == len(tokens)


HEADER: Final = "Mesh-Row"
_WORDS: Final = 4
#: No writer is as many rows ahead of its marker.
_AHEAD: Final = 1 << 24
#: Most digits of a number.
_DIGITS: Final = 18
#: Characters of a tag.
SIZE: Final = 8
_PIECE: Final = 1024


def line_begin(producer: str) -> str:
    """The header line of a producer's rows, up to the position."""
    return f"{HEADER}:{producer_hash(producer)} "


@lru_cache(maxsize=4096)
def producer_hash(producer: str) -> str:
    """The producer in the header of a row."""
    return hashlib.blake2s(producer.encode(), digest_size=4).hexdigest()


@dataclass(frozen=True, slots=True)
class RowHeader:
    """Values of the header of a row."""

    producer: str
    position: int
    number: int
    tag: str


def parse(text: str | None) -> RowHeader | None:
    """The header of a row; None for anything else."""
    words = text.split(" ") if text else ()
    if len(words) != _WORDS or not all(w.isdecimal() and len(w) <= _DIGITS for w in words[1:3]):
        return None
    return RowHeader(words[0], int(words[1]), int(words[2]), words[3])


def tags(key: bytes, first: int, count: int) -> bytes:
    """Tags of rows ``first`` to ``first + count - 1``, one after the other, in ASCII."""
    pieces = range(first // _PIECE, (first + count - 1) // _PIECE + 1)
    start = first % _PIECE * SIZE
    return b"".join(_tags(key, piece) for piece in pieces)[start : start + count * SIZE]


#: As many as a slot may have producers, with the others of its machine some megabytes.
@lru_cache(maxsize=1024)
def _tags(key: bytes, piece: int) -> bytes:
    digest = hashlib.shake_128(key + piece.to_bytes(8, "big"))
    return digest.hexdigest(_PIECE * SIZE // 2).encode()


def last_row(key: bytes, rows: int, headers: Iterable[str | None]) -> tuple[int, int, int] | None:
    """The last row of a batch among the messages of its stream, which holds them in their order.

    Args:
        key: of the batch.
        rows: number of earlier rows, which are left out.
        headers: of messages in the order of the stream; null for none.

    Returns:
        Number in the batch, position, and index in ``headers``; None if there is none.
    """
    last = None
    for at, text in enumerate(headers):
        row = parse(text)
        if row is None or not rows < row.number <= rows + _AHEAD:
            continue
        # A later message with a number is a copy.
        if row.tag.encode() == tags(key, row.number, 1):
            rows = row.number
            last = rows, row.position, at
    return last
