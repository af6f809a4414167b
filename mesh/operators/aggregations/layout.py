"""Layout of an aggregation: its keys and base values, and its outputs as expressions of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.model.types import AttributeType
from mesh.operators.aggregations.dictionary import KeyNumbers
from mesh.operators.aggregations.values import BaseKind, BaseValue
from mesh.operators.expressions import compile_expression
from mesh.operators.select.aggregates import (
    AGGREGATES,
    ExtractedAggregate,
    extract,
    names_aggregate,
)
from mesh.plan.bound import Column

if TYPE_CHECKING:
    from mesh.operators.expressions import Evaluator
    from mesh.plan.bound import AggregateCall, BoundAggregation, BoundExpression


#: The step of columns that are latest values, named by the numbers of their base values.
LATEST: Final = -4
#: The step of group-by columns.
KEYS: Final = 0
_KINDS: Final = {
    "sum": BaseKind.SUM,
    "min": BaseKind.MIN,
    "max": BaseKind.MAX,
    "distinctcount": BaseKind.SET,
}


@dataclass(frozen=True, slots=True)
class OutputAggregate:
    """An aggregator of the select clause: its base value and, of an average, that of its count."""

    base: int
    count: int | None = None


@dataclass(slots=True)
class Layout:
    """Base values of ``define aggregation``, and its outputs.

    ``keys``: the group-by columns.  ``base``, ``arguments``: the base values, and the expressions
    of the events that they are made of; None for counts.  ``aggregates``: their values
    are columns of step ``AGGREGATES``, named by their numbers.  ``outputs``: what the select clause
    gives, after the time, over these columns, those of step ``LATEST`` and the group-by columns;
    ``evaluators``: the same, compiled.
    """

    keys: tuple[Column, ...]
    base: list[BaseValue] = field(default_factory=list)
    #: By number of the base value its name in a table, as in the reference engine.
    names: list[str] = field(default_factory=list)
    arguments: list[Evaluator | None] = field(default_factory=list)
    aggregates: list[OutputAggregate] = field(default_factory=list)
    outputs: list[BoundExpression] = field(default_factory=list)
    evaluators: list[Evaluator] = field(default_factory=list)
    #: By base value the attribute that it is made of; empty for counts and other expressions.
    attributes: list[str] = field(default_factory=list)
    _numbers: dict[tuple[BaseKind, object], int] = field(default_factory=dict)

    @classmethod
    def of(cls, aggregation: BoundAggregation) -> Layout:
        """The layout of ``aggregation``; inside of ``environment.using``."""
        layout = cls(aggregation.group_by)
        keys = {(column.step, column.name) for column in aggregation.group_by}
        lifted: list[ExtractedAggregate] = []
        for output in aggregation.outputs:
            expression = extract(output.expression, lifted)
            is_key = isinstance(expression, Column) and (expression.step, expression.name) in keys
            if not (is_key or names_aggregate(expression)):
                type = expression.type or AttributeType.OBJECT
                number = layout._add(BaseKind.LATEST, type, expression, output.name)
                expression = Column(str(number), type, LATEST)
            layout.outputs.append(expression)
            layout.evaluators.append(compile_expression(expression))
        layout.aggregates = [layout._aggregate(one.call) for one in lifted]
        return layout

    @property
    def sets(self) -> list[int]:
        """The numbers of the base values that are sets."""
        return [n for n, value in enumerate(self.base) if value.kind is BaseKind.SET]

    def no_values(self) -> dict[int, KeyNumbers]:
        """By number of a base value that is a set, numbers for values; without any yet."""
        return {n: KeyNumbers([self.base[n].type], nulls_are_text=False) for n in self.sets}

    @property
    def has_latest(self) -> bool:
        """Whether a base value is that of the latest event."""
        return any(value.kind is BaseKind.LATEST for value in self.base)

    def _aggregate(self, call: AggregateCall) -> OutputAggregate:
        name = call.function.lower()
        if name == "count":
            return OutputAggregate(self._count())
        (argument,) = call.arguments
        type = argument.type
        assert type is not None, "an attribute has a type"
        if name == "avg":
            return OutputAggregate(self._add(BaseKind.SUM, type, argument), self._count())
        return OutputAggregate(self._add(_KINDS[name], type, argument))

    def _count(self) -> int:
        return self._add(BaseKind.COUNT, AttributeType.LONG, None)

    def _add(
        self,
        kind: BaseKind,
        type: AttributeType,
        argument: BoundExpression | None,
        name: str | None = None,
    ) -> int:
        """The number of a base value; equal ones are kept once."""
        place = kind, (argument.step, argument.name) if isinstance(argument, Column) else argument
        number = self._numbers.get(place)
        if number is None:
            number = self._numbers[place] = len(self.base)
            self.base.append(BaseValue(kind, type))
            self.attributes.append(argument.name if isinstance(argument, Column) else "")
            self.arguments.append(None if argument is None else compile_expression(argument))
            of = f"_{argument.name}" if isinstance(argument, Column) else ""
            self.names.append(name or f"AGG_{kind.name}{of}")
        return number


__all__ = ["AGGREGATES", "KEYS", "LATEST", "Layout", "OutputAggregate"]
