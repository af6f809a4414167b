"""Conversion of text columns to typed columns and back, whole columns at a time."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.functions.objects import java_text
from pyspark_nats.arrow import kernels
from pyspark_nats.decode.json_layout import whole_max
from pyspark_nats.decode.values import real_of

if TYPE_CHECKING:
    from pyspark_nats.arrow import Array, DataType

#: Truth values, first those that are true.
_BOOLS: Final = ("true", "1", "false", "0")
#: Texts of numbers; Arrow reads more words as such.
_WHOLE: Final = r"^[+-]?0*[0-9]{1,19}$"
_FLOAT: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(NaN|Infinity)$"


def typed(texts: Array, kind: DataType) -> tuple[Array, list[int]]:
    """Texts as values of ``kind``.

    Args:
        texts: length n, string, or of ``kind`` already; null stays null.
        kind: string, a number or bool.

    Returns:
        Length n, null where a text is no such value; and the rows of those texts.  Spaces around
        a value are ignored, and an empty text is null.  ``true`` and ``false`` in any case, 1 and 0
        are truth values.
    """
    if texts.type == kind:
        return texts, []
    bare = kernels.utf8_trim_whitespace(texts)
    bare = kernels.if_else(kernels.equal(bare, ""), pa.scalar(None, pa.string()), bare)
    at_once = _at_once(bare, kind)
    if at_once is not None:
        return at_once, []
    if pa.types.is_boolean(kind):
        place = kernels.index_in(kernels.utf8_lower(bare), value_set=pa.array(_BOOLS))
        values = kernels.less(place, 2)
    elif pa.types.is_floating(kind):
        values = _reals(bare, kind)
    else:
        values = _wholes(bare, kind)
    wrong = kernels.and_(bare.is_valid(), values.is_null())
    return values, np.flatnonzero(wrong.to_numpy(zero_copy_only=False)).tolist()


def _at_once(texts: Array, kind: DataType) -> Array | None:
    """Numbers as Arrow reads them; None if one of them may be another than its text."""
    if pa.types.is_boolean(kind):
        return None
    try:
        if pa.types.is_floating(kind):
            values = texts.cast(pa.float64())
            return None if may_be_changed(values, kind) else values.cast(kind, safe=False)
        octets = bytes(texts.buffers()[2] or b"")
        # Arrow reads whole numbers of base 16.
        return None if b"x" in octets or b"X" in octets else texts.cast(kind)
    except pa.ArrowInvalid:
        return None


def _wholes(texts: Array, kind: DataType) -> Array:
    """Whole numbers of texts; null where a text is none in range."""
    digits = _matching(texts, _WHOLE)
    try:
        return kernels.utf8_ltrim(digits, "+").cast(kind)
    except pa.ArrowInvalid:
        limit = 1 << (kind.bit_width - 1)
        numbers = (None if text is None else int(text) for text in digits.to_pylist())
        values = [n if n is not None and -limit <= n < limit else None for n in numbers]
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


def may_be_changed(column: Array, kind: DataType) -> bool:
    """Whether a number of a column, as another reader gives it, may differ from its text.

    Args:
        column: of numbers, or of anything else, which is not changed.
        kind: the type that they become.
    """
    if not pa.types.is_floating(column.type) or not len(column):
        return False
    limit = whole_max(kind)
    # Octets below nulls are zeros in general; others cost another look only.
    width = np.float32 if column.type.bit_width == 32 else np.float64
    values = np.frombuffer(column.buffers()[1], width)[column.offset :][: len(column)]
    # NaN, which may be any word, is not small.
    return not -limit < values.min() <= values.max() < limit


def large(rows: pa.RecordBatch, limit: int | None = None) -> Any:
    """The rows with a floating-point number from ``limit`` on, or with any that may be changed."""
    mask = np.zeros(rows.num_rows, bool)
    for column in rows.columns:
        if pa.types.is_floating(column.type):
            sizes = np.abs(column.to_numpy(zero_copy_only=False))
            mask |= sizes >= (whole_max(column.type) if limit is None else limit)
    return np.flatnonzero(mask)


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
