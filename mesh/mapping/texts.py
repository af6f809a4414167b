"""Conversion of text columns to typed columns and back, whole columns at a time."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mesh.functions.texts import java_text
from pyspark_nats.arrow import kernels
from pyspark_nats.decode.json_layout import whole_max
from pyspark_nats.decode.values import real_of

if TYPE_CHECKING:
    from pyspark_nats.arrow import Array, DataType

#: Texts of numbers; Arrow reads more words as such.
_WHOLE: Final = r"^[+-]?0*[0-9]{1,19}$"
_FLOAT: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(NaN|Infinity)$"


def typed(texts: Array, kind: DataType) -> tuple[Array, list[int]]:
    """Texts as values of ``kind``.

    Args:
        texts: length n, string; null stays null.
        kind: string, a number or bool.

    Returns:
        Length n, null where a text is no such value; and the rows of those texts.  Spaces around
        a value are ignored, and an empty text is null.  ``true`` and ``false`` in any case, 1 and 0
        are truth values.
    """
    if pa.types.is_string(kind):
        return texts, []
    bare = kernels.utf8_trim_whitespace(texts)
    bare = kernels.if_else(kernels.equal(bare, ""), pa.scalar(None, pa.string()), bare)
    if pa.types.is_boolean(kind):
        small = kernels.utf8_lower(bare)
        values = kernels.or_(kernels.equal(small, "true"), kernels.equal(small, "1"))
        is_false = kernels.or_(kernels.equal(small, "false"), kernels.equal(small, "0"))
        is_known = kernels.or_(values, is_false)
        values = kernels.if_else(is_known, values, pa.scalar(None, pa.bool_()))
    elif pa.types.is_floating(kind):
        values = _reals(bare, kind)
    else:
        values = _wholes(bare, kind)
    wrong = kernels.and_(bare.is_valid(), values.is_null())
    return values, np.flatnonzero(wrong.to_numpy(zero_copy_only=False)).tolist()


def _wholes(texts: Array, kind: DataType) -> Array:
    """Whole numbers of texts; null where a text is none in range."""
    digits = _matching(texts, _WHOLE)
    try:
        return kernels.utf8_ltrim(digits, "+").cast(kind)
    except pa.ArrowInvalid:
        limit = 1 << (kind.bit_width - 1)
        found = (None if text is None else int(text) for text in digits.to_pylist())
        values = [n if n is not None and -limit <= n < limit else None for n in found]
        return pa.array(values, kind)


def _reals(texts: Array, kind: DataType) -> Array:
    """Numbers of texts; null where a text is none, or one that the type can't show."""
    values = _matching(texts, _FLOAT).cast(pa.float64())
    large = kernels.greater_equal(kernels.abs(values), float(whole_max(kind)))
    if kernels.any(large).as_py():
        values = values.to_pylist()
        for row in np.flatnonzero(kernels.fill_null(large, False).to_numpy(zero_copy_only=False)):
            text = texts[int(row)].as_py()
            if not text.endswith("y"):
                # No number of more digits is finite.
                is_whole = text.lstrip("+-").isdecimal() and len(text) < 400
                values[row] = real_of(int(text) if is_whole else Decimal(text), kind)
        return pa.array(values, kind)
    return values.cast(kind, safe=False)


def may_be_changed(column: Array) -> bool:
    """Whether a number of a column, as another reader gives it, may differ from its text."""
    if not pa.types.is_floating(column.type):
        return False
    is_small = kernels.less(kernels.abs(column), float(whole_max(column.type)))
    return kernels.all(is_small).as_py() is False


def _matching(texts: Array, pattern: str) -> Array:
    is_match = kernels.match_substring_regex(texts, pattern)
    return kernels.if_else(is_match, texts, pa.scalar(None, pa.string()))


def text_of(column: Array) -> Array:
    """Values as texts, as ``{{attribute}}`` shows them: Java's; null is ``null``."""
    if not pa.types.is_floating(column.type):
        return kernels.fill_null(column.cast(pa.string()), "null")
    size = kernels.abs(column.cast(pa.float64()))
    is_plain = kernels.and_(kernels.greater_equal(size, 1e-3), kernels.less(size, 1e7))
    if kernels.all(kernels.or_(is_plain, kernels.equal(size, 0.0))).as_py() is False:
        single = pa.types.is_float32(column.type)
        values = (np.float32(v) if single and v is not None else v for v in column.to_pylist())
        return pa.array(["null" if v is None else java_text(v) for v in values], pa.string())
    texts = column.cast(pa.string())
    whole = kernels.match_substring_regex(texts, r"^-?[0-9]+$")
    texts = kernels.if_else(whole, kernels.binary_join_element_wise(texts, "0", "."), texts)
    return kernels.fill_null(texts, "null")
