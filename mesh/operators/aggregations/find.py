"""Rows of an aggregation: what ``within`` and ``per`` find, running and closed cells together.

A question for a duration reads its closed cells and the running ones of it and of all shorter
durations, and merges them by their base values.  Outputs are computed from the merged cells.

Rows of the tables of an aggregation by name, ``A_SECONDS`` ..: see ``aggregation_tables``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mesh.functions import kernels
from mesh.functions.objects import ValueSet, object_array, to_binary
from mesh.functions.vectors import Vector, constant
from mesh.language.syntax import BinaryOperator
from mesh.model.types import AttributeType
from mesh.operators.aggregations.bucket_reads import rank_of
from mesh.operators.aggregations.cells import Cells, CellStore
from mesh.operators.aggregations.dictionary import KeyNumbers
from mesh.operators.aggregations.layout import AGGREGATES, KEYS, LATEST
from mesh.operators.aggregations.times import bucket_starts, duration_named, span_between
from mesh.operators.aggregations.values import BaseKind
from mesh.operators.base import BEFORE_ALL, NEVER
from mesh.operators.expressions import Frame, compile_expression
from mesh.plan.aggregation_tables import EVENT_TIMESTAMP, LAST_EVENT_TIMESTAMP, TIMESTAMP
from mesh.plan.bound import BinaryExpression, Column, Constant, conjuncts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mesh.functions.vectors import Mask
    from mesh.language.syntax import TimeUnit
    from mesh.operators.aggregations.layout import Layout, OutputAggregate
    from mesh.operators.aggregations.rollup import Aggregation
    from mesh.operators.base import Longs
    from mesh.plan.bound import BoundExpression, BoundWithin
    from pyspark_nats.arrow import ArrowArray


#: Groups that are looked up one by one; for more of them all cells are compared.
_FEW: Final = 64


def find(
    aggregation: Aggregation,
    within: tuple[int, int],
    per: TimeUnit,
    condition: Callable[[Frame], Mask] | None = None,
    *,
    now_ms: int,
    groups: Longs | None = None,
) -> pa.RecordBatch:
    """The rows of buckets of ``per`` that begin in a span, by bucket and first event of the group.

    Args:
        aggregation: with its present state; what is over at ``now_ms`` is closed.
        within: start and end, milliseconds since 1970; the end is no part of it.
        per: one of the aggregation's durations.
        condition: over the found columns, of step 0; compiled by ``compile_filter``.
        now_ms: the clock, not earlier than that of the last event.  With tables rows leave by
            timers alone: they would be missing here.
        groups: the numbers of the groups to look at, None for all: see ``groups_with``.

    Returns:
        Rows in ``aggregation.schema``: ``AGG_TIMESTAMP`` and the outputs of the select clause.
    """
    if aggregation.tables is None:
        aggregation.advance(now_ms)
    rows = _outputs(aggregation, _merged(aggregation, within, per, groups), aggregation.groups)
    if condition is None or not rows.num_rows:
        return rows
    return rows.filter(pa.array(condition(Frame.of_rows(rows))))


def find_joined(
    aggregation: Aggregation, within: tuple[int, int], per: TimeUnit, groups: Longs | None
) -> pa.RecordBatch:
    """The rows of an aggregation in a store for a join, by bucket and group-by values.

    The rows of its table must be there: see ``BucketReads.require``.  Nothing is closed, since
    rows leave by timers alone.

    Args:
        aggregation: of which ``reads`` has tables.
        within: see ``find``.
        per: see ``find``.
        groups: the numbers of the groups whose running cells are looked at, None for all.
    """
    assert aggregation.tables is not None, "it is in a store"
    numbers = KeyNumbers(aggregation.groups.types, nulls_are_text=True)
    merged = CellStore(aggregation.layout.base)
    values = aggregation.layout.no_values()
    rows = [reads.rows(within) for reads in aggregation.reads[per]]
    merged.add(aggregation.tables.cells(per, rows, numbers, values), "")
    for cells in _cells(aggregation, within, per, groups):
        sets = {
            number: (places, _numbered(values[number], aggregation.value_numbers[number], members))
            for number, (places, members) in cells.sets.items()
        }
        group = _numbered(numbers, aggregation.groups, cells.group)
        merged.add(replace(cells, group=group, sets=sets), "")
    order = np.lexsort((rank_of(numbers)[merged.groups], merged.buckets))
    merged.keep(order, "")
    return _outputs(aggregation, merged, numbers)


def _numbered(numbers: KeyNumbers, source: KeyNumbers, of: Longs) -> Longs:
    """The numbers in ``numbers`` of keys by their numbers in ``source``."""
    used, place = np.unique(of, return_inverse=True)
    if not len(used):
        return of
    keys = [source.values(column).take(used) for column in range(len(numbers.types))]
    return numbers.number(keys, len(used), "")[place]


def find_on_demand(
    aggregation: Aggregation,
    within: BoundWithin,
    per: BoundExpression,
    on: BoundExpression | None = None,
    *,
    now_ms: int,
) -> pa.RecordBatch:
    """The rows for ``within`` and ``per`` of an on-demand query, which name no attributes.

    ``on``: a condition that the caller tests; rows of other groups than it allows are left out.

    Raises:
        ValueError: they can't be read; the message says why.
    """
    start, end, duration = (
        None if one is None else compile_expression(one)(Frame(1, {})).to_arrow(1)[0].as_py()
        for one in (within.start, within.end, per)
    )
    if start is None or duration is None or (end is None and within.end is not None):
        raise ValueError("'within' or 'per' is null")
    unit = duration_named(str(duration), aggregation.durations, aggregation.name)
    groups = None if on is None else _groups_allowed(aggregation, on)
    return find(aggregation, span_between(start, end), unit, now_ms=now_ms, groups=groups)


def _groups_allowed(aggregation: Aggregation, on: BoundExpression) -> Longs | None:
    """The groups that a condition with ``==`` on all group-by columns allows; None for any."""
    keys = group_keys(on, aggregation.schema.names, aggregation.layout)
    if keys is None:
        return None
    number = aggregation.groups.find(keys)
    return np.array([number] if number >= 0 else [], dtype=np.int64)


def group_keys(on: BoundExpression, names: Sequence[str], layout: Layout) -> list[Vector] | None:
    """The group of a condition with ``==`` on all group-by columns: its values; None for any.

    ``names``: the columns that are found in an aggregation of this layout.
    """
    keys: dict[int, Vector] = {}
    for part in conjuncts(on):
        if not isinstance(part, BinaryExpression) or part.operator is not BinaryOperator.EQUAL:
            continue
        for column, other in ((part.left, part.right), (part.right, part.left)):
            if not isinstance(column, Column) or not isinstance(other, Constant):
                continue
            place = key_place(column.name, names, layout)
            if place is not None and other.value is not None and _is_same(column, other):
                keys[place] = constant(other.value, column.type)
    if not keys or len(keys) < len(layout.keys):
        return None
    return [keys[place] for place in range(len(keys))]


def _is_same(column: Column, other: Constant) -> bool:
    """Whether the constant has a value of the column's type, and that is what it is compared as."""
    if column.type in (AttributeType.INT, AttributeType.LONG):
        return other.type is column.type or (other.type, column.type) == (
            AttributeType.INT, AttributeType.LONG
        )  # fmt: skip
    return column.type is AttributeType.STRING and other.type is AttributeType.STRING


def key_place(name: str, names: Sequence[str], layout: Layout) -> int | None:
    """The number of the group-by column that is selected under ``name``; None for no such.

    ``names``: see ``group_keys``.
    """
    place = list(names).index(name) - 1
    if place < 0:
        return None
    output = layout.outputs[place]
    if not isinstance(output, Column) or output.step != KEYS:
        return None
    return next((n for n, key in enumerate(layout.keys) if key.name == output.name), None)


def groups_with(aggregation: Aggregation, column: int, values: Sequence[object]) -> Longs:
    """The numbers of the groups whose group-by column has one of ``values``, Python's."""
    keys = aggregation.groups.values(column)
    requested = pa.array(list(values), keys.type.arrow)
    matches = pc.is_in(keys.to_arrow(len(keys)), value_set=requested)
    return np.flatnonzero(matches.to_numpy(zero_copy_only=False))


def _merged(
    aggregation: Aggregation, within: tuple[int, int], per: TimeUnit, groups: Longs | None
) -> CellStore:
    """The cells of a span, of all stores that have some of them; their arrival is 0."""
    merged = CellStore(aggregation.layout.base)
    if aggregation.find_rows is not None:
        cells = _written(aggregation, per, within)
        if groups is not None:
            cells = cells.where(np.isin(cells.group, groups))
        merged.add(cells, "")
    for cells in _cells(aggregation, within, per, groups):
        merged.add(cells, "")
    order = np.lexsort((merged.groups, merged.buckets))
    merged.keep(order, "")
    return merged


def closed_cells(aggregation: Aggregation, duration: TimeUnit) -> CellStore:
    """The closed cells of a duration in the state: one of each bucket and group."""
    merged = CellStore(aggregation.layout.base)
    closed = aggregation.closed[duration]
    merged.add(closed.take(slice(0, len(closed))), "")
    return merged


def written_cells(aggregation: Aggregation, duration: TimeUnit) -> CellStore:
    """The cells of the table of ``duration`` in a database, by bucket and group."""
    merged = CellStore(aggregation.layout.base)
    if aggregation.find_rows is not None:
        merged.add(_written(aggregation, duration, (BEFORE_ALL, NEVER)), "")
    return merged


def _written(aggregation: Aggregation, per: TimeUnit, within: tuple[int, int]) -> Cells:
    """The cells of a span in the tables of ``per``."""
    assert aggregation.find_rows is not None, "called where tables are read"
    assert aggregation.tables is not None, "its tables are read"
    rows = aggregation.find_rows(per, *within)
    return aggregation.tables.cells(per, rows, aggregation.groups, aggregation.value_numbers)


def _cells(
    aggregation: Aggregation, within: tuple[int, int], per: TimeUnit, groups: Longs | None
) -> Iterator[Cells]:
    """The cells of a span in the state, in buckets of ``per``."""
    for store, duration in _stores(aggregation, per):
        if not len(store):
            continue
        candidates = None if groups is None or len(groups) > _FEW else _cells_of(store, groups)
        buckets = store.buckets if candidates is None else store.buckets[candidates]
        if duration is not per:
            buckets = bucket_starts(buckets, per, aggregation.zone)
        met = (buckets >= within[0]) & (buckets < within[1])
        if candidates is None and groups is not None:
            met &= np.isin(store.groups, groups)
        chosen = np.flatnonzero(met)
        buckets = buckets[chosen]
        if candidates is not None:
            chosen = candidates[chosen]
        if len(chosen):
            cells = store.take(chosen)
            none = np.zeros(len(chosen), dtype=np.int64)
            yield Cells(none, buckets, cells.group, cells.last, cells.values, cells.sets)


def _cells_of(store: CellStore, groups: Longs) -> Longs:
    """The cells of some groups, rising."""
    parts = [store.cells_of(group) for group in groups.tolist()]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)


def _stores(aggregation: Aggregation, per: TimeUnit) -> Iterator[tuple[CellStore, TimeUnit]]:
    """The stores that have cells of a duration, those with earlier events first."""
    yield aggregation.closed[per], per
    place = aggregation.durations.index(per)
    for duration in aggregation.durations[place::-1]:
        yield aggregation.running[duration], duration


def _outputs(aggregation: Aggregation, merged: CellStore, groups: KeyNumbers) -> pa.RecordBatch:
    """The found rows of merged cells, whose groups have the numbers of ``groups``."""
    layout, count = aggregation.layout, len(merged)
    if not count:
        return pa.RecordBatch.from_pylist([], aggregation.schema)
    cells = merged.take(np.arange(count))
    frame = Frame(count, {})
    for place, column in enumerate(layout.keys):
        frame.add(column.step, column.name, groups.values(place).take(cells.group))
    for number, base in enumerate(layout.base):
        if base.kind is BaseKind.LATEST:
            frame.add(LATEST, str(number), cells.values[number])
    for number, aggregate in enumerate(layout.aggregates):
        frame.add(AGGREGATES, str(number), _value(aggregate, cells, merged))
    columns: list[ArrowArray] = [pa.array(cells.bucket, pa.int64())]
    for evaluate, field in zip(layout.evaluators, list(aggregation.schema)[1:], strict=True):
        array = evaluate(frame).spread(count).to_arrow(count)
        columns.append(array if array.type == field.type else array.cast(field.type, safe=False))
    return pa.RecordBatch.from_arrays(columns, schema=aggregation.schema)


def _value(aggregate: OutputAggregate, cells: Cells, merged: CellStore) -> Vector:
    if aggregate.base not in cells.values:
        return Vector(AttributeType.LONG, merged.set_sizes(aggregate.base))
    value = cells.values[aggregate.base]
    if aggregate.count is None:
        return value
    sums = Vector(AttributeType.DOUBLE, value.values.astype(np.float64), value.nulls)
    return kernels.arithmetic(
        BinaryOperator.DIVIDE, sums, cells.values[aggregate.count], AttributeType.DOUBLE
    )


def table_rows(
    aggregation: Aggregation, duration: TimeUnit, schema: pa.Schema, *, now_ms: int
) -> pa.RecordBatch:
    """The rows of the table of ``duration``: one for each bucket that is over, and group.

    Of an aggregation in a store they are what its database has.

    Args:
        aggregation: with its present state; what is over at ``now_ms`` is closed.
        duration: one of its durations.
        schema: of the table.
        now_ms: the clock.
    """
    if aggregation.tables is None:
        aggregation.advance(now_ms)
        store = closed_cells(aggregation, duration)
    else:
        store = written_cells(aggregation, duration)
    order = np.lexsort((store.groups, store.buckets))
    cells = store.take(order)
    columns: dict[str, Any] = {
        TIMESTAMP: pa.array(cells.bucket),
        EVENT_TIMESTAMP: pa.array(cells.bucket),
        LAST_EVENT_TIMESTAMP: pa.array(cells.last if len(cells.last) else cells.bucket),
    }
    for place, key in enumerate(aggregation.layout.keys):
        columns[key.name] = _keys(aggregation, place, cells)
    names = base_names(aggregation)
    for number, value in enumerate(aggregation.layout.base):
        for name in names[number]:
            columns[name] = (
                _sets(aggregation, number, cells)
                if value.kind is BaseKind.SET
                else cells.values[number].to_arrow(len(cells))
            )
    arrays = [columns[field.name].cast(field.type, safe=False) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def base_names(aggregation: Aggregation) -> list[list[str]]:
    """By base value the names of its columns: that of its attribute, or of the outputs it is."""
    layout = aggregation.layout
    names = [
        [] if value.kind is BaseKind.LATEST else [name]
        for name, value in zip(layout.names, layout.base, strict=True)
    ]
    for output, name in zip(layout.outputs, aggregation.schema.names[1:], strict=True):
        if isinstance(output, Column) and output.step == LATEST:
            names[int(output.name)].append(name)
    return names


def _keys(aggregation: Aggregation, place: int, cells: Cells) -> ArrowArray:
    return aggregation.groups.values(place).take(cells.group).to_arrow(len(cells))


def _sets(aggregation: Aggregation, number: int, cells: Cells) -> ArrowArray:
    places, values = cells.sets[number]
    members = aggregation.set_values(number)
    lists: list[list[Any]] = [[] for _ in range(len(cells))]
    taken = members.take(values).to_arrow(len(values)).to_pylist()
    for place, value in zip(places.tolist(), taken, strict=True):
        lists[place].append(value)
    return to_binary(object_array([ValueSet(one) for one in lists]))
