"""``select .. group by .. having ..``: from input rows to output rows, with running aggregates.

Current events add to the aggregates and expired ones take away, whichever of them go on.  Of what a
batch window lets go at once, one event goes on if there are aggregates, the last, or the last of
each group, in the order in which the groups came.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numba import njit

from mesh.language.syntax import EventKind
from mesh.operators.aggregators import Aggregators
from mesh.operators.base import CURRENT, EXPIRED, RESET, State
from mesh.operators.expressions import compile_expression, compile_filter
from mesh.operators.groups import Groups
from mesh.plan.bound import (
    OUTPUT_STEP,
    AggregateCall,
    BinaryExpression,
    BoundExpression,
    Column,
    FunctionCall,
    TableCheck,
    UnaryExpression,
)

if TYPE_CHECKING:
    from mesh.operators.base import Bools, Events, Longs
    from mesh.operators.expressions import Frame
    from mesh.plan.bound import BoundQuery

#: The step of columns that hold the values of aggregates.
_AGGREGATES = -3


class Selector:
    """The select clause of one query, with the state of its aggregates.

    ``windowed``: whether events expire, so that min and max have to remember what is in the window.
    ``batch``: whether events come from a batch window.
    """

    def __init__(self, query: BoundQuery, windowed: bool, batch: bool = False) -> None:
        self._schema = query.target.arrow
        self._types = [attribute.type for attribute in query.target.attributes]
        self._kind = query.events
        calls: list[AggregateCall] = []
        self._outputs = [
            (output.name, compile_expression(_lift(output.expression, calls)))
            for output in query.outputs
        ]
        having = _lift(query.having, calls) if query.having is not None else None
        self._having = compile_filter(having) if having is not None else None
        self._group_by = query.group_by
        self._arguments = [
            compile_expression(call.arguments[0]) if call.arguments else None for call in calls
        ]
        self._thins_out = batch and bool(calls or query.group_by)
        self._groups = Groups([column.type for column in query.group_by])
        self._aggregators = Aggregators(calls, self._groups, windowed) if calls else None
        self._needs_groups = bool(calls) or (self._thins_out and bool(query.group_by))

    def process(self, frame: Frame, events: Events) -> Events:
        """The output rows of ``events``, whose attributes are in ``frame``, current or expired."""
        count = len(events)
        groups: Longs | None = None
        if self._needs_groups:
            keys = [frame.column(column) for column in self._group_by]
            groups = self._groups.number(keys, events.instance, events.kind)
        if self._aggregators is not None and groups is not None:
            self._aggregate(self._aggregators, frame, groups, events)
        vectors = [(name, evaluate(frame)) for name, evaluate in self._outputs]
        going = self._of_kind(events)
        if self._having is not None:
            for name, vector in vectors:
                frame.add(OUTPUT_STEP, name, vector)
            going = going & self._having(frame)
        if frame.failures:
            going = going & ~_failed(frame, events)
        rows = pa.RecordBatch.from_arrays(
            [v.to_arrow(count, t) for (_, v), t in zip(vectors, self._types, strict=True)],
            schema=self._schema,
        )
        made = events.with_rows(rows)
        if self._thins_out:
            return made.take(self._last_ones(events, groups, going))
        return made.where(going)

    def _aggregate(
        self, aggregators: Aggregators, frame: Frame, groups: Longs, events: Events
    ) -> None:
        arguments = [
            evaluate(frame) if evaluate is not None else None for evaluate in self._arguments
        ]
        if frame.failures:
            groups = np.where(_failed(frame, events), -1, groups)
        for index, result in enumerate(aggregators.run(arguments, groups, events)):
            frame.add(_AGGREGATES, str(index), result)

    def _of_kind(self, events: Events) -> Bools:
        match self._kind:
            case EventKind.CURRENT:
                return np.equal(events.kind, CURRENT)
            case EventKind.EXPIRED:
                return np.equal(events.kind, EXPIRED)
            case EventKind.ALL:
                return np.less_equal(events.kind, EXPIRED)

    def _last_ones(self, events: Events, groups: Longs | None, going: Bools) -> Longs:
        """Of each chunk the last of ``going``, or the last of each group."""
        if not self._group_by or groups is None:
            groups = np.zeros(len(events), dtype=np.int64)
        scratch = np.full((len(self._groups) + 1, 2), -1, dtype=np.int64)
        out = np.empty(len(events), dtype=np.int64)
        return out[: _last_of_groups(begins(events), groups, going, scratch, out)]

    def forget(self, instances: Longs) -> None:
        """Drop all groups of ``instances``."""
        if self._aggregators is not None:
            self._aggregators.forget(instances)
        else:
            self._groups.forget(instances)

    def snapshot(self) -> State:
        """The aggregates of all groups."""
        return State() if self._aggregators is None else self._aggregators.snapshot()

    def restore(self, state: State) -> None:
        """Take over the aggregates."""
        if self._aggregators is not None:
            self._aggregators.restore(state)


def _failed(frame: Frame, events: Events) -> Bools:
    """bool[n], where an expression failed; there is nothing to fail on in a reset."""
    for row in [row for row in frame.failures if events.kind[row] == RESET]:
        del frame.failures[row]
    failed = np.zeros(len(events), dtype=np.bool_)
    failed[list(frame.failures)] = True
    return failed


def begins(events: Events) -> Bools:
    """bool[n], whether a chunk begins with an event; a chunk is of one instance."""
    first = np.ones(len(events), dtype=np.bool_)
    if len(events) > 1:
        same = np.ones(len(events) - 1, dtype=np.bool_)
        for column in (events.order, events.clock_ms, events.path, events.chunk, events.instance):
            same &= column[1:] == column[:-1]
        first[1:] = ~same
    return first


@njit(cache=True)
def _last_of_groups(begin: Any, groups: Any, going: Any, scratch: Any, out: Any) -> int:
    """Put the last row of each group of each chunk into ``out``, and return their number.

    ``scratch``: by group, the chunk it was seen in last and its place in ``out``.
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


def _lift(expression: BoundExpression, calls: list[AggregateCall]) -> BoundExpression:
    """``expression`` with columns for its aggregates, which are added to ``calls``."""
    match expression:
        case AggregateCall():
            if expression not in calls:
                calls.append(expression)
            return Column(str(calls.index(expression)), expression.type, _AGGREGATES)
        case UnaryExpression() | TableCheck():
            return replace(expression, operand=_lift(expression.operand, calls))
        case BinaryExpression():
            left, right = _lift(expression.left, calls), _lift(expression.right, calls)
            return replace(expression, left=left, right=right)
        case FunctionCall():
            return replace(
                expression, arguments=tuple(_lift(a, calls) for a in expression.arguments)
            )
        case _:
            return expression
