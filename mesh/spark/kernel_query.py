"""A stateless query that Catalyst can't compute, evaluated by our own kernels.

The rows of the source go through the query's operators as they are in a group with state, a batch
of Arrow at a time; nothing is kept between batches.  A row on which something fails becomes one
with ``_error`` set, as an event that can't be read is, and leaves for the error stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute

from mesh.functions.objects import python_value
from mesh.functions.rows import python_values
from mesh.functions.scripts import compile_scripts
from mesh.functions.vectors import from_arrow
from mesh.operators.base import CURRENT, WHOLE, Events, Timeline, concat
from mesh.operators.environment import Environment, using
from mesh.operators.query.stream import StreamQuery
from mesh.plan.bound import BoundStream
from mesh.plan.build import bind_group
from mesh.spark.wiring import POSITIONS_PER_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mesh.model.app import GroupSpec
    from mesh.model.types import StreamSchema
    from mesh.operators.base import Longs

#: The stubs know each function of Arrow by a dozen overloads, and reject most honest calls.
_compute: Any = pyarrow.compute
#: Compiled queries that a process keeps.
_QUERIES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class KernelTask:
    """What ``mapInArrow`` calls: rows of the query's input with metadata, to rows of its target.

    ``number``: the query's place in its group; ``salt``: tells the legs of a group apart.
    ``tells``: whether the events on which it fails are to be recorded; another leg does otherwise.
    """

    group: GroupSpec
    number: int
    salt: str
    #: The names of the metadata columns, which every row keeps.
    metadata: tuple[str, ...]
    tells: bool = True

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows with metadata in, rows with metadata out."""
        for batch in batches:
            if not batch.num_rows:
                continue
            failed = _compute.is_valid(batch.column("_error")).to_numpy(zero_copy_only=False)
            pieces = []
            if failed.any():
                rows = np.flatnonzero(failed)
                pieces.append((rows, self._nothing(batch.take(rows))))
            if not failed.all():
                rows = np.flatnonzero(~failed)
                read = batch.take(rows) if failed.any() else batch
                pieces += [(rows[own], made) for own, made in self._process(read)]
            if pieces:
                yield _in_order(pieces)

    def _process(self, batch: pa.RecordBatch) -> Iterator[tuple[Longs, pa.RecordBatch]]:
        """What goes on and what failed, each with the rows of ``batch`` that it is made of."""
        events = as_events(batch, self._compiled.source.arrow)
        last = int(events.clock_ms.max())
        timeline = Timeline(0, np.maximum.accumulate(events.clock_ms), last)
        query = self._compiled.query
        made = query.process({self._compiled.source.name: [events]}, timeline)
        if len(made):
            own = _rows_of(made, events)
            rows = batch.take(own)
            columns: list[Any] = [
                *made.rows.columns,
                *(rows.column(name) for name in self.metadata),
            ]
            names = [*made.rows.schema.names, *self.metadata]
            yield own, pa.RecordBatch.from_arrays(columns, names=names)
        # The operators collect what failed; here nobody else takes it.
        found, query.failures.found = query.failures.found, []
        for lost, texts, _ in found if self.tells else ():
            own = _rows_of(lost, events)
            yield own, self._lost(batch.take(own), texts)

    @property
    def _compiled(self) -> _Compiled:
        return _compiled(self.group, self.number, self.salt)

    def _lost(self, rows: pa.RecordBatch, texts: list[str]) -> pa.RecordBatch:
        """Rows that failed, with the reason and the event as JSON."""
        schema = self._compiled.source
        columns = [
            [python_value(v) for v in python_values(from_arrow(rows.column(a.name), a.type))]
            for a in schema.attributes
        ]
        data = [
            orjson.dumps(dict(zip(schema.names, values, strict=True)), default=str)
            for values in zip(*columns, strict=True)
        ]
        told: dict[str, Any] = {
            "_error": pa.array(texts, pa.string()),
            "_data": pa.array(data, pa.binary()),
        }
        arrays = [told.get(name, rows.column(name)) for name in rows.schema.names]
        return self._nothing(pa.RecordBatch.from_arrays(arrays, names=rows.schema.names))

    def _nothing(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the target without values, with the metadata of ``rows``."""
        target = self._compiled.target.arrow
        columns: list[Any] = [pa.nulls(rows.num_rows, field.type) for field in target]
        columns += [rows.column(name) for name in self.metadata]
        return pa.RecordBatch.from_arrays(columns, names=[*target.names, *self.metadata])


@dataclass(frozen=True, slots=True)
class _Compiled:
    source: StreamSchema
    target: StreamSchema
    query: StreamQuery


_running: dict[tuple[str, int, str], _Compiled] = {}


def _compiled(group: GroupSpec, number: int, salt: str) -> _Compiled:
    """The operators of a query, kept by the process."""
    key = (group.text, number, salt)
    if key not in _running:
        if len(_running) >= _QUERIES_MAX:
            _running.clear()
        bound = bind_group(group)
        query = bound.queries[number]
        environment = Environment(compile_scripts(bound.scripts), salt=f"{bound.name}/{salt}")
        with using(environment):
            assert isinstance(query.input, BoundStream), "a stateless query reads one stream"
            running = StreamQuery(query, query.input, 0)
        source = bound.stream(query.input_streams[0])
        _running[key] = _Compiled(source, query.target, running)
    return _running[key]


def as_events(batch: pa.RecordBatch, schema: pa.Schema) -> Events:
    """Each row as a chunk of its own, known by its message and its place in that."""
    count = batch.num_rows
    times = (batch.column("_event_time_ms"), batch.column("_timestamp_ms"))
    time_ms = _longs(_compute.coalesce(*times))
    return Events(
        time_ms,
        time_ms,
        _longs(batch.column("_sequence")),
        np.zeros(count, dtype=np.int64),
        _longs(batch.column("_index")),
        np.full(count, CURRENT, dtype=np.int8),
        np.full(count, WHOLE, dtype=np.int64),
        batch.select(schema.names).cast(schema),
    )


def _in_order(pieces: Sequence[tuple[Longs, pa.RecordBatch]]) -> pa.RecordBatch:
    """Pieces of one batch, in the order of the rows that they are made of.

    What is recorded of a leg has positions that must grow, whichever of its queries it failed in.
    """
    if len(pieces) == 1:
        return pieces[0][1]
    order = np.argsort(np.concatenate([rows for rows, _ in pieces]))
    return concat([piece for _, piece in pieces]).take(order)


def _rows_of(made: Events, events: Events) -> Longs:
    """int64[n], which of ``events`` each of ``made`` comes of."""
    keys = events.order * POSITIONS_PER_MESSAGE + events.chunk
    order = np.argsort(keys, kind="stable")
    wanted = made.order * POSITIONS_PER_MESSAGE + made.chunk
    return order[np.searchsorted(keys, wanted, sorter=order)]


def _longs(column: Any) -> Any:
    return column.to_numpy(zero_copy_only=False).astype(np.int64)
