"""On-demand queries over several parts: the query that each part answers, and the merge of answers.

    query ──divide──▶ query of a part ──▶ rows of each part ──merge──▶ rows of the answer

Without aggregates and ``group by`` a part sorts and limits its own rows, and the merge sorts and
limits those together.  Otherwise a part answers with a row for each of its groups: the group's key,
base values of the aggregates (a sum and a count for an average), and the values of the group's last
row.  The merge adds the base values and computes the outputs from them.

``having`` looks at whole groups here.  In one part it looks at the running values of each row, as
in the reference engine, and passes the last one that meets it.

The answer to an on-demand query from the rows of its parts: see ``divided``.

Managers run this, which have no native loops: it uses NumPy and Arrow alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.errors import MeshError, not_supported
from mesh.functions.vectors import Vector, from_arrow
from mesh.language.syntax import BinaryOperator, UnaryOperator
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.operators.expressions import Frame, compile_expression, compile_filter
from mesh.operators.select.aggregates import AGGREGATES, ExtractedAggregate, extract
from mesh.operators.select.selector import sort_columns
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
from pyspark_nats.arrow import ArrowChunks, kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.operators.base import Longs
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


_EXTREMES: Final[dict[Merging, Any]] = {Merging.MIN: np.minimum, Merging.MAX: np.maximum}


def merge(division: Division, parts: Sequence[pa.RecordBatch]) -> pa.Table:
    """The answer from the rows of all parts, in the schema of the query's outputs.

    Rows and groups without ``order by`` are in the order of the parts.

    Args:
        division: of the query.
        parts: the answers to ``division.part``; one part may have several.

    Raises:
        MeshError: MESH-O110, an expression fails on a row.
    """
    types = [output.expression.type or AttributeType.OBJECT for output in division.outputs]
    schema = pa.schema([(o.name, t.arrow) for o, t in zip(division.outputs, types, strict=True)])
    rows = [part for part in parts if part.num_rows]
    if not rows:
        return schema.empty_table()
    table = pa.Table.from_batches(rows)
    frame = _grouped(division, table) if division.keys is not None else _as_they_are(table)
    count = frame.length
    vectors = [compile_expression(o.expression)(frame).spread(count) for o in division.outputs]
    for output, vector in zip(division.outputs, vectors, strict=True):
        frame.add(OUTPUT_STEP, output.name, vector)
    indices: Longs = np.arange(count)
    if division.having is not None:
        indices = np.flatnonzero(np.broadcast_to(compile_filter(division.having)(frame), count))
    if frame.failures:
        raise MeshError(
            "MESH-O110",
            "the on-demand query fails on a row",
            detail=f"{frame.failures[min(frame.failures)]}.",
        )
    if division.order_by and len(indices):
        keys = [
            (compile_expression(order.column)(frame).spread(count).take(indices), order.direction)
            for order in division.order_by
        ]
        # A constant's take is of length 1.
        columns = sort_columns([(vector.spread(len(indices)), way) for vector, way in keys])
        indices = indices[np.lexsort(columns[::-1])]
    start = division.offset or 0
    indices = indices[start : None if division.limit is None else start + division.limit]
    chosen = pa.array(indices, pa.int64())
    arrays = [v.to_arrow(count, t).take(chosen) for v, t in zip(vectors, types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _as_they_are(table: pa.Table) -> Frame:
    return Frame(
        table.num_rows,
        {(0, name): table.column(name).combine_chunks() for name in table.schema.names},
    )


def _grouped(division: Division, table: pa.Table) -> Frame:
    """A row for each group: values of its last row, and of its aggregates."""
    assert division.keys is not None, "a query with groups"
    groups = _numbers([table.column(key.name) for key in division.keys], table.num_rows)
    count = int(groups.max()) + 1
    last = np.zeros(count, dtype=np.int64)
    last[groups] = np.arange(len(groups))
    frame = Frame(
        count,
        {
            (0, name): table.column(name).take(pa.array(last, pa.int64())).combine_chunks()
            for name in table.schema.names
        },
    )
    for number, one in enumerate(division.merges):
        columns = [table.column(column.name) for column in one.columns]
        if one.kind is Merging.DISTINCT:
            vector = _distinct(groups, columns[0], count)
        else:
            vectors = [from_arrow(c, a.type) for c, a in zip(columns, one.columns, strict=True)]
            vector = _merged(one, vectors, groups, count)
        frame.add(AGGREGATES, str(number), vector)
    return frame


def _numbers(columns: Sequence[ArrowChunks], length: int) -> Longs:
    """int64[length]: groups of equal rows, numbered by first appearance."""
    codes: Longs = np.zeros(length, dtype=np.int64)
    for column in columns:
        array = column.combine_chunks()
        if pa.types.is_string(array.type):
            # The text of a null key is that of the word, as in queries.
            array = array.fill_null("null")
        encoded = kernels.dictionary_encode(array, null_encoding="encode")
        of_column = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = codes * len(encoded.dictionary) + of_column
        # As small as can be, for the product with the next.
        codes = np.unique(codes, return_inverse=True)[1]
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    ranks = np.empty(len(first), dtype=np.int64)
    ranks[np.argsort(first)] = np.arange(len(first))
    return ranks[codes]


def _distinct(groups: Longs, column: ArrowChunks, count: int) -> Vector:
    """Numbers of different values; null is one of them."""
    array = column.combine_chunks()
    encoded = kernels.dictionary_encode(array, null_encoding="encode")
    values = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = np.unique(groups * len(encoded.dictionary) + values)
    counts = np.bincount(pairs // len(encoded.dictionary), minlength=count)
    return Vector(AttributeType.LONG, counts.astype(np.int64))


def _merged(one: Merge, vectors: Sequence[Vector], groups: Longs, count: int) -> Vector:
    """The value of each group; null if no part has one."""
    nulls = [vector.null_mask for vector in vectors]
    has = ~nulls[-1]
    none = np.bincount(groups[has], minlength=count) == 0
    last = vectors[-1]
    match one.kind:
        case Merging.SUM:
            sums = np.zeros(count, dtype=last.values.dtype)
            with np.errstate(over="ignore"):
                np.add.at(sums, groups[has], last.values[has])
            return Vector(one.type, sums, none)
        case Merging.MIN | Merging.MAX:
            extremes = np.zeros(count, dtype=last.values.dtype)
            extremes[groups[has]] = last.values[has]
            _EXTREMES[one.kind].at(extremes, groups[has], last.values[has])
            return Vector(one.type, extremes, none)
        case _:
            return _spread_out(one, vectors, groups, count)


def _spread_out(one: Merge, vectors: Sequence[Vector], groups: Longs, count: int) -> Vector:
    """Means and deviations, from counts, sums or means, and deviations."""
    nulls = [vector.null_mask for vector in vectors]
    numbers = np.where(nulls[0], 0, vectors[0].values).astype(np.float64)
    values = np.where(nulls[1], 0.0, vectors[1].values)
    total = np.bincount(groups, numbers, count)
    divisor = np.where(total == 0, 1, total)
    none = total == 0
    if one.kind is Merging.MEAN:
        return Vector(one.type, np.bincount(groups, values, count) / divisor, none)
    # The sum of squared distances from the mean: within the parts, and of the parts' means.
    mean = np.bincount(groups, numbers * values, count) / divisor
    within = numbers * np.where(nulls[2], 0.0, vectors[2].values) ** 2
    squares = np.bincount(groups, within + numbers * (values - mean[groups]) ** 2, count)
    return Vector(one.type, np.sqrt(squares / divisor), none)
