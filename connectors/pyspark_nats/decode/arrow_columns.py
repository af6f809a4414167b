"""Columns of Arrow messages as columns of a schema's types.

A narrower type is accepted for a wider one; other types must agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyspark_nats.arrow import arrow, kernels
from pyspark_nats.decode import columns, text_columns
from pyspark_nats.decode.arrow_sizes import is_list
from pyspark_nats.decode.values import WrongValueError, article, reader_of, type_name

if TYPE_CHECKING:
    from pyspark_nats.arrow import Array, DataType


class UnreadableError(ValueError):
    """The reason why a table has no rows of the schema."""


class WrongRowsError(UnreadableError):
    """Rows of a table have values that an attribute does not have."""

    def __init__(self, reasons: dict[int, str]) -> None:
        """The error; ``reasons`` by the numbers of the rows, at least one."""
        super().__init__(next(iter(reasons.values())))
        self.reasons = reasons


def as_kind(array: Array, kind: DataType, missing: str, path: str) -> Array:
    """An array as one of ``kind``; an error names the ``path`` that can't be converted."""
    types, source = pa.types, array.type
    if types.is_null(source):
        return pa.nulls(len(array), kind)
    if types.is_dictionary(source):
        return as_kind(kernels.dictionary_decode(array), kind, missing, path)
    if types.is_run_end_encoded(source):
        return as_kind(kernels.run_end_decode(array), kind, missing, path)
    if types.is_struct(kind) and types.is_struct(source):
        return _as_struct(array, kind, missing, path)
    if types.is_list(kind) and is_list(source):
        lists = array.cast(pa.list_(source.value_type))
        items = _inside(lists.values, kind.value_type, missing, f"{path}[]")
        return _rebuilt(lists, kind, [items])
    if types.is_map(kind) and types.is_map(source):
        entries = arrow.StructArray.from_arrays(
            [
                _inside(array.keys, kind.key_type, missing, f"{path}.key"),
                _inside(array.items, kind.item_type, missing, f"{path}.value"),
            ],
            fields=[kind.key_field, kind.item_field],
        )
        return _rebuilt(array, kind, [entries])
    if source == kind:
        return _checked(array)
    if not _widens(source, kind):
        raise UnreadableError(
            f'attribute "{path}" is of Arrow type {source}, not {article(type_name(kind))}'
        )
    if types.is_timestamp(kind) and types.is_timestamp(source):
        # Digits beyond microseconds are cut, and a time without a zone is UTC.
        return _checked(array.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).cast(kind))
    if types.is_timestamp(kind):
        return _checked(array.cast(pa.timestamp("us")).cast(pa.int64()).cast(kind))
    if types.is_integer(source) and types.is_floating(kind):
        try:
            return columns.column(array.to_pylist(), kind, missing)
        except WrongValueError:
            raise WrongRowsError(_reasons(array, kind, missing, path)) from None
    if types.is_decimal(kind):
        return array.cast(kind)
    return _checked(array.cast(kind, safe=False))


def _inside(array: Array, kind: DataType, missing: str, path: str) -> Array:
    """As ``as_kind``, for an array whose numbers of rows are not those of the message."""
    try:
        return as_kind(array, kind, missing, path)
    except WrongRowsError as wrong:
        raise UnreadableError(str(wrong)) from None


def _reasons(array: Array, kind: DataType, missing: str, path: str) -> dict[int, str]:
    """The reasons against values of an array, by their numbers."""
    read = reader_of(kind, missing)
    reasons: dict[int, str] = {}
    for row, value in enumerate(array.to_pylist()):
        try:
            read(0 if value is None else value)
        except WrongValueError as wrong:
            reasons[row] = wrong.reason(path)
    return reasons


def _checked(array: Array) -> Array:
    """Check that times are in Spark's range of years."""
    if pa.types.is_timestamp(array.type):
        return text_columns.checked_times(array)
    return text_columns.checked_days(array) if pa.types.is_date(array.type) else array


def _as_struct(array: Array, kind: pa.DataType, missing: str, path: str) -> Array:
    names = [array.type.field(n).name for n in range(array.type.num_fields)]
    children: list[Array] = []
    for field in _fields(kind):
        if field.name in names:
            inner = array.field(names.index(field.name))
            children.append(_inside(inner, field.type, missing, f"{path}.{field.name}"))
        elif missing == "error":
            raise UnreadableError(f'attribute "{path}.{field.name}" is missing')
        else:
            children.append(pa.nulls(len(array), field.type))
    mask = array.is_null() if array.null_count else None
    return arrow.StructArray.from_arrays(children, fields=_fields(kind), mask=mask)


def _fields(kind: Any) -> list[Any]:
    return [kind.field(n) for n in range(kind.num_fields)]


def _rebuilt(array: Array, kind: pa.DataType, children: list[Array]) -> Array:
    """The same lists with other items."""
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[:2], offset=array.offset, children=children
    )


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of a type is valid in another, apart from digits below a microsecond."""
    types = pa.types
    if types.is_string(target):
        return types.is_large_string(source) or types.is_string_view(source)
    if types.is_binary(target):
        return (
            types.is_large_binary(source)
            or types.is_binary_view(source)
            or types.is_fixed_size_binary(source)
        )
    if types.is_floating(target):
        return types.is_integer(source) or (
            types.is_floating(source) and source.bit_width <= target.bit_width
        )
    if types.is_signed_integer(target):
        if types.is_unsigned_integer(source):
            return bool(source.bit_width < target.bit_width)
        return bool(types.is_signed_integer(source) and source.bit_width <= target.bit_width)
    if types.is_decimal(target):
        whole = target.precision - target.scale
        if types.is_decimal(source):
            return bool(source.scale <= target.scale and source.precision - source.scale <= whole)
        return bool(types.is_integer(source) and len(str(2**source.bit_width)) <= whole)
    if types.is_timestamp(target):
        if types.is_timestamp(source):
            return bool(target.tz) or not source.tz
        return types.is_date(source)
    return types.is_date(target) and types.is_date(source)
