"""Rows that their table in a database can't have, and the texts that it has of others.

Columns of values are tested together; a text of another type than text is tested once for each
value that differs.
"""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.model.column_texts import decimal_text, form
from mesh.model.column_types import DOUBLE_DIGITS, Kind, NoFormError
from mesh.model.stored import Backend, MergeRule
from mesh.model.types import AttributeType
from pyspark_nats.arrow import ArrowArray, kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.model.column_types import ColumnType
    from mesh.model.stored import StoredColumn, StoredTable

_WHOLE = (AttributeType.INT, AttributeType.LONG)
_FRACTIONS = (AttributeType.FLOAT, AttributeType.DOUBLE)


def refused(rows: pa.RecordBatch, table: StoredTable) -> dict[int, str]:
    """By row, why its database can't have it: a text is too long, a number would be rounded.

    Args:
        rows: of the table, all of its columns or some.
        table: with lengths and types; without a time, its keys may not be null.
    """
    reasons: dict[int, str] = {}
    for column in table.columns:
        if column.name not in rows.schema.names:
            continue
        values = rows.column(column.name)
        # Keys without a value are only those of groups.
        if column.merge is MergeRule.KEY and not table.time:
            for row in np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist():
                reasons.setdefault(row, f'"{column.name}" of the primary key is null')
        for row, reason in _of_column(values, column, table):
            reasons.setdefault(row, reason)
    return reasons


def has_forms(table: StoredTable) -> bool:
    """Whether a table has columns whose texts may become others; see ``formed``."""
    return any(_is_formed(column) for column in table.columns)


def formed(rows: pa.RecordBatch, table: StoredTable) -> pa.RecordBatch:
    """Rows with the texts that their columns have of them; ``refused`` finds those without one."""
    for column in table.columns:
        if column.name not in rows.schema.names or not _is_formed(column):
            continue
        at = rows.schema.get_field_index(column.name)
        texts, _ = _forms(rows.column(at), column)
        rows = rows.set_column(at, rows.schema.field(at), texts)
    return rows


def _is_formed(column: StoredColumn) -> bool:
    actual = column.actual
    return (
        column.type is AttributeType.STRING
        and actual is not None
        and (not actual.is_text or bool(actual.charset))
        and actual.backend is not Backend.SQLITE
    )


def _of_column(
    values: ArrowArray, column: StoredColumn, table: StoredTable
) -> Iterator[tuple[int, str]]:
    """Rows that a column can't have, with reasons."""
    if column.type is AttributeType.STRING:
        yield from _of_texts(values, column, table)
        return
    actual = column.actual
    if actual is None or not _is_narrower(column, actual):
        return
    is_wrong = (
        _wrong_wholes(values, actual)
        if column.type in _WHOLE
        else _wrong_fractions(values, column, actual, is_bucket=bool(table.time))
    )
    for row in np.flatnonzero(is_wrong).tolist():
        value = values[row].as_py()
        yield row, f'"{column.name}" is {value}, and the column {actual.declared} has no such value'


def _is_narrower(column: StoredColumn, actual: ColumnType) -> bool:
    """Whether a column may lack numbers that its attribute has."""
    if column.type in _WHOLE:
        most = 2**31 if column.type is AttributeType.INT else 2**63
        if actual.kind is Kind.INTEGER:
            return actual.span[0] > -most or actual.span[1] < most - 1
        return actual.kind is not Kind.ANY and (
            actual.backend is not Backend.SQLITE or actual.kind is Kind.DOUBLE
        )
    if column.type not in _FRACTIONS:
        return False
    is_same = actual.kind is Kind.DOUBLE or (
        actual.kind is Kind.REAL and column.type is AttributeType.FLOAT
    )
    return not is_same or actual.backend is not Backend.POSTGRESQL


def _of_texts(
    values: ArrowArray, column: StoredColumn, table: StoredTable
) -> Iterator[tuple[int, str]]:
    zero = kernels.fill_null(kernels.match_substring(values, "\0"), False)
    for row in np.flatnonzero(zero.to_numpy(zero_copy_only=False)).tolist():
        yield row, f'"{column.name}" has a character of code 0'
    actual = column.actual
    is_enforced = actual is not None and actual.backend is not Backend.SQLITE
    if _is_formed(column) or (actual is not None and actual.kind is Kind.NUMERIC):
        _, reasons = _forms(values, column)
        yield from reasons.items()
        return
    most = actual.length if actual is not None and is_enforced else column.length
    if most is not None:
        lengths = kernels.fill_null(kernels.utf8_length(values), 0).to_numpy()
        for row in np.flatnonzero(lengths > most).tolist():
            yield (
                row,
                (
                    f'"{column.name}" has {lengths[row]} characters, and the column of table '
                    f'"{table.name}" {most} (field.length)'
                ),
            )
    if actual is not None and actual.octets:
        sizes = kernels.fill_null(kernels.binary_length(values), 0).to_numpy()
        for row in np.flatnonzero(sizes > actual.octets).tolist():
            yield row, f'"{column.name}" has more than {actual.octets} bytes'


def _forms(values: ArrowArray, column: StoredColumn) -> tuple[ArrowArray, dict[int, str]]:
    """The texts that a column has of texts, and by row the reasons for those without one."""
    actual = column.actual
    assert actual is not None, "the table has been read"
    coded: Any = values.dictionary_encode()
    texts: list[str | None] = []
    wrong: dict[int, str] = {}
    for code, text in enumerate(coded.dictionary.to_pylist()):
        try:
            texts.append(form(actual, text))
        except NoFormError as error:
            texts.append(text)
            shown = text if len(text) <= 40 else f"{text[:40]}.."
            wrong[code] = (
                f'"{column.name}" is the string "{shown}", which the column '
                f"{actual.declared} can't have: {error}"
            )
    forms = pa.array(texts, pa.string()).take(coded.indices)
    if not wrong:
        return forms, {}
    codes = coded.indices.to_pylist()
    return forms, {row: wrong[code] for row, code in enumerate(codes) if code in wrong}


def _numbers(values: ArrowArray) -> Any:
    """Numbers with 0 for null."""
    return values.fill_null(0).to_numpy(zero_copy_only=False)


def _wrong_wholes(values: ArrowArray, actual: ColumnType) -> Any:
    """bool[n]: whole numbers that a column can't have."""
    numbers = _numbers(values)
    match actual.kind:
        case Kind.INTEGER:
            low, high = (min(max(one, -(2**63)), 2**63 - 1) for one in actual.span)
        case Kind.BIT:
            low, high = 0, min(2 ** (actual.length or 1), 2**63) - 1
        case Kind.NUMERIC if actual.length is not None:
            whole = actual.length - (actual.scale or 0)
            high = min(10**whole, 2**63) - 1
            low = 0 if "unsigned" in actual.declared else -high
        case Kind.DOUBLE | Kind.REAL:
            kind = np.float64 if actual.kind is Kind.DOUBLE else np.float32
            rounded = numbers.astype(kind)
            # The largest ones become a number that no long is.
            is_large = np.abs(rounded.astype(np.float64)) >= 2.0**63
            return is_large | (np.where(is_large, 0, rounded).astype(np.int64) != numbers)
        case _:
            return np.zeros(len(numbers), dtype=np.bool_)
    return (numbers < low) | (numbers > high)


def _wrong_fractions(
    values: ArrowArray, column: StoredColumn, actual: ColumnType, *, is_bucket: bool
) -> Any:
    """bool[n]: fractions that a column can't have."""
    numbers = _numbers(values)
    wrong = np.zeros(len(numbers), dtype=np.bool_)
    is_finite = np.isfinite(numbers)
    if actual.backend is Backend.REDIS:
        # No key equals NaN, so its row would never be found again.
        return np.isnan(numbers) if column.merge is MergeRule.KEY else wrong
    if actual.backend is not Backend.POSTGRESQL and (
        not is_bucket or column.merge is MergeRule.KEY
    ):
        # Neither has a null: the row would be another one.
        wrong |= ~is_finite
    with np.errstate(over="ignore", invalid="ignore"):
        match actual.kind:
            case Kind.REAL if column.type is AttributeType.DOUBLE:
                wrong |= is_finite & ~single(numbers)
            case Kind.INTEGER:
                low, high = map(float, actual.span)
                wrong |= (np.trunc(numbers) != numbers) | (numbers < low) | (numbers >= high)
            case Kind.NUMERIC if actual.backend is not Backend.SQLITE:
                wrong |= _wrong_decimals(numbers, actual)
    return wrong


def single(numbers: Any) -> Any:
    """bool[n]: numbers that single precision has, exactly or as its shortest text."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = numbers.astype(np.float32)
        is_same = rounded == numbers
        if not is_same.all():
            # PostgreSQL shows that text, and drivers read it.
            is_same |= rounded.astype(str).astype(np.float64) == numbers
    return is_same


def _wrong_decimals(numbers: Any, actual: ColumnType) -> Any:
    """bool[n]: fractions that a column of decimals would round, or does not reach."""
    scale = DOUBLE_DIGITS if actual.scale is None else actual.scale
    whole = DOUBLE_DIGITS if actual.length is None else actual.length - (actual.scale or 0)
    digits = min(scale, DOUBLE_DIGITS)
    # Rounded to so many digits a number stays as it is, unless it has more, or is too large.
    is_sure = np.abs(numbers) < 10.0 ** min(whole, DOUBLE_DIGITS - max(digits, 0))
    is_sure &= np.round(numbers, digits) == numbers
    is_sure &= ~np.signbit(numbers) | ("unsigned" not in actual.declared)
    wrong = np.zeros(len(numbers), dtype=np.bool_)
    for row in np.flatnonzero(~is_sure).tolist():
        try:
            number = float(numbers[row])
            if np.isfinite(number):
                shown = str(numbers[row]) if numbers.dtype == np.float32 else repr(number)
                decimal_text(actual, decimal.Decimal(shown))
            else:
                form(actual, {np.inf: "Infinity", -np.inf: "-Infinity"}.get(number, "NaN"))
        except (NoFormError, ArithmeticError):
            wrong[row] = True
    return wrong
