"""A window and the selector behind it as one step, for queries of which only current events go on.

The selector follows which rows come into the window and leave it by their numbers.  What it needs
of them is worked out once, when they come (see ``held``), and the attributes that a query puts out
are looked up for those rows only that go on.  What goes on is the same, whichever way is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.language.syntax import EventKind
from mesh.model.types import AttributeType
from mesh.operators.base import CURRENT
from mesh.operators.expressions import Frame, columns_of
from mesh.operators.lifting import Lifted, is_safe, lift, names_aggregate
from mesh.operators.query.late_arguments import RowArguments
from mesh.operators.windows import kind_of
from mesh.plan.bound import SourceKind, has_aggregate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.operators.base import Events, Timeline
    from mesh.operators.selector import Selector
    from mesh.operators.windows import RowRefWindow
    from mesh.plan.bound import BoundExpression, BoundQuery, BoundStream

#: Aggregates of numbers, which pass over nulls.
_OF_NUMBERS = frozenset({"avg", "count", "max", "maxforever", "min", "minforever", "stddev", "sum"})
_NUMBERS = (AttributeType.INT, AttributeType.LONG, AttributeType.FLOAT, AttributeType.DOUBLE)


def can_select_late(query: BoundQuery, source: BoundStream) -> bool:
    """Whether ``query`` is one of those: nothing in it fails, and nothing looks at what leaves."""
    window = source.window
    if window is None or source.handlers[-1] is not window or source.kind is SourceKind.WINDOW:
        return False
    if query.events is not EventKind.CURRENT or query.rate is not None:
        return False
    kind = kind_of(window)
    if not kind.can_select_late(window):
        return False
    if query.having is not None and (kind.is_batch or has_aggregate(query.having)):
        return False
    lifted: list[Lifted] = []
    for output in query.outputs:
        lift(output.expression, lifted)
    return all(map(_is_followed, lifted)) and all(map(is_safe, _expressions(query)))


def _is_followed(one: Lifted) -> bool:
    """Whether an aggregator is looked at in each event, and needs no more than numbers."""
    name, arguments = one.call.function.lower(), one.call.arguments
    if one.conditions or any(map(names_aggregate, arguments)):
        return False
    return name == "count" or (name in _OF_NUMBERS and arguments[0].type in _NUMBERS)


def _expressions(query: BoundQuery) -> Iterator[BoundExpression]:
    """All that is computed of the rows."""
    for output in query.outputs:
        yield output.expression
    yield from query.group_by
    if query.having is not None:
        yield query.having
    for order in query.order_by:
        yield order.column


def schema_needed(schema: pa.Schema, query: BoundQuery) -> pa.Schema:
    """The attributes of ``schema`` that ``query`` looks at behind a window that it follows."""
    names = {c.name for e in _expressions(query) for c in columns_of(e) if c.step == 0}
    return pa.schema([field for field in schema if field.name in names])


class LateSelection:
    """``window`` and ``selector`` of one query."""

    def __init__(self, window: RowRefWindow, selector: Selector) -> None:
        window.shown = selector.shown
        self._window = window
        self._selector = selector
        self._arguments = RowArguments(selector.argument_types)
        #: Whether ``_arguments`` lacks the rows that the window took over from a state.
        self._is_behind = False

    def process(self, events: Events, timeline: Timeline) -> Events:
        """What goes on of ``events``, all of them current, and of what the timers drive out."""
        window, held = self._window, self._arguments
        if self._is_behind:
            self._catch_up()
        if len(events):
            frame = Frame.of_events(events)
            groups = self._selector.enter(frame, events.instance, events.kind)
            held.enter(window.came, groups, self._selector.arguments(frame))
        lines = window.follow(events, timeline)
        made = self._selector.follow(lines, *held.at(lines.row))
        window.sweep()
        held.release_below(window.lowest)
        if held.is_sparse(window.live):
            held.keep(window.live_rows())
        if self._selector.has_many_groups:
            self._selector.release(held.groups_of(window.live_rows()))
        return made

    def restored(self) -> None:
        """Window and selector have taken over a state."""
        self._is_behind = True

    def _catch_up(self) -> None:
        """Work out what is held of the rows of a state; they are of groups that are known."""
        self._is_behind = False
        self._arguments.clear()
        numbers = []
        for own, instance, rows in self._window.held_rows():
            frame = Frame.of_rows(rows)
            kind = np.full(len(own), CURRENT, dtype=np.int8)
            groups = self._selector.number(frame, instance, kind)
            self._arguments.enter(self._arguments.next, groups, self._selector.arguments(frame))
            numbers.append(own)
        if numbers:
            self._arguments.renumber(np.concatenate(numbers), self._window.came)
