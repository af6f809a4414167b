"""Aggregators that collect values: ``str:groupConcat``, ``json:group``, ``list:collect``, others.

A group has the values of its events in order of arrival; an expired event takes the oldest equal
one away.  Null arguments are skipped, but for those of ``list:collect``.

Source: API documentation of siddhi-execution-string, -math, -stats, -json, -map and -list.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from mesh.functions.documents import read_json, write_json
from mesh.functions.objects import from_binary, identity, object_array, object_text, to_binary
from mesh.functions.vectors import Vector, from_values, object_values
from mesh.model.types import AttributeType
from mesh.operators.base import CURRENT
from mesh.operators.expressions import compile_expression
from mesh.operators.select.aggregates import GroupColumns
from mesh.plan.bound import Constant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mesh.operators.base import Longs
    from mesh.operators.expressions import Evaluator, Frame
    from mesh.operators.select.aggregates import AggregateBatch
    from mesh.plan.bound import AggregateCall


@dataclass(frozen=True, slots=True)
class _Form:
    """One aggregator with its constants.

    ``items``: the values that an event's arguments add; ``show``: the result for all values.
    """

    items: Callable[..., list[Any]]
    show: Callable[[Iterable[Any]], Any]


class CollectedValues:
    """The collected values of each group."""

    tells: tuple[str, ...] = ()

    def __init__(self, call: AggregateCall) -> None:
        self.columns = GroupColumns()
        self._type = call.type
        self._show = _form(call).show
        #: By group: identities and values.
        self._values: dict[int, deque[tuple[object, object]]] = {}

    def run(self, values: Vector | None, batch: AggregateBatch) -> Vector:
        """The result after each row; ``values``: lists, as ``collected_items`` evaluates."""
        assert values is not None
        lists = values.spread(len(batch)).values
        out: list[Any] = [None] * len(batch)
        for row, group in enumerate(batch.groups.tolist()):
            if group < 0:
                continue
            if batch.fresh[row]:
                self._values.pop(group, None)
            entries = self._values.setdefault(group, deque())
            for value in lists[row] or ():
                if batch.kind[row] == CURRENT:
                    entries.append((identity(value), value))
                else:
                    _take_away(entries, identity(value))
            out[row] = self._show(value for _, value in entries)
        return from_values(out, self._type)

    def forget(self, groups: Longs) -> None:
        """Drop the values of ``groups``."""
        for group in groups.tolist():
            self._values.pop(group, None)

    def lists(self, start: int, stop: int) -> pa.RecordBatch:
        """Group and value, for each value in order."""
        rows = [
            (group, value)
            for group in sorted(g for g in self._values if start <= g < stop)
            for _, value in self._values[group]
        ]
        return pa.RecordBatch.from_pydict(
            {
                "group": pa.array([group for group, _ in rows], pa.int64()),
                "value": to_binary(object_array([value for _, value in rows])),
            }
        )

    def fill(self, lists: Mapping[int, pa.RecordBatch]) -> None:
        """Replace the content by ``lists``."""
        self._values = {}
        for piece in lists.values():
            groups: Any = piece.column("group").to_pylist()
            for group, value in zip(groups, from_binary(piece.column("value")), strict=True):
                self._values.setdefault(group, deque()).append((identity(value), value))


def _take_away(entries: deque[tuple[object, object]], key: object) -> None:
    """Remove the oldest value of an identity; mostly it is the first."""
    for place, (entry_key, _) in enumerate(entries):
        if entry_key == key:
            del entries[place]
            return


def collected_items(call: AggregateCall) -> Evaluator:
    """For each event the values that it adds, as a list; an event on which that fails, fails."""
    items = _form(call).items
    read = [compile_expression(one) for one in call.arguments[: _values_of(call)]]

    def evaluate(frame: Frame) -> Vector:
        columns = [object_values(one(frame).spread(frame.length)) for one in read]
        results = []
        for row, values in enumerate(zip(*columns, strict=True)):
            try:
                results.append(items(*values))
            except (TypeError, ValueError) as error:
                results.append([])
                frame.failures.setdefault(row, f"{call.function}: {error}")
        return Vector(AttributeType.OBJECT, object_array(results))

    return evaluate


def _form(call: AggregateCall) -> _Form:
    settings = call.arguments[_values_of(call) :]
    constants = [one.value for one in settings if isinstance(one, Constant)]
    return COLLECTIONS[call.function.lower()](*constants)


def _values_of(call: AggregateCall) -> int:
    """The number of arguments that are values; constants follow them."""
    return 2 if call.function.lower() == "map:collect" else 1


def _unless_null(value: object) -> list[object]:
    return [] if value is None else [value]


def _without_repeats(values: Iterable[object]) -> list[object]:
    by_identity: dict[Any, Any] = {}
    for value in values:
        by_identity.setdefault(identity(value), value)
    return list(by_identity.values())


def _concatenation(separator: object = ",", distinct: Any = False, order: object = None) -> _Form:
    def show(values: Iterable[Any]) -> str:
        texts = list(dict.fromkeys(values)) if distinct else list(values)
        if order is not None:
            # Java compares texts by their 16 bit units.
            falls = str(order).lower() == "desc"
            texts.sort(key=lambda text: text.encode("utf-16-be", "surrogatepass"), reverse=falls)
        return str(separator).join(texts)

    return _Form(lambda value: _unless_null(None if value is None else object_text(value)), show)


def _percentile(percent: Any) -> _Form:
    def show(values: Iterable[Any]) -> float | None:
        ordered: list[float] = sorted(values)
        if not ordered:
            return None
        count = len(ordered)
        place = float(percent) * count / 100
        if place == count:
            return ordered[-1]
        if place.is_integer():
            at = int(place)
            return (ordered[at - 1] + ordered[at]) / 2
        return ordered[max(math.floor(place + 0.5), 1) - 1]

    return _Form(lambda value: _unless_null(None if value is None else float(value)), show)


def _median() -> _Form:
    def show(values: Iterable[Any]) -> float | None:
        ordered: list[float] = sorted(values)
        middle = len(ordered) // 2
        if not ordered:
            return None
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

    return _Form(lambda value: _unless_null(None if value is None else float(value)), show)


def _json_group(write: Callable[[object], object]) -> Callable[..., _Form]:
    def form(*constants: object) -> _Form:
        distinct = any(one is True for one in constants)
        element = next((one for one in constants if isinstance(one, str)), None)

        def show(values: Iterable[object]) -> Any:
            members = _without_repeats(values) if distinct else list(values)
            return write(members if element is None else {element: members})

        return _Form(_json_items, show)

    return form


def _json_items(value: object) -> list[object]:
    return _unless_null(read_json(value) if isinstance(value, str) else value)


def _list(items: Callable[..., list[object]]) -> Callable[..., _Form]:
    def form(distinct: object = False) -> _Form:
        return _Form(items, _without_repeats if distinct else list)

    return form


def _elements(value: object) -> list[object]:
    if value is not None and not isinstance(value, list):
        raise TypeError("the argument is no list")
    return value or []


def _pairs(value: object) -> list[object]:
    if value is not None and not isinstance(value, dict):
        raise TypeError("the argument is no map")
    return [[key, one] for key, one in (value or {}).items()]


def _map(items: Callable[..., list[Any]]) -> _Form:
    return _Form(items, dict)


#: By name in lower case: the aggregator for its constants.
COLLECTIONS: Final[Mapping[str, Callable[..., _Form]]] = {
    "str:groupconcat": _concatenation,
    "math:percentile": _percentile,
    "stats:median": _median,
    "json:group": _json_group(write_json),
    "json:groupasobject": _json_group(lambda value: value),
    "list:collect": _list(lambda value: [value]),
    "list:merge": _list(_elements),
    "map:collect": lambda: _map(lambda key, value: [] if key is None else [[key, value]]),
    "map:merge": lambda: _map(_pairs),
}
