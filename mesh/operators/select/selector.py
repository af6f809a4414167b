"""``select .. group by .. having ..``: from input rows to output rows, with running aggregates.

Current events add to the aggregates and expired ones subtract, whichever of them are emitted.  If
there are aggregates, one event of those that a batch window emits at once is emitted: the last, or
the last of each group, in the order in which the groups arrived.

``order by``, ``limit`` and ``offset``, each over the events emitted at once: a chunk.

Successive current events, or expired ones, are sorted among themselves.  ``offset`` drops the first
of a chunk; then ``limit`` passes that many, and of the others those that expire.

With ``group by``, and no batch window, only ``limit`` applies, and to expired events as well.

Source: observed on Siddhi 5.1.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.language.syntax import Direction, EventKind
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.operators.base import CURRENT, EXPIRED, RESET, State, namespaced, no_rows, subset
from mesh.operators.expressions import Frame, columns_of, compile_expression, compile_filter
from mesh.operators.failures import lost, stopped
from mesh.operators.native import bare
from mesh.operators.select.aggregates import AGGREGATES, ExtractedAggregate, extract
from mesh.operators.select.aggregator_set import Aggregators
from mesh.operators.select.groups import Groups
from mesh.operators.select.hashing import more_rows
from mesh.operators.total_order import instance_chunk_begins
from mesh.plan.bound import OUTPUT_STEP, Delete, Update
from pyspark_nats.few_rows import FewRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.functions.vectors import Vector
    from mesh.operators.base import Bools, EventBatch, Kinds, Longs
    from mesh.operators.select.aggregates import Expiry
    from mesh.operators.windows.row_ref_window import RowRefs
    from mesh.plan.bound import BoundExpression, BoundQuery


#: Number of unused groups after which their numbers are reused.
_SPARE_GROUPS = 65_536
#: Before the numbers of aggregates in ``having``.
_HAVING = "having"


class Selector:
    """The select clause of one query, with the state of its aggregates.

    ``leaving``: whether events expire, so that min and max have to remember the window's content.
    ``batch``: whether events come from a batch window.
    ``kind``: the kind of events to emit, if not that of the query.
    ``grouping``: whether the output rate needs the groups, which are kept then.
    ``resets``: whether events that reset aggregates are emitted, where neither groups nor batches
    reduce the output.
    ``begins_anew``: whether such events reset the aggregates.
    """

    def __init__(
        self,
        query: BoundQuery,
        leaving: Expiry,
        batch: bool = False,
        *,
        kind: EventKind | None = None,
        grouping: bool = False,
        resets: bool = False,
        begins_anew: bool = True,
    ) -> None:
        written = output_schema(query)
        self._schema = written.arrow
        self._types = [attribute.type for attribute in written.attributes]
        self._names = [attribute.name for attribute in written.attributes]
        self._kind = kind or query.events
        self._order_by = [
            (compile_expression(order.column), order.direction) for order in query.order_by
        ]
        self._limit, self._offset = query.limit, query.offset
        self._group_by = query.group_by
        lifted: list[ExtractedAggregate] = []
        self._outputs = [
            (output.name, compile_expression(extract(output.expression, lifted)))
            for output in query.outputs
        ]
        #: The attributes that it reads apart from the group's key and the aggregates' arguments.
        self.shown = _attributes_read(query)
        in_having: list[ExtractedAggregate] = []
        having = query.having and extract(query.having, in_having, _HAVING)
        self._having = compile_filter(having) if having is not None else None
        keys = Groups([column.type for column in query.group_by])
        self._groups = keys
        self._aggregators = None
        if lifted or grouping:
            self._aggregators = Aggregators(lifted, keys, leaving, resets=begins_anew)
        # These see only events that are emitted, all in one group, and are never reset.
        self._in_having = (
            Aggregators(in_having, Groups(()), leaving, _HAVING, resets=False)
            if in_having
            else None
        )
        self._thins_out = batch and bool(lifted or in_having or query.group_by)
        self._resets = resets and not self._thins_out and not query.group_by
        self._needs_groups = bool(lifted) or grouping or (self._thins_out and bool(query.group_by))
        #: The arguments of aggregators, each once, and for each aggregator the index of its own.
        self._arguments: list[BoundExpression] = []
        self._argument_places: list[int | None] = [self._argument_of(one) for one in lifted]
        self._evaluators = [compile_expression(argument) for argument in self._arguments]
        #: The number of groups from which on idle ones are released.
        self._groups_max = 0 if grouping or not query.group_by else _SPARE_GROUPS
        self._scratch: Longs = np.zeros((0, 2), dtype=np.int64)
        self._chunks = 0
        #: The groups of the events that ``process`` returned last, if they are needed.
        self.groups: Longs = np.empty(0, dtype=np.int64)

    def _argument_of(self, one: ExtractedAggregate) -> int | None:
        if not one.call.arguments or one.call.function.lower() == "count":
            return None
        (argument, *_) = one.call.arguments
        if argument not in self._arguments:
            self._arguments.append(argument)
        return self._arguments.index(argument)

    def process(self, frame: Frame, events: EventBatch) -> EventBatch:
        """The output rows of ``events``, with attributes in ``frame``, current or expired."""
        count = len(events)
        if not count:
            self.groups = np.empty(0, dtype=np.int64)
            return events.with_rows(no_rows(self._schema))
        groups: Longs | None = None
        if self._needs_groups:
            keys = [frame.column(column) for column in self._group_by]
            groups = self._groups.number(keys, events.instance, events.kind)
        if self._aggregators is not None and groups is not None:
            if frame.failures:
                groups = np.where(stopped(frame, events), -1, groups)
            self._aggregators.run(frame, groups, events)
        vectors = self._computed(frame)
        indices = self._output_indices(frame, events, groups, self._going(frame, events))
        output = events.with_rows(self._rows(vectors, count, events.rows))
        if groups is not None:
            self.groups = groups if indices is None else groups[indices]
            if self.has_many_groups:
                self.release(None)
        return output if indices is None else output.take(indices)

    def _computed(self, frame: Frame) -> list[Vector]:
        """The outputs, which ``having`` and ``order by`` may name."""
        vectors = [evaluate(frame) for _, evaluate in self._outputs]
        if self._having is not None or self._order_by:
            for (name, _), vector in zip(self._outputs, vectors, strict=True):
                frame.add(OUTPUT_STEP, name, vector)
        return vectors

    def _rows(
        self, vectors: Sequence[Vector], count: int, source: pa.RecordBatch
    ) -> pa.RecordBatch:
        """The outputs as rows; lists of values where the input is."""
        if isinstance(source, FewRows) and self._is_listed(vectors):
            return FewRows(
                self._schema,
                {n: v.to_list(count) for n, v in zip(self._names, vectors, strict=True)},
                count,
            )
        arrays = [v.to_arrow(count, t) for v, t in zip(vectors, self._types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _is_listed(self, vectors: Sequence[Vector]) -> bool:
        """Whether the outputs have their types, and none is an object."""
        types = [vector.type for vector in vectors]
        return types == self._types and AttributeType.OBJECT not in types

    # After a window that is followed

    @property
    def argument_types(self) -> list[AttributeType]:
        """The types of the result of ``arguments``."""
        return [one.type for one in self._arguments if one.type is not None]

    def arguments(self, frame: Frame) -> list[Vector]:
        """The aggregators' arguments for rows that enter the window."""
        return [evaluate(frame) for evaluate in self._evaluators]

    def enter(self, frame: Frame, instance: Longs, kind: Kinds) -> Longs:
        """The groups of rows that enter the window."""
        groups = self.number(frame, instance, kind)
        if self._aggregators is not None:
            self._aggregators.enter(groups)
        return groups

    def number(self, frame: Frame, instance: Longs, kind: Kinds) -> Longs:
        """The groups of rows; undefined where they aren't needed."""
        if not self._needs_groups:
            return instance
        keys = [frame.column(column) for column in self._group_by]
        return self._groups.number(keys, instance, kind)

    def follow(self, lines: RowRefs, groups: Longs, arguments: Sequence[Vector]) -> EventBatch:
        """The output for the current events of ``lines``: see ``following``.

        ``groups``, ``arguments``: of the row of each line; undefined for one that resets.
        """
        if len(lines.instance):
            groups[lines.kind == RESET] = -1
        results: list[tuple[str, Vector]] = []
        if self._aggregators is not None:
            inputs = [None if at is None else arguments[at] for at in self._argument_places]
            results = self._aggregators.follow(lines, groups, inputs)
        if self._thins_out:
            at = self._last_lines(lines, groups)
        else:
            at = np.flatnonzero(lines.kind == CURRENT)
        events = lines.events(at)
        count = len(at)
        if not count:
            return events.with_rows(no_rows(self._schema))
        frame = Frame.of_events(events)
        for name, vector in results:
            frame.add(AGGREGATES, name, vector.take(at))
        vectors = self._computed(frame)
        output = events.with_rows(self._rows(vectors, count, events.rows))
        if self._having is None and not self._order_by and not self._limits:
            return output
        going = np.ones(count, dtype=np.bool_) if self._having is None else self._having(frame)
        return output.take(self._in_order(frame, events, np.flatnonzero(going)))

    @property
    def has_many_groups(self) -> bool:
        """Whether ``release`` is worth it; code after the selector must not know groups then."""
        return 0 < self._groups_max < self._groups.in_use

    def release(self, held: Longs | None) -> None:
        """Drop groups that equal unused ones, except for those that are ``held``."""
        keys = self._groups
        if self._aggregators is None:
            idle = np.ones(len(keys), dtype=np.bool_)
        else:
            idle = self._aggregators.idle()
        idle[keys.free] = False
        if held is not None:
            idle[held] = False
        gone = np.flatnonzero(idle)
        if len(gone):
            if self._aggregators is not None:
                self._aggregators.release(gone)
            keys.release(gone)
        self._groups_max = 2 * keys.in_use + _SPARE_GROUPS

    def _last_lines(self, lines: RowRefs, groups: Longs) -> Longs:
        """Of each chunk the last current line, or the last of each group."""
        if not self._group_by:
            groups = np.zeros(len(lines), dtype=np.int64)
        self._scratch = more_rows(self._scratch, len(self._groups) + 1)
        out = np.empty(len(lines), dtype=np.int64)
        count, self._chunks = _last_of_lines(
            lines.kind, lines.instance, lines.piece, groups, self._scratch, self._chunks, out
        )
        return out[:count]

    # Events to emit

    def _going(self, frame: Frame, events: EventBatch) -> Bools:
        """bool[n], the events to emit, as far as each decides alone."""
        going = self._of_kind(events)
        if self._having is not None:
            if self._in_having is not None:
                self._in_having.groups.number((), events.instance, events.kind)
                self._in_having.run(frame, np.where(going, events.instance, -1), events)
            going = going & self._having(frame)
        if self._resets:
            going = going | (events.kind == RESET)
        if frame.failures:
            going = going & ~lost(frame, events)
        return going

    def _output_indices(
        self, frame: Frame, events: EventBatch, groups: Longs | None, going: Bools
    ) -> Longs | None:
        """The indices of the events to emit of each chunk, in order; None for all as they are."""
        if self._thins_out:
            indices = self._last_ones(events, groups, going)
        elif going.all() and not self._order_by and not self._limits:
            return None
        else:
            indices = np.flatnonzero(going)
        return self._in_order(frame, events, indices)

    @property
    def _limits(self) -> bool:
        return self._limit is not None or self._offset is not None

    def _in_order(self, frame: Frame, events: EventBatch, indices: Longs) -> Longs:
        """Of the events at ``indices`` those to emit, in the requested order."""
        if self._group_by and not self._thins_out:
            if self._limit is not None:
                indices = indices[places(events.at(indices)) < self._limit]
            return indices
        if self._order_by and len(indices):
            keys = [
                (evaluate(frame).spread(frame.length).take(indices), direction)
                if frame.length > 1
                else (evaluate(frame), direction)
                for evaluate, direction in self._order_by
            ]
            indices = indices[in_order(events.at(indices), keys)]
        if self._limits:
            indices = indices[limited(events.at(indices), self._limit, self._offset)]
        return indices

    def _of_kind(self, events: EventBatch) -> Bools:
        match self._kind:
            case EventKind.CURRENT:
                return np.equal(events.kind, CURRENT)
            case EventKind.EXPIRED:
                return np.equal(events.kind, EXPIRED)
            case EventKind.ALL:
                return np.less_equal(events.kind, EXPIRED)

    def _last_ones(self, events: EventBatch, groups: Longs | None, going: Bools) -> Longs:
        """Of each chunk the last of ``going``, or the last of each group."""
        if not self._group_by or groups is None:
            groups = np.zeros(len(events), dtype=np.int64)
        scratch = np.full((len(self._groups) + 1, 2), -1, dtype=np.int64)
        out = np.empty(len(events), dtype=np.int64)
        return out[: _last_of_groups(instance_chunk_begins(events), groups, going, scratch, out)]

    def forget(self, instances: Longs) -> Longs:
        """Drop all groups of ``instances``, and return their numbers."""
        groups = self._groups.forget(instances)
        if self._aggregators is not None:
            self._aggregators.forget(instances, groups)
        if self._in_having is not None:
            self._in_having.forget(instances, self._in_having.groups.forget(instances))
        return groups

    def snapshot(self) -> State:
        """The aggregates of all groups."""
        return namespaced({name: a.snapshot() for name, a in self._all()})

    def restore(self, state: State) -> None:
        """Restore the aggregates."""
        for name, aggregators in self._all():
            aggregators.restore(subset(state, name))

    def _all(self) -> list[tuple[str, Aggregators]]:
        pairs = (("select", self._aggregators), (_HAVING, self._in_having))
        return [(name, aggregators) for name, aggregators in pairs if aggregators is not None]


def _attributes_read(query: BoundQuery) -> list[str]:
    """The attributes that outputs, ``order by`` and ``having`` read outside of aggregates."""
    read = [extract(output.expression, []) for output in query.outputs]
    read += [order.column for order in query.order_by]
    if query.having is not None:
        read.append(query.having)
    return list(dict.fromkeys(c.name for e in read for c in columns_of(e) if c.step == 0))


@bare
def _last_of_groups(begin: Bools, groups: Longs, going: Bools, scratch: Longs, out: Longs) -> int:
    """Put the last row of each group of each chunk into ``out``, and return their number.

    ``scratch``: by group, the last chunk with it and its place in ``out``.
    """
    count = 0
    chunk = -1
    for row in range(len(groups)):
        if begin[row]:
            chunk += 1
        if not going[row]:
            continue
        group = groups[row]
        if scratch[group, 0] != chunk:
            scratch[group, 0] = chunk
            scratch[group, 1] = count
            count += 1
        out[scratch[group, 1]] = row
    return count


@bare
def _last_of_lines(
    kind: Kinds,
    instance: Longs,
    piece: Longs,
    groups: Longs,
    scratch: Longs,
    chunk: int,
    out: Longs,
) -> tuple[int, int]:
    """As ``_last_of_groups``, of current lines; chunks are numbered from ``chunk`` on.

    ``scratch`` is kept from run to run.  Returns how many lines are emitted, and the next chunk.
    """
    count = 0
    for row in range(len(groups)):
        if row == 0 or piece[row] != piece[row - 1] or instance[row] != instance[row - 1]:
            chunk += 1
        if kind[row] != 0:
            continue
        group = groups[row]
        if scratch[group, 0] != chunk:
            scratch[group, 0] = chunk
            scratch[group, 1] = count
            count += 1
        out[scratch[group, 1]] = row
    return count, chunk


def output_schema(query: BoundQuery) -> StreamSchema:
    """The schema of the output: an insert has that of its target, a delete or update its own."""
    if not isinstance(query.action, Delete | Update):
        return query.target
    return StreamSchema(
        query.target.name,
        tuple(
            # A bare null has no type; no comparison with it holds, for any type given.
            Attribute(output.name, output.expression.type or AttributeType.BOOL)
            for output in query.outputs
        ),
    )


def in_order(events: EventBatch, keys: Sequence[tuple[Vector, Direction]]) -> Longs:
    """The indices of ``events`` in the order of ``keys``, the first of which counts most."""
    breaks = instance_chunk_begins(events)
    breaks[1:] |= events.kind[1:] != events.kind[:-1]
    if breaks.all():
        return np.arange(len(events.order))
    sort_keys = [(vector.spread(len(events.order)), direction) for vector, direction in keys]
    columns = [np.cumsum(breaks), *sort_columns(sort_keys)]
    return np.lexsort(columns[::-1])


def places(events: EventBatch) -> Longs:
    """int64[n], the number of events before each in its chunk."""
    first = np.flatnonzero(instance_chunk_begins(events))
    lengths = np.diff(np.append(first, len(events.order)))
    return np.arange(len(events.order)) - np.repeat(first, lengths)


def limited(events: EventBatch, limit: int | None, offset: int | None) -> Bools:
    """bool[n], the ``events`` to emit; resets of aggregates are emitted, and not counted."""
    resets = events.kind == RESET
    place = places(events) - (offset or 0)
    if resets.any():
        before = np.cumsum(resets) - resets
        place -= before - np.maximum.accumulate(np.where(instance_chunk_begins(events), before, 0))
    going: Bools = (place >= 0) | resets
    if limit is not None:
        going &= (place < limit) | (events.kind != CURRENT)
    return going


def sort_columns(keys: Sequence[tuple[Vector, Direction]]) -> list[Any]:
    """Columns of numbers that sort rows by ``keys``: the first counts most.

    NaN is more than every number, -0.0 less than 0.0, and texts compare by their UTF-16 units, as
    Java's do.  Nulls are last in both directions.

    Nulls are equal, with any value in their place: they keep their order.
    """
    columns: list[Any] = []
    for vector, direction in keys:
        ranks = np.where(vector.null_mask, 0, _ranks(vector))
        columns += [vector.null_mask, ~ranks if direction is Direction.DESCENDING else ranks]
    return columns


def _ranks(vector: Vector) -> Longs:
    """Whole numbers in the order of the values; any for null."""
    values = vector.values
    if vector.type is AttributeType.STRING:
        encoded = values.fill_null("").dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        order = sorted(range(len(texts)), key=lambda n: texts[n].encode("utf-16-be"))
        ranks = np.empty(len(texts), dtype=np.int64)
        ranks[order] = np.arange(len(texts))
        of_rows: Longs = ranks[encoded.indices.to_numpy()]
        return of_rows
    if vector.type is AttributeType.OBJECT:
        raise AssertionError("the planner refuses to order by objects")
    if values.dtype.kind != "f":
        longs: Longs = values.astype(np.int64)
        return longs
    bits: Longs = np.where(np.isnan(values), np.nan, values).astype(np.float64).view(np.int64)
    flipped: Longs = np.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits)
    return flipped
