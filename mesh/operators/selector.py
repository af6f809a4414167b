"""``select .. group by .. having ..``: from input rows to output rows, with running aggregates.

Current events add to the aggregates and expired ones take away, whichever of them go on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.language.syntax import EventKind
from mesh.operators.aggregates import Batch
from mesh.operators.aggregators import Aggregators
from mesh.operators.base import CURRENT, State
from mesh.operators.expressions import compile_expression, compile_filter
from mesh.operators.groups import Groups
from mesh.operators.segments import Segments
from mesh.plan.bound import (
    AggregateCall,
    BinaryExpression,
    BoundExpression,
    Column,
    FunctionCall,
    UnaryExpression,
)

if TYPE_CHECKING:
    from mesh.operators.base import Events
    from mesh.operators.expressions import Frame
    from mesh.plan.bound import BoundQuery

#: The step of columns that hold the values of aggregates.
_AGGREGATES = -2
_OUTPUTS = -1


class Selector:
    """The select clause of one query, with the state of its aggregates.

    ``windowed``: whether events expire, so that min and max have to remember what is in the window.
    """

    def __init__(self, query: BoundQuery, windowed: bool) -> None:
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
        self._aggregators: Aggregators | None = None
        if calls:
            groups = Groups([column.type for column in query.group_by])
            self._aggregators = Aggregators(calls, groups, windowed)

    def process(self, frame: Frame, events: Events) -> Events:
        """The output rows of ``events``, whose attributes are in ``frame``; all are current."""
        count = len(events)
        if self._aggregators is not None:
            self._aggregate(self._aggregators, frame, events)
        vectors = [(name, evaluate(frame)) for name, evaluate in self._outputs]
        going: np.ndarray[tuple[int], np.dtype[np.bool_]]
        match self._kind:
            case EventKind.CURRENT:
                going = events.kind == CURRENT
            case EventKind.EXPIRED:
                going = events.expired
            case EventKind.ALL:
                going = np.ones(count, dtype=np.bool_)
        if self._having is not None:
            for name, vector in vectors:
                frame.add(_OUTPUTS, name, vector)
            going = going & self._having(frame)
        rows = pa.RecordBatch.from_arrays(
            [v.to_arrow(count, t) for (_, v), t in zip(vectors, self._types, strict=True)],
            schema=self._schema,
        )
        result = events.with_rows(rows).where(going)
        return replace(result, kind=np.full(len(result), CURRENT, dtype=np.int8))

    def _aggregate(self, aggregators: Aggregators, frame: Frame, events: Events) -> None:
        count = len(events)
        keys = [frame.column(column) for column in self._group_by]
        groups = aggregators.groups.number(keys, count)
        order = np.argsort(groups, kind="stable")
        ordered = groups[order]
        segments = Segments.of_sorted(ordered)
        batch = Batch(segments, ordered[segments.starts], events.expired[order])
        back = np.empty(count, dtype=np.int64)
        back[order] = np.arange(count)
        arguments = [
            evaluate(frame).spread(count).take(order) if evaluate is not None else None
            for evaluate in self._arguments
        ]
        for index, result in enumerate(aggregators.run(arguments, batch)):
            frame.add(_AGGREGATES, str(index), result.take(back))

    def snapshot(self) -> State:
        """The aggregates of all groups."""
        return State() if self._aggregators is None else self._aggregators.snapshot()

    def restore(self, state: State) -> None:
        """Take over the aggregates."""
        if self._aggregators is not None:
            self._aggregators.restore(state)


def _lift(expression: BoundExpression, calls: list[AggregateCall]) -> BoundExpression:
    """``expression`` with columns for its aggregates, which are added to ``calls``."""
    match expression:
        case AggregateCall():
            if expression not in calls:
                calls.append(expression)
            return Column(str(calls.index(expression)), expression.type, _AGGREGATES)
        case UnaryExpression():
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
