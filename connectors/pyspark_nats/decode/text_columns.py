"""Vector conversion of text columns to times, days and octets, by the rules of ``decode.values``.

Each function accepts a subset of the texts that the rule of the type accepts, with the same result.
A column that it refuses with ``ArrowInvalid`` may still be readable value by value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import kernels
from pyspark_nats.decode.values import DAYS_MAX, DAYS_MIN, TIMES_MAX, TIMES_MIN

if TYPE_CHECKING:
    import numpy.typing as npt

    from pyspark_nats.arrow import Array


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
