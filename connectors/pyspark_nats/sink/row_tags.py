"""Header of a row of an ingest batch: its producer, its position, and a tag.

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
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

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
