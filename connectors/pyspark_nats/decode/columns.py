"""Conversion of lists of Python values to Arrow columns, by the rules of ``decode.values``.

The set of the values' types decides for a whole column whether Arrow's own conversion gives the
same result as the rules.  Otherwise each value is read by its rule.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import arrow
from pyspark_nats.decode import text_columns
from pyspark_nats.decode.values import WrongValueError, reader_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from pyspark_nats.arrow import Array, DataType

    #: A value for an attribute of a type, of the value that a parser gave; the same one if none.
    Conversion = Callable[[Any, DataType], Any]

_NONE = type(None)
_NUMBERS: Final = frozenset((int, float))


def columns(
    events: Sequence[object], fields: Sequence[Any], missing: str, convert: Conversion | None = None
) -> list[Array]:
    """One column for each of ``fields`` from the attributes of ``events``.

    Args:
        events: n dicts; other attributes are ignored.
        fields: Arrow fields.
        missing: "error", or "null" for null if an event lacks an attribute.
        convert: for columns whose values are not all of their type.

    Raises:
        WrongValueError, ArrowInvalid: an event can't be read; the error does not name it.
    """
    return [column(_attribute(events, f.name, missing), f.type, missing, convert) for f in fields]


def _attribute(events: Sequence[Any], name: str, missing: str) -> list[object]:
    try:
        return [event[name] for event in events]
    except KeyError:
        if missing == "error":
            raise WrongValueError(None, None) from None
        return [event.get(name) for event in events]


def column(
    values: list[object], kind: DataType, missing: str, convert: Conversion | None = None
) -> Array:
    """``values``, None for null, as an array of ``kind``; raises as ``columns`` does."""
    types = pa.types
    classes = set(map(type, values))
    classes.discard(_NONE)
    if not classes:
        return pa.nulls(len(values), kind)
    if types.is_nested(kind):
        return _nested(values, classes, kind, missing)
    try:
        if classes == {str}:
            if types.is_string(kind):
                return pa.array(values, kind)
            if types.is_timestamp(kind) or types.is_date(kind) or types.is_binary(kind):
                return text_columns.of_type(pa.array(values, pa.string()), kind)
        elif (
            (classes == {int} and types.is_integer(kind))
            or (classes == {bool} and types.is_boolean(kind))
            or (classes == {bytes} and types.is_binary(kind))
        ):
            return pa.array(values, kind)
        elif classes <= _NUMBERS and types.is_floating(kind):
            array = pa.array(values, kind)
            if kind.bit_width == 64 or _are_finite(array):
                return array
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        pass  # The rule accepts more than Arrow does, or gives the reason of the error.
    if convert is not None:
        return column([convert(value, kind) for value in values], kind, missing)
    read_one = reader_of(kind, missing)
    return pa.array([None if value is None else read_one(value) for value in values], kind)


def _are_finite(floats: Array) -> bool:
    """Whether all are in the range of their type: a double may be beyond that of a float."""
    return bool(np.isfinite(np.frombuffer(floats.buffers()[1], np.float32)[: len(floats)]).all())


def _nested(values: list[Any], classes: set[type], kind: DataType, missing: str) -> Array:
    types = pa.types
    if classes != ({list} if types.is_list(kind) else {dict}):
        raise WrongValueError(None, kind)
    is_null = np.fromiter((value is None for value in values), bool, len(values))
    mask = pa.array(is_null) if is_null.any() else None
    if types.is_struct(kind):
        held = [value for value in values if value is not None]
        children = columns(held, kind.fields, missing)
        if mask is not None:
            children = _spread(children, is_null)
        return arrow.StructArray.from_arrays(children, fields=kind.fields, mask=mask)
    held = [value for value in values if value is not None]
    offsets = np.zeros(len(values) + 1, np.int32)
    lengths = np.fromiter((len(value or ()) for value in values), np.int64, len(values))
    np.cumsum(lengths, out=offsets[1:])
    if types.is_list(kind):
        items = column(list(chain.from_iterable(held)), kind.value_type, missing)
        children = [items]
    else:
        keys = list(chain.from_iterable(held))
        if not all(type(key) is str for key in keys):
            raise WrongValueError(None, kind)
        items = list(chain.from_iterable(value.values() for value in held))
        children = [
            arrow.StructArray.from_arrays(
                [pa.array(keys, pa.string()), column(items, kind.item_type, missing)],
                fields=[kind.key_field, kind.item_field],
            )
        ]
    return pa.Array.from_buffers(
        kind, len(values), [_validity(is_null), pa.py_buffer(offsets.data)], children=children
    )


def _validity(is_null: npt.NDArray[Any]) -> pa.Buffer | None:
    if not is_null.any():
        return None
    return pa.py_buffer(np.packbits(~is_null, bitorder="little").tobytes())


def _spread(children: list[Array], is_null: npt.NDArray[Any]) -> list[Array]:
    """Columns of the rows that are not null, moved to their row numbers."""
    places = np.cumsum(~is_null) - 1
    at = pa.array(np.where(is_null, 0, places), mask=is_null)
    return [child.take(at) for child in children]
