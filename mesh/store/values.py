"""Values of drivers as those of attributes: exactly, or not at all; and rows of such values.

Rows for a database are merged by key and sorted.
"""

from __future__ import annotations

import decimal
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.model.stored import NULL_KEYS, UNFIT, Backend, MergeRule
from mesh.model.stored_limits import single
from mesh.model.types import AttributeType
from pyspark_nats.arrow import ArrowArray, kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.model.stored import StoredColumn, StoredTable
    from mesh.model.values import Row


#: The driver's types that are an attribute's own; Arrow takes them all at once.
_NATIVE_TYPES: Final[dict[AttributeType, set[type]]] = {
    AttributeType.STRING: {str},
    AttributeType.INT: {int},
    AttributeType.LONG: {int},
    AttributeType.FLOAT: {float},
    AttributeType.DOUBLE: {float},
    AttributeType.BOOL: {bool},
    AttributeType.OBJECT: {bytes},
}

_FUNCTIONS: Final = {
    MergeRule.SUM: "sum",
    MergeRule.MIN: "min",
    MergeRule.MAX: "max",
    MergeRule.LATEST: "last",
    MergeRule.LAST: "last",
}


def column_of(listed: Sequence[Any], attribute: AttributeType) -> tuple[ArrowArray, dict[int, str]]:
    """Values as a column, and by row the reasons for those that it can't have, which are null."""
    if set(map(type, listed)) <= {*_NATIVE_TYPES[attribute], type(None)}:
        try:
            column = pa.array(listed, attribute.arrow)
            if attribute is not AttributeType.FLOAT or _are_single(listed):
                return column, {}
        except (OverflowError, pa.ArrowException):
            # One of the numbers is too large.
            pass
    values = []
    reasons: dict[int, str] = {}
    for row, value in enumerate(listed):
        try:
            values.append(None if value is None else exact(value, attribute))
        except (ValueError, TypeError, ArithmeticError):
            values.append(None)
            reasons[row] = f"{shown(value)}, which no {attribute} is"
    return pa.array(values, attribute.arrow), reasons


def exact(value: Any, attribute: AttributeType) -> Any:
    """A driver's value as an attribute's.

    Raises:
        ValueError, TypeError, ArithmeticError: it has no equal among them.
    """
    match attribute:
        case AttributeType.STRING:
            return _text(value)
        case AttributeType.BOOL:
            return bool([0, 1].index(value))
        case AttributeType.INT | AttributeType.LONG:
            return _whole(value, 31 if attribute is AttributeType.INT else 63)
        case AttributeType.FLOAT | AttributeType.DOUBLE:
            return _fraction(value, is_float=attribute is AttributeType.FLOAT)
        case AttributeType.OBJECT:
            return bytes(_of(value, bytes | bytearray | memoryview))


def shown(value: object) -> str:
    """The kind of a value, and the beginning of its text."""
    text = str(value)
    return f"{type(value).__name__} {text[:40]}{'..' if len(text) > 40 else ''}"


def _of(value: object, kinds: Any) -> Any:
    if not isinstance(value, kinds):
        raise TypeError(type(value).__name__)
    return value


def _text(value: object) -> str:
    if isinstance(value, float):
        return repr(value)
    return str(_of(value, str | int | decimal.Decimal))


def _whole(value: Any, bits: int) -> int:
    number = int(_of(value, int | float | decimal.Decimal))
    if number != value or not -(2**bits) <= number < 2**bits:
        raise ValueError(value)
    return number


def _are_single(listed: Sequence[float | None]) -> bool:
    """Whether numbers have single precision: the exact ones, or those of its shortest texts."""
    numbers = np.array([0.0 if value is None else value for value in listed], np.float64)
    return bool(np.all(single(numbers) | np.isnan(numbers)))


def _fraction(value: Any, *, is_float: bool) -> float:
    number = float(_of(value, int | float | decimal.Decimal))
    if isinstance(value, decimal.Decimal):
        # A double's shortest text is the number that it stands for.
        is_same = value.is_nan() or decimal.Decimal(repr(number)) == value
    else:
        is_same = number == value or number != number
    if not is_same or (is_float and not _are_single([number])):
        raise ValueError(value)
    return number


def merged(rows: pa.RecordBatch, table: StoredTable) -> pa.RecordBatch:
    """One row for each key, in the order of keys: writers that share rows lock them in one order.

    Equal keys are merged as in the database, in the order of ``rows``.
    """
    keys = [column.name for column in table.keys]
    whole = pa.Table.from_batches([rows])
    columns = [
        _key_values(whole.column(column.name).combine_chunks(), column) for column in table.keys
    ]
    columns += [whole.column(column.name).combine_chunks() for column in table.values]
    whole = pa.Table.from_arrays(columns, names=[c.name for c in (*table.keys, *table.values)])
    last = next((c.name for c in table.values if c.merge is MergeRule.LAST), None)
    if last is not None:
        order = np.argsort(whole.column(last).to_numpy(), kind="stable")
        whole = whole.take(order)
    options: Any = kernels.ScalarAggregateOptions(skip_nulls=False)
    aggregations = [
        (c.name, _FUNCTIONS[c.merge], options if c.merge is MergeRule.LATEST else None)
        for c in table.values
    ]
    grouped: Any = whole.group_by(keys, use_threads=False)
    result = grouped.aggregate(aggregations)
    names = {f"{name}_{function}": name for name, function, _ in aggregations}
    result = result.rename_columns([names.get(name, name) for name in result.column_names])
    result = result.sort_by([(name, "ascending") for name in keys])
    chosen = result.select([column.name for column in table.columns]).combine_chunks()
    batches = chosen.to_batches()
    return batches[0] if batches else rows.slice(0, 0)


def values(rows: pa.RecordBatch, backend: Backend) -> list[Row]:
    """Rows as tuples; a number that the database does not have is null."""
    columns = []
    for column in rows.columns:
        listed = column.to_pylist()
        if backend is not Backend.POSTGRESQL and pa.types.is_floating(column.type):
            listed = [None if v is not None and not math.isfinite(v) else v for v in listed]
        columns.append(listed)
    return list(zip(*columns, strict=True))


def _key_values(array: ArrowArray, column: StoredColumn) -> ArrowArray:
    if column.type is AttributeType.BOOL:
        array = array.cast(pa.int16())
    filled: ArrowArray = kernels.fill_null(array, NULL_KEYS[column.type])
    if pa.types.is_floating(filled.type):
        # Databases have one zero and one NaN, and a statement writes a key once.
        numbers = filled.to_numpy(zero_copy_only=False) + 0.0
        numbers[np.isnan(numbers)] = np.nan
        return pa.array(numbers, filled.type)
    return filled


def to_arrow(records: Sequence[Any], table: StoredTable) -> pa.RecordBatch:
    """Rows that a database returned, in the columns of ``table``, with nulls in keys again.

    A value that its attribute can't have is null here, and the column ``UNFIT`` has the reason; it
    is there if there is such a row.
    """
    columns = list(zip(*records, strict=True)) if records else [()] * len(table.columns)
    arrays: list[ArrowArray] = []
    reasons: dict[int, str] = {}
    for column, cells in zip(table.columns, columns, strict=True):
        listed = list(cells)
        if table.time and column.merge is MergeRule.KEY and column.type is not AttributeType.STRING:
            null = NULL_KEYS[column.type]
            listed = [None if value == null else value for value in listed]
        array, wrong = column_of(listed, column.type)
        arrays.append(array)
        for row, reason in wrong.items():
            reasons.setdefault(row, f'column "{column.name}" of table "{table.name}" has {reason}')
    rows = pa.RecordBatch.from_arrays(arrays, schema=table.arrow)
    if not reasons:
        return rows
    listed = [reasons.get(row) for row in range(len(records))]
    return rows.append_column(UNFIT, pa.array(listed, pa.string()))
