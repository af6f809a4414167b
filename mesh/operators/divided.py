"""On-demand queries over several parts: the query that each part answers, and the merge of answers.

    query ──divide──▶ query of a part ──▶ rows of each part ──merge──▶ rows of the answer

Without aggregates and ``group by`` a part sorts and limits its own rows, and the merge sorts and
limits those together.  Otherwise a part answers with a row for each of its groups: the group's key,
base values of the aggregates (a sum and a count for an average), and the values of the group's last
row.  The merge adds the base values and computes the outputs from them.

``having`` looks at whole groups here.  In one part it looks at the running values of each row, as
in the reference engine, and passes the last one that meets it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from mesh.errors import not_supported
from mesh.language.syntax import BinaryOperator, UnaryOperator
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.operators.select.aggregate_extraction import AGGREGATES, ExtractedAggregate, extract
from mesh.plan.bound import (
    OUTPUT_STEP,
    AggregateCall,
    AnswerOutput,
    BinaryExpression,
    BoundOnDemandQuery,
    BoundOutput,
    Column,
    Constant,
    FunctionCall,
    UnaryExpression,
    has_aggregate,
    walk,
)

if TYPE_CHECKING:
    from mesh.plan.bound import BoundExpression, BoundOrder

_HINT: Final = "Ask for the rows, or set parallel='1' and partitions='1' for the group."


class Merging(Enum):
    """The rule by which a value of a whole group follows from those of its parts."""

    SUM = auto()
    MIN = auto()
    MAX = auto()
    #: Of counts and sums.
    MEAN = auto()
    #: Of counts, means and deviations.
    DEVIATION = auto()
    #: The number of different values of a column.
    DISTINCT = auto()


@dataclass(frozen=True, slots=True)
class Merge:
    """An aggregator of the query: its value from columns of the parts' rows."""

    kind: Merging
    columns: tuple[Column, ...]
    type: AttributeType


@dataclass(frozen=True, slots=True)
class Division:
    """A query over several parts.

    The outputs and the other clauses are over columns of the parts' rows (step 0) and values of
    ``merges``, which are columns of step ``AGGREGATES``, by number.
    """

    #: The question to each part.
    part: BoundOnDemandQuery
    #: The columns of the group's key; None: rows are not grouped.
    keys: tuple[Column, ...] | None
    merges: tuple[Merge, ...]
    outputs: tuple[BoundOutput, ...]
    having: BoundExpression | None
    order_by: tuple[BoundOrder, ...]
    limit: int | None
    offset: int | None


def is_grouped(query: BoundOnDemandQuery) -> bool:
    """Whether a query has aggregates or ``group by``."""
    expressions = [output.expression for output in query.outputs]
    expressions += [query.having] if query.having is not None else []
    return bool(query.group_by) or any(map(has_aggregate, expressions))


def divide(query: BoundOnDemandQuery) -> Division:
    """The query of a part and the merge of the answers.

    Args:
        query: which is answered with rows.

    Raises:
        MeshError: MESH-P900 for an aggregator whose values can't be merged.
    """
    if is_grouped(query):
        return _Grouping(query).division()
    part = list(query.outputs)
    order_by: list[BoundOrder] = []
    for number, order in enumerate(query.order_by):
        column = replace(order.column, step=0)
        if order.column.step != OUTPUT_STEP:
            column = replace(column, name=f"#order{number}")
            part.append(BoundOutput(column.name, order.column))
        order_by.append(replace(order, column=column))
    most = None if query.limit is None else query.limit + (query.offset or 0)
    subquery = replace(query, outputs=tuple(part), action=_answer(part), limit=most, offset=None)
    outputs = tuple(BoundOutput(o.name, _column(o)) for o in query.outputs)
    return Division(subquery, None, (), outputs, None, tuple(order_by), query.limit, query.offset)


class _Grouping:
    """Collects the columns of a query with aggregates or groups that its parts answer with."""

    def __init__(self, query: BoundOnDemandQuery) -> None:
        self._query = query
        self._part: list[BoundOutput] = []
        self._keys = [self._request("key", column) for column in query.group_by]
        #: Arguments whose different values are counted: parts have a row for each.
        self._distinct: list[Column] = []

    def division(self) -> Division:
        """The division; MESH-P900."""
        query = self._query
        if query.having is not None and has_aggregate(query.having):
            raise _refused("aggregates in 'having'", query.having)
        lifted: list[ExtractedAggregate] = []
        extracted = [extract(output.expression, lifted) for output in query.outputs]
        merges = [self._merge(one) for one in lifted]
        outputs = tuple(
            BoundOutput(output.name, self._shown(expression))
            for output, expression in zip(query.outputs, extracted, strict=True)
        )
        having = None if query.having is None else self._shown(query.having)
        order_by = tuple(
            replace(order, column=self._ordering(order.column)) for order in query.order_by
        )
        part = BoundOnDemandQuery(
            query.store,
            tuple(self._part),
            (*query.group_by, *self._distinct),
            None,
            _answer(self._part),
        )
        return Division(
            part, tuple(self._keys), tuple(merges), outputs, having, order_by,
            query.limit, query.offset,
        )  # fmt: skip

    def _request(self, name: str, expression: BoundExpression) -> Column:
        """The column of the parts' rows with the values of ``expression``."""
        for output in self._part:
            if output.expression == expression:
                return _column(output)
        output = BoundOutput(f"#{name}{len(self._part)}", expression)
        self._part.append(output)
        return _column(output)

    def _shown(self, expression: BoundExpression) -> BoundExpression:
        """``expression`` over the parts' rows: they have the values of what has no aggregates."""
        match expression:
            case Constant():
                return expression
            case Column(_, _, step) if step in (AGGREGATES, OUTPUT_STEP):
                return expression
        if not _names(expression, AGGREGATES, OUTPUT_STEP):
            return self._request("last", expression)
        match expression:
            case UnaryExpression():
                return replace(expression, operand=self._shown(expression.operand))
            case BinaryExpression():
                left, right = self._shown(expression.left), self._shown(expression.right)
                return replace(expression, left=left, right=right)
            case FunctionCall() if not expression.is_script:
                shown = tuple(self._shown(argument) for argument in expression.arguments)
                return replace(expression, arguments=shown)
        raise _refused("functions of the app and 'in' over aggregates", expression)

    def _ordering(self, column: Column) -> Column:
        return column if column.step == OUTPUT_STEP else self._request("last", column)

    def _merge(self, one: ExtractedAggregate) -> Merge:
        call, name = one.call, one.call.function.lower()
        if one.conditions or any(_names(value, AGGREGATES) for value in call.arguments):
            raise _refused("aggregates that depend on another", call)
        value = call.arguments[0] if call.arguments else None
        match name, value:
            case "count", _:
                return Merge(Merging.SUM, (self._request("count", call),), call.type)
            case "sum", _:
                return Merge(Merging.SUM, (self._request("sum", call),), call.type)
            case (("min" | "minforever"), _):
                return Merge(Merging.MIN, (self._request("min", call),), call.type)
            case (("max" | "maxforever"), _):
                return Merge(Merging.MAX, (self._request("max", call),), call.type)
            case "avg", value if value is not None:
                total = _aggregate("sum", _double(value), AttributeType.DOUBLE)
                columns = self._request("count", _counted(value)), self._request("sum", total)
                return Merge(Merging.MEAN, columns, call.type)
            case "stddev", value if value is not None:
                mean = _aggregate("avg", value, AttributeType.DOUBLE)
                columns = self._request("count", _counted(value)), self._request("mean", mean)
                return Merge(
                    Merging.DEVIATION, (*columns, self._request("deviation", call)), call.type
                )
            case "distinctcount", Column() as column:
                if column not in (*self._query.group_by, *self._distinct):
                    self._distinct.append(column)
                return Merge(Merging.DISTINCT, (self._request("value", column),), call.type)
            case _:
                raise _refused(f"'{call.function}'", call)


def _names(expression: BoundExpression, *steps: int) -> bool:
    """Whether there is a column of one of these steps in an expression."""
    return any(isinstance(part, Column) and part.step in steps for part in walk(expression))


def _aggregate(name: str, value: BoundExpression, type: AttributeType) -> AggregateCall:
    return AggregateCall(name, (value,), type)


def _double(value: BoundExpression) -> BoundExpression:
    one = Constant(1.0, AttributeType.DOUBLE)
    return BinaryExpression(BinaryOperator.MULTIPLY, value, one, AttributeType.DOUBLE)


def _counted(value: BoundExpression) -> AggregateCall:
    """The number of values that are not null; null over no row."""
    is_null = UnaryExpression(UnaryOperator.IS_NULL, value, AttributeType.BOOL)
    numbers = Constant(0, AttributeType.LONG), Constant(1, AttributeType.LONG)
    one = FunctionCall("ifthenelse", (is_null, *numbers), AttributeType.LONG)
    return _aggregate("sum", one, AttributeType.LONG)


def _column(output: BoundOutput) -> Column:
    return Column(output.name, output.expression.type or AttributeType.OBJECT)


def _answer(outputs: list[BoundOutput]) -> AnswerOutput:
    columns = map(_column, outputs)
    return AnswerOutput(StreamSchema("", tuple(Attribute(c.name, c.type) for c in columns)))


def _refused(what: str, expression: BoundExpression) -> Exception:
    return not_supported(
        f"{what} in on-demand queries over several parts", expression.position, hint=_HINT
    )
