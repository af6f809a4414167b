"""Conversion of lists of Python values to Arrow columns, by the rules of ``decode.values``.

The set of the values' types decides for a whole column whether Arrow's own conversion gives the
same result as the rules.  Otherwise each value is read by its rule.

Vector conversion of text columns to times, days and octets, by the rules of ``decode.values``.

Each function accepts a subset of the texts that the rule of the type accepts, with the same result.
A column that it refuses with ``ArrowInvalid`` may still be readable value by value.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import arrow, kernels
from pyspark_nats.decode.values import (
    DAYS_MAX,
    DAYS_MIN,
    TIMES_MAX,
    TIMES_MIN,
    WrongValueError,
    reader_of,
)

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
                return of_type(pa.array(values, pa.string()), kind)
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


def checked_times(times: Array) -> Array:
    """Timestamps, if all of them are in Spark's range of years."""
    return _within(times, pa.int64(), TIMES_MIN, TIMES_MAX)


def local_times(texts: Array) -> Array:
    """ISO 8601 texts without a zone as ``timestamp("us")``."""
    return checked_times(texts.cast(pa.timestamp("us")))


def instants(texts: Array) -> Array:
    """ISO 8601 texts, all with a zone or all without one, as ``timestamp("us", "UTC")``."""
    kind = pa.timestamp("us", "UTC")
    try:
        times = texts.cast(kind)
    except pa.ArrowInvalid:
        times = texts.cast(pa.timestamp("us")).cast(pa.int64()).cast(kind)
    return checked_times(times)


def days(texts: Array) -> Array:
    """``YYYY-MM-DD`` as ``date32``."""
    return checked_days(texts.cast(pa.date32()))


def checked_days(values: Array) -> Array:
    """Days, if all of them are in Spark's range of years."""
    return _within(values, pa.int32(), DAYS_MIN, DAYS_MAX)


def _within(values: Array, plain: pa.DataType, low: int, high: int) -> Array:
    bounds = kernels.min_max(values.cast(plain))
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least is not None and (least < low or most > high):
        raise pa.ArrowInvalid("a time outside of the years 1 to 9999")
    return values


_PAD = 64
_WRONG = 255


def _alphabet() -> npt.NDArray[Any]:
    table = np.full(256, _WRONG, np.uint8)
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    table[np.frombuffer(letters, np.uint8)] = np.arange(64, dtype=np.uint8)
    table[ord("=")] = _PAD
    return table


_SIXTETS = _alphabet()


def of_type(texts: Array, kind: pa.DataType) -> Array:
    """Texts as a column of ``kind``: a time, a day, or octets.

    Raises:
        ArrowInvalid: a text is not read here, or no texts of this type are.
    """
    types = pa.types
    if types.is_timestamp(kind):
        return instants(texts) if kind.tz else local_times(texts)
    if types.is_date(kind):
        return days(texts)
    if types.is_binary(kind):
        return octets(texts)
    raise pa.ArrowInvalid("a type that is not read here")


def octets(texts: Array) -> Array:
    """Base64 texts as binary: the plain alphabet of RFC 4648, padded.

    Args:
        texts: length n, string, null where there is none.

    Returns:
        Length n, binary, null where ``texts`` is.
    """
    if texts.null_count:
        return kernels.if_else(texts.is_valid(), octets(kernels.fill_null(texts, "")), None)
    count = len(texts)
    _, ends_of, text = texts.buffers()
    if count == 0 or text is None or text.size == 0:
        return texts.cast(pa.binary())
    ends = np.frombuffer(ends_of, np.int32)[texts.offset :][: count + 1].astype(np.int64)
    lengths = np.diff(ends)
    if (lengths % 4).any():
        raise pa.ArrowInvalid("base64 is not padded")
    sixtets = _SIXTETS[np.frombuffer(text, np.uint8)[ends[0] : ends[-1]]].reshape(-1, 4)
    pads = np.zeros(count, np.int64)
    is_pad = sixtets == _PAD
    if (sixtets == _WRONG).any() or is_pad[:, :2].any():
        raise pa.ArrowInvalid("not base64")
    last = (ends[1:] - ends[0]) // 4 - 1
    filled = lengths > 0
    pads[filled] = is_pad[last[filled]].sum(axis=1)
    is_misplaced = is_pad[:, 2] & ~is_pad[:, 3]
    if pads.sum() != is_pad.sum() or is_misplaced.any():
        raise pa.ArrowInvalid("base64 has padding inside")
    sixtets = np.where(is_pad, 0, sixtets).astype(np.uint32)
    whole = (sixtets[:, 0] << 18) | (sixtets[:, 1] << 12) | (sixtets[:, 2] << 6) | sixtets[:, 3]
    triplets = np.empty((len(whole), 3), np.uint8)
    triplets[:, 0], triplets[:, 1], triplets[:, 2] = whole >> 16, whole >> 8, whole
    keep = np.ones((len(whole), 3), bool)
    keep[:, 2], keep[:, 1] = ~is_pad[:, 3], ~is_pad[:, 2]
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths // 4 * 3 - pads, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(),
        count,
        [None, pa.py_buffer(offsets.data), pa.py_buffer(triplets[keep].tobytes())],
    )
