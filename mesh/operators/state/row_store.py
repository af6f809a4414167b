"""Rows that an operator keeps, addressed by numbers that grow in the order of arrival.

Native loops work on row numbers; the attributes stay in Arrow and are fetched once, when the rows
to emit are known.  Rows are appended in batches and never changed, so a stored batch is not stored
again while it is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.operators.base import Longs, concat, no_rows
from mesh.operators.native import LONG1, LONG2, READ1, njit, types
from pyspark_nats.few_rows import FewRows, joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mesh.model.values import Json
    from pyspark_nats.arrow import ArrowArray

#: Rows up to which small chunks are merged.
CHUNK_ROWS = 4096
#: Runs of few rows that are put into a chunk together.
_FEW_MAX = 64
#: A chunk that spans this many times the requested rows is not copied whole.
_SPAN = 4
_NUMBER = "#row"


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Rows from the one numbered ``first`` to the one numbered ``last``; never changed.

    ``numbers``: int64[n], growing, where some between them are missing; None where none is.
    """

    first: int
    last: int
    rows: pa.RecordBatch
    numbers: Longs | None = None

    @property
    def name(self) -> str:
        # Rows are only ever removed, so the count identifies the rest of a range.
        return f"rows-{self.first}-{self.last}-{self.rows.num_rows}"

    @property
    def all_numbers(self) -> Longs:
        return np.arange(self.first, self.last + 1) if self.numbers is None else self.numbers

    def places(self, numbers: Longs) -> Longs:
        """Places of these numbers in ``rows``, which contains all of them."""
        if self.numbers is None:
            return numbers - self.first
        return np.searchsorted(self.numbers, numbers)


class RowIndex:
    """Rows found in a store: those at ``places`` of ``parts``, one after the other."""

    def __init__(self, parts: list[pa.RecordBatch], places: Longs) -> None:
        self._parts = parts
        self._places = places

    def rows(self) -> pa.RecordBatch:
        """The rows."""
        return concat(self._parts).take(self._places)

    def column(self, name: str) -> ArrowArray:
        """The column of these rows with that name."""
        arrays = [part.column(name) for part in self._parts]
        whole = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        places: Any = pa.array(self._places)
        return whole.take(places)


class RowStore:
    """Rows of one schema; the first appended one is number 0."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._chunks: list[_Chunk] = []
        self._lasts: list[int] = []
        #: The last rows, which are in no chunk yet: a chunk is copied for rows that join it.
        self._few: list[FewRows] = []
        #: The number that the next row gets.
        self.came = 0
        #: Rows that are kept.
        self.count = 0

    def append(self, rows: pa.RecordBatch) -> None:
        """Keep further rows, few of which may be lists of values."""
        if not rows.num_rows:
            return
        if not isinstance(rows, FewRows):
            self._join_few()
        self.came += rows.num_rows
        self.count += rows.num_rows
        if not isinstance(rows, FewRows):
            self._add(rows)
            return
        self._few.append(rows)
        if len(self._few) == _FEW_MAX:
            self._join_few()

    def _join_few(self) -> None:
        """Put the rows that are in no chunk into one."""
        if self._few:
            few, self._few = joined(self._few), []
            self._add(few.whole())

    def _add(self, rows: pa.RecordBatch) -> None:
        """Put the last rows that have come into a chunk."""
        count = rows.num_rows
        first = self.came - count
        chunk = _Chunk(first, self.came - 1, rows)
        if self._chunks:
            last = self._chunks[-1]
            together = last.rows.num_rows + count
            if last.numbers is None and last.last + 1 == first and together <= CHUNK_ROWS:
                chunk = _Chunk(last.first, chunk.last, concat([last.rows, rows]))
                self._chunks.pop()
                self._lasts.pop()
        self._chunks.append(chunk)
        self._lasts.append(chunk.last)

    def take(self, numbers: Longs, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows with these numbers, in their order, or some of their columns; each is kept."""
        return self.find(numbers, columns).rows()

    def find(self, numbers: Longs, columns: Sequence[str] | None = None) -> RowIndex:
        """As ``take``, for access to one column after the other."""
        names = list(self.schema.names if columns is None else columns)
        self._join_few()
        if not len(numbers):
            return RowIndex([no_rows(self.schema).select(names)], numbers)
        lasts = np.array(self._lasts)
        firsts = np.array([chunk.first for chunk in self._chunks])
        where = np.empty(len(numbers), dtype=np.int64)
        # By chunk: the number of requested rows, and the least and the greatest of their numbers.
        spans = np.zeros((3, len(lasts)), dtype=np.int64)
        _locate(numbers, firsts, lasts, where, spans)
        used = np.flatnonzero(spans[0]).tolist()
        if len(used) == 1:
            chunk = self._chunks[used[0]]
            return RowIndex([chunk.rows.select(names)], chunk.places(numbers))
        parts: list[pa.RecordBatch] = []
        shift = np.zeros(len(lasts), dtype=np.int64)
        apart: list[tuple[Longs, Longs]] = []
        start = 0
        for index in used:
            chunk = self._chunks[index]
            count, least, most = spans[:, index].tolist()
            if chunk.numbers is None and most - least < _SPAN * count + _SPAN:
                part = chunk.rows.slice(least - chunk.first, most - least + 1).select(names)
                shift[index] = start - least
            else:
                requests = np.flatnonzero(where == index)
                part = chunk.rows.select(names).take(chunk.places(numbers[requests]))
                apart.append((requests, np.arange(start, start + count)))
            parts.append(part)
            start += part.num_rows
        places = shift.take(where)
        places += numbers
        for requests, positions in apart:
            places[requests] = positions
        return RowIndex(parts, places)

    def release_below(self, number: int) -> None:
        """Forget rows with smaller numbers, as far as whole chunks go."""
        gone = 0
        while gone < len(self._chunks) and self._lasts[gone] < number:
            self.count -= self._chunks[gone].rows.num_rows
            gone += 1
        if gone:
            del self._chunks[:gone]
            del self._lasts[:gone]

    def keep(self, numbers: Longs) -> None:
        """Forget all rows but those with ``numbers``, which grow."""
        self._join_few()
        chunks: list[_Chunk] = []
        starts = np.array([chunk.first for chunk in self._chunks] or [0])
        edges = [*np.searchsorted(numbers, starts).tolist(), len(numbers)]
        for index, chunk in enumerate(self._chunks):
            live = numbers[edges[index] : edges[index + 1]]
            if len(live) == chunk.rows.num_rows:
                chunks.append(chunk)
            elif len(live):
                chunks.append(_thin(chunk, live, chunk.rows.take(chunk.places(live))))
        self._chunks = self._joined(chunks)
        self._lasts = [chunk.last for chunk in self._chunks]
        self.count = sum(chunk.rows.num_rows for chunk in self._chunks)

    def _joined(self, chunks: list[_Chunk]) -> list[_Chunk]:
        """Merge small neighbours; all of them then hold just the present rows."""
        joined: list[_Chunk] = []
        for chunk in chunks:
            last = joined[-1] if joined else None
            if last is None or last.rows.num_rows + chunk.rows.num_rows > CHUNK_ROWS:
                joined.append(chunk)
                continue
            numbers = np.concatenate([last.all_numbers, chunk.all_numbers])
            rows = concat([last.rows, chunk.rows])
            joined[-1] = _thin(_Chunk(last.first, chunk.last, rows), numbers, rows)
        return joined

    def columns(self, names: Sequence[str]) -> Iterator[tuple[Longs, list[Longs]]]:
        """The numbers of all rows and some columns of whole numbers, chunk by chunk."""
        self._join_few()
        for chunk in self._chunks:
            columns = (chunk.rows.column(name).to_numpy() for name in names)
            yield chunk.all_numbers, [c.astype(np.int64, copy=False) for c in columns]

    def chunks(self) -> Iterator[tuple[Longs, pa.RecordBatch]]:
        """The numbers of all rows and the rows, in parts."""
        self._join_few()
        for chunk in self._chunks:
            yield chunk.all_numbers, chunk.rows

    def all(self) -> tuple[Longs, pa.RecordBatch]:
        """Every row that is kept, with its number."""
        self._join_few()
        if not self._chunks:
            return np.empty(0, dtype=np.int64), no_rows(self.schema)
        numbers = np.concatenate([chunk.all_numbers for chunk in self._chunks])
        return numbers, concat([chunk.rows for chunk in self._chunks])

    def pieces(self) -> dict[str, pa.RecordBatch]:
        """The rows as pieces of a state; those that are not new have the names they had."""
        self._join_few()
        pieces = {}
        for chunk in self._chunks:
            rows = chunk.rows
            if chunk.numbers is not None:
                rows = rows.append_column(_NUMBER, pa.array(chunk.numbers))
            pieces[chunk.name] = rows
        return pieces

    def scalars(self) -> list[object]:
        """Scalars of the state, besides the pieces."""
        self._join_few()
        return [self.came, [[c.first, c.last, c.name] for c in self._chunks]]

    def restore(self, pieces: Mapping[str, pa.RecordBatch], scalars: Json) -> None:
        """Restore from ``pieces`` and ``scalars``."""
        self._few = []
        self.came, chunks = scalars
        self._chunks = []
        for first, last, name in chunks:
            rows = pieces[name]
            numbers = None
            if _NUMBER in rows.schema.names:
                numbers = rows.column(_NUMBER).to_numpy()
            self._chunks.append(_Chunk(first, last, rows.select(self.schema.names), numbers))
        self._lasts = [chunk.last for chunk in self._chunks]
        self.count = sum(chunk.rows.num_rows for chunk in self._chunks)


def _thin(chunk: _Chunk, numbers: Longs, rows: pa.RecordBatch) -> _Chunk:
    """``chunk`` with just these rows; its range stays, for that is its name."""
    if len(numbers) == chunk.last - chunk.first + 1:
        return _Chunk(chunk.first, chunk.last, rows)
    return _Chunk(chunk.first, chunk.last, rows, numbers)


@njit(types.void(READ1, READ1, READ1, LONG1, LONG2))
def _locate(numbers, firsts, lasts, where, spans):  # type: ignore[no-untyped-def]
    """Find the chunk of each number; leaving and arriving numbers are two rising rows, mixed."""
    near, other = 0, 0
    for k in range(numbers.shape[0]):
        number = numbers[k]
        if not firsts[near] <= number <= lasts[near]:
            near, other = other, near
            if not firsts[near] <= number <= lasts[near]:
                low, high = 0, lasts.shape[0]
                while low < high:
                    middle = (low + high) // 2
                    if lasts[middle] < number:
                        low = middle + 1
                    else:
                        high = middle
                near = low
        where[k] = near
        if spans[0, near] == 0:
            spans[1, near], spans[2, near] = number, number
        elif number < spans[1, near]:
            spans[1, near] = number
        elif number > spans[2, near]:
            spans[2, near] = number
        spans[0, near] += 1
