"""The accesses of a query to tables, named windows and aggregations, and the keys of these.

An access has a key where the event that causes it names the rows: ``T.id == S.id``.  Accesses to
rows of different keys may be reordered; see ``conflicts``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.language.syntax import BinaryOperator
from mesh.model.types import AttributeType
from mesh.operators.dataflow.graph import StateAccess
from mesh.operators.joins.query import LOOKUPS
from mesh.plan.bound import (
    AnswerOutput,
    BinaryExpression,
    BoundFilter,
    BoundJoin,
    BoundPattern,
    BoundStream,
    Column,
    Constant,
    Delete,
    Insert,
    SourceKind,
    TableCheck,
    Update,
    conjuncts,
    walk,
)
from mesh.plan.bound.expressions import OUTPUT_STEP, TABLE_STEP
from mesh.plan.dependencies import expressions, models_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mesh.plan.bound import BoundExpression, BoundQuery, BoundTable

#: Types whose values are equal exactly where the engine says so.
_EXACT = (AttributeType.STRING, AttributeType.INT, AttributeType.LONG, AttributeType.BOOL)
_COMPARISONS = (
    BinaryOperator.EQUAL,
    BinaryOperator.NOT_EQUAL,
    BinaryOperator.LESS,
    BinaryOperator.LESS_OR_EQUAL,
    BinaryOperator.GREATER,
    BinaryOperator.GREATER_OR_EQUAL,
)

Keys = tuple[tuple[str, str], ...]


def accesses_of(
    name: str, query: BoundQuery, inside: str, tables: Mapping[str, BoundTable]
) -> tuple[StateAccess, ...]:
    """The accesses of a query to state outside of events.

    Args:
        name: of its node.
        query: the query.
        inside: the prefix of its partition's channels; empty outside.
        tables: the tables whose rows are in the app's own state, by name.
    """
    keys = _KeyFinder(query, tables)
    accesses = [
        StateAccess(f"model {one.family} {one.name}", name, one.trains) for one in models_of(query)
    ]
    accesses += [
        StateAccess(table_access(check.table), name, False, keys=keys.of_check(check))
        for check in _checks(expressions(query))
    ]
    source, action = query.input, query.action
    if isinstance(source, BoundJoin):
        for side, other in ((source.left, source.right), (source.right, source.left)):
            if side.kind in LOOKUPS:
                continue
            # Without a window, only events look up the other side, timers do not.
            by = (f"{inside}{side.schema.name}",) if side.window is None else None
            thing = other.schema.name
            if other.kind is SourceKind.TABLE:
                on = keys.of_condition(thing, source.on)
                accesses.append(StateAccess(table_access(thing), name, False, by, on))
            elif other.kind is SourceKind.WINDOW:
                accesses.append(StateAccess(window_access(thing), name, False, by))
            elif other.kind is SourceKind.AGGREGATION:
                accesses.append(StateAccess(aggregation_access(thing), name, False, by))
    assert not isinstance(action, AnswerOutput), "an app's queries have no answers"
    if not isinstance(action, Insert) or action.kind is SourceKind.TABLE:
        thing = table_access(action.target.name)
        on, reorders = keys.of_action(action), keys.reorders(action)
        accesses.append(StateAccess(thing, name, True, keys=on, reorders=reorders))
    return tuple(dict.fromkeys(accesses))


def checked_tables(roots: Iterable[BoundExpression]) -> list[str]:
    """The tables of ``in`` conditions."""
    return [check.table for check in _checks(roots)]


def _checks(roots: Iterable[BoundExpression]) -> list[TableCheck]:
    return [part for root in roots for part in walk(root) if isinstance(part, TableCheck)]


def table_access(name: str) -> str:
    """``StateAccess.thing`` of a table."""
    return f"table {name}"


def window_access(name: str) -> str:
    """``StateAccess.thing`` of a named window."""
    return f"window {name}"


def aggregation_access(name: str) -> str:
    """``StateAccess.thing`` of an aggregation."""
    return f"aggregation {name}"


class _KeyFinder:
    """Finds the attributes of a query's event that name the rows of tables.

    Only for queries whose output for an event leaves at once: filters, and a look-up in a table.
    """

    def __init__(self, query: BoundQuery, tables: Mapping[str, BoundTable]) -> None:
        self._query = query
        self._tables = tables
        self._step, self._types = _event_of(query)

    def of_check(self, check: TableCheck) -> Keys:
        """Keys of ``x in T``."""
        if not isinstance(self._query.input, BoundStream):
            return ()
        return self.of_condition(check.table, check.operand)

    def of_condition(self, table: str, on: BoundExpression | None) -> Keys:
        """Keys of the rows that may meet ``on``."""
        parts = [] if on is None else list(conjuncts(on))
        # Another part might fail on a row of another key.
        if not all(_is_plain(part) for part in parts):
            return ()
        pairs: dict[str, str] = {}
        for part in parts:
            assert isinstance(part, BinaryExpression), "plain parts are comparisons"
            if part.operator is BinaryOperator.EQUAL:
                for column, other in ((part.left, part.right), (part.right, part.left)):
                    if isinstance(column, Column) and column.step in self._table_steps(table):
                        self._add(pairs, column, other)
        return self._chosen(table, pairs)

    def of_action(self, action: Insert | Delete | Update) -> Keys:
        """Keys of the rows that the action writes."""
        table = action.target.name
        if isinstance(action, Insert):
            return self._chosen(table, self._inserted(action))
        keys = self.of_condition(table, action.on)
        if isinstance(action, Delete):
            return keys
        inserted = self._inserted(action)
        if action.inserts and any(inserted.get(name) != event for name, event in keys):
            return ()
        # Without assignments, every output is one.
        assigned: dict[str, BoundExpression] = {
            one.attribute.name: one.value for one in action.assignments
        } or {output.name: output.expression for output in self._query.outputs}
        is_constant = all(
            name not in assigned or self._event_attribute(assigned[name]) == event
            for name, event in keys
        )
        return keys if is_constant else ()

    def reorders(self, action: Insert | Delete | Update) -> bool:
        """Whether the order of the table's rows depends on when the action happens.

        A hash table of the engine grows with the number of its keys, and lists them by bucket.
        """
        if isinstance(action, Delete):
            table = self._tables.get(action.target.name)
            return table is None or bool(table.primary_key)
        return isinstance(action, Insert) or action.inserts

    def _inserted(self, action: Insert | Update) -> dict[str, str]:
        """By attribute of a row that is added, the attribute of the event that it equals."""
        pairs: dict[str, str] = {}
        attributes = action.target.attributes
        for attribute, output in zip(attributes, self._query.outputs, strict=False):
            self._add(pairs, Column(attribute.name, attribute.type), output.expression)
        return pairs

    def _table_steps(self, table: str) -> tuple[int, ...]:
        source = self._query.input
        if isinstance(source, BoundJoin):
            sides = (source.left, source.right)
            steps = [at for at, one in enumerate(sides) if one.kind is SourceKind.TABLE]
            return (TABLE_STEP, *(at for at in steps if sides[at].schema.name == table))
        return (TABLE_STEP,)

    def _add(self, pairs: dict[str, str], column: Column, value: BoundExpression) -> None:
        """Note that an attribute of the table equals one of the event, if that is so."""
        event = self._event_attribute(value)
        if event is not None and column.type is self._types[event] and column.type in _EXACT:
            pairs.setdefault(column.name, event)

    def _event_attribute(self, value: BoundExpression) -> str | None:
        if not isinstance(value, Column) or value.index is not None:
            return None
        if value.step == OUTPUT_STEP:
            for output in self._query.outputs:
                if output.name == value.name:
                    return self._event_attribute(output.expression)
            return None
        return value.name if value.step == self._step and value.name in self._types else None

    def _chosen(self, table: str, pairs: Mapping[str, str]) -> Keys:
        """The primary key, whole; of a table without one, all of ``pairs``."""
        definition = self._tables.get(table)
        if definition is None:
            return ()
        if definition.primary_key:
            # The order of rows that several keys find depends on the size of the whole table.
            if not set(definition.primary_key) <= set(pairs):
                return ()
            return tuple((name, pairs[name]) for name in definition.primary_key)
        return tuple(sorted(pairs.items()))


def _event_of(query: BoundQuery) -> tuple[int, dict[str, AttributeType]]:
    """The step of the event's columns, and its attributes; none where output may come later."""
    none: tuple[int, dict[str, AttributeType]] = (0, {})
    source = query.input
    if isinstance(source, BoundPattern) or query.rate is not None:
        return none
    if isinstance(source, BoundStream):
        step, event = 0, source
    else:
        sides = (source.left, source.right)
        is_table = [side.kind is SourceKind.TABLE for side in sides]
        if sum(is_table) != 1 or sides[is_table.index(True)].handlers:
            return none
        step = is_table.index(False)
        event = sides[step]
    is_plain = event.kind in (SourceKind.STREAM, SourceKind.TRIGGER)
    if not is_plain or not all(isinstance(handler, BoundFilter) for handler in event.handlers):
        return none
    return step, {attribute.name: attribute.type for attribute in event.schema.attributes}


def _is_plain(part: BoundExpression) -> bool:
    """Whether it compares attributes and constants, which never fails."""
    return (
        isinstance(part, BinaryExpression)
        and part.operator in _COMPARISONS
        and all(isinstance(side, Column | Constant) for side in (part.left, part.right))
    )
