"""Running aggregates over numbers and conditions: sum, avg, count, stdDev, minForever, and, or ..

An aggregate's state is one value a group in each of its columns; group numbers come from the
selector.  A current event's value is added and an expired one's subtracted, one after the
other in native code, so that doubles have the reference engine's bits: rounding errors
stay, also while the group is empty.  Nulls are skipped, except by ``count``, which counts rows.

Source: observed on Siddhi 5.1.7; tests/cases/operators/aggregates.jsonl.

Extraction of aggregators from expressions, each with the conditions under which it is evaluated.

The reference engine evaluates the right side of ``and`` and ``or`` only where the left does not
decide, and one branch of ``ifThenElse``.  An aggregator in such a place takes part only in
those events: in ``sum(a) > 5 and count() > 2`` it counts from the sixth on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from mesh.functions import kernels
from mesh.functions.vectors import Vector, dtype_of
from mesh.language.syntax import BinaryOperator, UnaryOperator
from mesh.model.types import AttributeType
from mesh.operators.native import njit
from mesh.operators.select.hashing import more_rows
from mesh.plan.bound import (
    AggregateCall,
    BinaryExpression,
    BoundExpression,
    Column,
    Constant,
    FunctionCall,
    TableCheck,
    UnaryExpression,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from mesh.operators.base import Bools, Kinds, Longs, Numbers


_NO_NULLS = np.zeros(0, dtype=np.bool_)


class Expiry(Enum):
    """Whether events leave before a query's aggregates; what ``min`` and ``max`` then know."""

    NEVER = auto()
    #: They do, and the remaining values are not known: see ``ExtremeSince``.
    UNTRACKED = auto()
    TRACKED = auto()


@dataclass(frozen=True, slots=True)
class AggregateBatch:
    """Rows in order of arrival, n of them.

    ``groups``: int64[n], the group of each, -1 for one that resets.
    ``kind``: int8[n], its effect on the group.
    ``fresh``: bool[n], whether its group has been reset since its last row.
    """

    groups: Longs
    kind: Kinds
    fresh: Bools

    def __len__(self) -> int:
        return len(self.groups)


class GroupColumns:
    """Growing columns with a row for each group, all zero at first."""

    def __init__(self, **types: Any) -> None:
        self.arrays: dict[str, Numbers] = {n: np.zeros(0, dtype=t) for n, t in types.items()}

    def __getitem__(self, name: str) -> Numbers:
        return self.arrays[name]

    def grow(self, groups: int) -> None:
        """Make room for ``groups`` groups."""
        for name, array in self.arrays.items():
            self.arrays[name] = more_rows(array, groups)

    def clear(self) -> None:
        """Drop all rows."""
        self.arrays = {name: array[:0].copy() for name, array in self.arrays.items()}

    def are_zero(self, name: str, groups: int) -> Bools:
        """bool[groups], where a column has its initial value, to the bit."""
        column = self.arrays[name][:groups]
        zero: Bools = np.equal(column.view(f"i{column.itemsize}"), 0)
        return zero

    def forget(self, groups: Longs) -> None:
        """Reset ``groups`` to their initial values."""
        for array in self.arrays.values():
            array[groups] = 0


class Aggregate(Protocol):
    """One aggregator of a query."""

    columns: GroupColumns
    #: The columns that are 0 when a group equals an unused one; none if that can't be determined.
    tells: tuple[str, ...]

    def run(self, values: Vector | None, batch: AggregateBatch) -> Vector:
        """Its value after each row; ``values`` are its argument's, None for ``count()``."""
        ...


class CollectList(Aggregate, Protocol):
    """An aggregate with a list of values for each group, beside its columns."""

    def forget(self, groups: Longs) -> None:
        """Drop the lists of ``groups``."""
        ...

    def lists(self, start: int, stop: int) -> pa.RecordBatch:
        """The content of the lists of the groups from ``start`` to below ``stop``."""
        ...

    def fill(self, lists: Mapping[int, pa.RecordBatch]) -> None:
        """Replace all lists by ``lists``, by the number of the first group."""
        ...


def native_of(values: Vector, length: int) -> tuple[Numbers, Bools]:
    """Values and nulls for native code: arrays it may write to, no nulls as none."""
    vector = values.spread(length)
    array: Numbers = vector.values
    if not (array.flags.writeable and array.flags.c_contiguous):
        array = array.copy()
    return array, _NO_NULLS if vector.nulls is None else vector.nulls.copy()


class RunningAggregate:
    """An aggregate over the values of its argument, null in the rows that its loop marks.

    ``type``: of the result. ``argument``: the type that values are cast to; None: none is needed.
    ``columns``: the state, by name, as the loop expects it.
    """

    tells: tuple[str, ...] = ("count",)
    #: Parameters: groups, kind, fresh, values, nulls, the state, results and their nulls; returns
    #: whether any result is null.
    _loop: Any

    def __init__(
        self, type: AttributeType, argument: AttributeType | None = None, **columns: object
    ) -> None:
        self._type = type
        self._argument = argument
        self.columns = GroupColumns(**columns)

    def run(self, values: Vector | None, batch: AggregateBatch) -> Vector:
        """The result after each row."""
        assert values is not None
        if self._argument is not None:
            values = kernels.cast(values, self._argument)
        numbers, nulls = native_of(values, len(batch))
        state = self._state(len(batch))
        out = np.zeros(len(batch), dtype=numbers.dtype)
        none = np.zeros(len(batch), dtype=np.bool_)
        some = self._loop(batch.groups, batch.kind, batch.fresh, numbers, nulls, *state, out, none)
        return Vector(self._type, out, none if some else None)

    def _state(self, count: int) -> tuple[object, ...]:
        """The loop's state, with room for ``count`` rows more."""
        return tuple(self.columns.arrays.values())


@njit
def _count(groups: Longs, kind: Kinds, fresh: Bools, counts: Longs, out: Numbers) -> None:
    for row in range(len(groups)):
        group = groups[row]
        if group < 0:
            continue
        if fresh[row]:
            counts[group] = 0
        counts[group] += 1 if kind[row] == 0 else -1
        out[row] = counts[group]


class Count:
    """``count()``, ``count(x)``: rows, with any content."""

    tells: tuple[str, ...] = ("count",)

    def __init__(self) -> None:
        self.columns = GroupColumns(count=np.int64)

    def run(self, values: Vector | None, batch: AggregateBatch) -> Vector:
        """Never null."""
        out = np.zeros(len(batch), dtype=np.int64)
        _count(batch.groups, batch.kind, batch.fresh, self.columns["count"], out)
        return Vector(AttributeType.LONG, out)


@njit
def _sum(
    groups: Longs, kind: Kinds, fresh: Bools, values: Numbers, nulls: Bools, counts: Longs,
    totals: Numbers, out: Numbers, none: Bools,
) -> bool:  # fmt: skip
    """Running totals; returns whether any is null."""
    any_null = len(nulls) > 0
    some = False
    for row in range(len(groups)):
        group = groups[row]
        if group < 0:
            none[row] = True
            some = True
            continue
        if fresh[row]:
            counts[group] = 0
            totals[group] = 0
        if not (any_null and nulls[row]):
            if kind[row] == 0:
                counts[group] += 1
                totals[group] += values[row]
            else:
                counts[group] -= 1
                totals[group] -= values[row]
        out[row] = totals[group]
        if counts[group] == 0 and (kind[row] != 0 or (any_null and nulls[row])):
            # A value that arrives is a total also where more have left than arrived.
            none[row] = True
            some = True
    return some


@njit
def _average(
    groups: Longs, kind: Kinds, fresh: Bools, values: Numbers, nulls: Bools, counts: Longs,
    totals: Numbers, out: Numbers, none: Bools,
) -> bool:  # fmt: skip
    """Running means; returns whether any is null."""
    any_null = len(nulls) > 0
    some = False
    for row in range(len(groups)):
        group = groups[row]
        if group < 0:
            none[row] = True
            some = True
            continue
        if fresh[row]:
            counts[group] = 0
            totals[group] = 0
        if not (any_null and nulls[row]):
            if kind[row] == 0:
                counts[group] += 1
                totals[group] += values[row]
            else:
                counts[group] -= 1
                totals[group] -= values[row]
        if counts[group] == 0:
            none[row] = True
            some = True
        else:
            out[row] = totals[group] / counts[group]
    return some


class Sum(RunningAggregate):
    """``sum(x)``: long for integers (wrapping), else double; null over no values."""

    tells: tuple[str, ...] = ("count", "total")
    _loop = staticmethod(_sum)

    def __init__(self, type: AttributeType) -> None:
        super().__init__(type, type, count=np.int64, total=dtype_of(type))


class Average(Sum):
    """``avg(x)``: the running double sum by the count; null over no values."""

    _loop = staticmethod(_average)

    def __init__(self) -> None:
        super().__init__(AttributeType.DOUBLE)


@njit(error_model="numpy")
def _deviation(
    groups: Longs, kind: Kinds, fresh: Bools, values: Numbers, nulls: Bools, counts: Longs,
    totals: Numbers, squares: Numbers, out: Numbers, none: Bools,
) -> bool:  # fmt: skip
    any_null = len(nulls) > 0
    some = False
    for row in range(len(groups)):
        group = groups[row]
        if group < 0:
            none[row] = True
            some = True
            continue
        if fresh[row]:
            counts[group] = 0
            totals[group] = 0.0
            squares[group] = 0.0
        if not (any_null and nulls[row]):
            value = values[row]
            before = counts[group]
            sign = 1 if kind[row] == 0 else -1
            counts[group] += sign
            # The count is less than 0 where more have left than arrived, as in some joins; the
            # value that brings it back to 0 changes nothing else.
            if counts[group] == 0:
                if sign < 0:
                    totals[group] = 0.0
                    squares[group] = 0.0
            elif sign > 0 and before == 0:
                totals[group] = value
                squares[group] = 0.0
            else:
                old_mean = totals[group] / before if before != 0 else -totals[group]
                totals[group] += value if sign > 0 else -value
                mean = totals[group] / counts[group]
                squared = (value - old_mean) * (value - mean)
                squares[group] += squared if sign > 0 else -squared
        if counts[group] == 0:
            none[row] = True
            some = True
        elif counts[group] != 1:
            out[row] = np.sqrt(squares[group] / counts[group])
    return some


class Deviation(RunningAggregate):
    """``stdDev(x)``: of the population, by the recurrence over the running mean.

    Null over no values, 0 over one. It starts again whenever the last value has left.
    """

    _loop = staticmethod(_deviation)

    def __init__(self) -> None:
        double = AttributeType.DOUBLE
        super().__init__(double, double, count=np.int64, total=np.float64, squares=np.float64)


@njit
def _conditions(
    groups: Longs, kind: Kinds, fresh: Bools, values: Numbers, nulls: Bools, trues: Longs,
    falses: Longs, every: bool, out: Numbers,
) -> None:  # fmt: skip
    any_null = len(nulls) > 0
    for row in range(len(groups)):
        group = groups[row]
        if group < 0:
            continue
        if fresh[row]:
            trues[group] = 0
            falses[group] = 0
        if not (any_null and nulls[row]):
            change = 1 if kind[row] == 0 else -1
            if values[row]:
                trues[group] += change
            else:
                falses[group] += change
        out[row] = trues[group] > 0 and (falses[group] == 0 or not every)


class Conditions:
    """``and(x)``, ``or(x)``: whether all are true, or any; false over no values."""

    tells: tuple[str, ...] = ("trues", "falses")

    def __init__(self, every: bool) -> None:
        self._every = every
        self.columns = GroupColumns(trues=np.int64, falses=np.int64)

    def run(self, values: Vector | None, batch: AggregateBatch) -> Vector:
        """Never null."""
        assert values is not None
        bools, nulls = native_of(values, len(batch))
        out = np.zeros(len(batch), dtype=np.bool_)
        columns = self.columns
        _conditions(
            batch.groups, batch.kind, batch.fresh, bools, nulls,
            columns["trues"], columns["falses"], self._every, out,
        )  # fmt: skip
        return Vector(AttributeType.BOOL, out)


#: Aggregators that have no answer to a null.
FAIL_ON_NULL: Final = frozenset({"and", "or"})
#: Aggregators that fail on values that are no JSON, no map or no list.
_FAIL_ON_VALUES: Final = frozenset({"json:group", "json:groupasobject", "list:merge", "map:merge"})
#: Expressions that don't fail.
_SAFE = (AggregateCall, BinaryExpression, Column, Constant, UnaryExpression)
#: The step of columns that hold the values of aggregates.
AGGREGATES = -3


@dataclass(frozen=True, slots=True)
class ExtractedAggregate:
    """An aggregator, and the conditions that must all be true for its evaluation."""

    call: AggregateCall
    conditions: tuple[BoundExpression, ...] = ()


def extract(
    expression: BoundExpression,
    lifted: list[ExtractedAggregate],
    prefix: str = "",
    conditions: tuple[BoundExpression, ...] = (),
) -> BoundExpression:
    """``expression`` with columns for its aggregators, which are added to ``lifted``.

    Column n of step ``AGGREGATES`` is called ``prefix`` and the place in ``lifted``.
    """

    def below(part: BoundExpression, *more: BoundExpression) -> BoundExpression:
        return extract(part, lifted, prefix, (*conditions, *more))

    match expression:
        case AggregateCall():
            arguments = tuple(below(argument) for argument in expression.arguments)
            aggregate = ExtractedAggregate(replace(expression, arguments=arguments), conditions)
            shared = _place(aggregate, lifted)
            if shared is None:
                shared = len(lifted)
                lifted.append(aggregate)
            return Column(f"{prefix}{shared}", expression.type, AGGREGATES)
        case UnaryExpression() | TableCheck():
            return replace(expression, operand=below(expression.operand))
        case BinaryExpression(operator, left, right):
            left = below(left)
            match operator:
                case BinaryOperator.AND:
                    right = below(right, left)
                case BinaryOperator.OR:
                    right = below(right, _not(left))
                case _:
                    right = below(right)
            return replace(expression, left=left, right=right)
        case FunctionCall("ifthenelse", (condition, yes, no)) if not expression.is_script:
            condition = below(condition)
            branches = below(yes, condition), below(no, _not(condition))
            return replace(expression, arguments=(condition, *branches))
        case FunctionCall():
            return replace(expression, arguments=tuple(below(a) for a in expression.arguments))
        case _:
            return expression


def _place(aggregate: ExtractedAggregate, lifted: Sequence[ExtractedAggregate]) -> int | None:
    """Its place in ``lifted``, if present; not one before an aggregator that may fail.

    Aggregators before the failed one have processed the event, those after it have not.
    """
    for place in range(len(lifted) - 1, -1, -1):
        if lifted[place] == aggregate:
            return place
        if may_fail(lifted[place]):
            return None
    return None


def names_aggregate(expression: BoundExpression) -> bool:
    """Whether an expression that was lifted names an aggregator's value."""
    return any(isinstance(p, Column) and p.step == AGGREGATES for p in walk(expression))


def _not(condition: BoundExpression) -> BoundExpression:
    return UnaryExpression(UnaryOperator.NOT, condition, AttributeType.BOOL)


def is_safe(expression: BoundExpression) -> bool:
    """Whether it has a value for any arguments; objects are excluded."""
    return all(
        isinstance(part, _SAFE) and part.type is not AttributeType.OBJECT
        for part in walk(expression)
    )


def may_fail(one: ExtractedAggregate) -> bool:
    """Whether an aggregator fails on some events: later ones process fewer than earlier ones."""
    arguments = one.call.arguments
    is_answered = one.call.function.lower() not in FAIL_ON_NULL | _FAIL_ON_VALUES
    return not (is_answered and all(map(is_safe, (*one.conditions, *arguments))))
