"""Conversion of text columns to typed columns and back, whole columns at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mesh.functions.texts import java_text
from pyspark_nats.arrow import kernels

if TYPE_CHECKING:
    from pyspark_nats.arrow import Array, DataType

#: Texts of numbers; Arrow reads more words as such.
_FLOAT: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(NaN|Infinity)$"


def typed(texts: Array, kind: DataType) -> tuple[Array, list[int]]:
    """Texts as values of ``kind``.

    Args:
        texts: length n, string; null stays null.
        kind: string, a number or bool.

    Returns:
        Length n, null where a text is no such value; and the rows of those texts.  Spaces around
        numbers are ignored, an empty text is no value but a null, and any text but ``true`` in any
        case is false.
    """
    if pa.types.is_string(kind):
        return texts, []
    bare = kernels.utf8_trim_whitespace(texts)
    if pa.types.is_boolean(kind):
        return kernels.equal(kernels.utf8_lower(bare), "true"), []
    bare = kernels.if_else(kernels.equal(bare, ""), pa.scalar(None, pa.string()), bare)
    try:
        if not pa.types.is_floating(kind):
            return bare.cast(kind), []
        if kernels.all(kernels.match_substring_regex(bare, _FLOAT)).as_py() is not False:
            return bare.cast(pa.float64()).cast(kind), []
    except pa.ArrowInvalid:
        pass
    values, wrong = [], []
    for row, text in enumerate(bare.to_pylist()):
        try:
            one = pa.array([text], pa.string())
            if pa.types.is_floating(kind) and text is not None:
                is_number = kernels.match_substring_regex(one, _FLOAT)[0].as_py()
                values.append(float(text) if is_number else None)
                wrong += [] if is_number else [row]
            else:
                values.append(one.cast(kind)[0].as_py())
        except (pa.ArrowInvalid, OverflowError):
            values.append(None)
            wrong.append(row)
    return pa.array(values, kind), wrong


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
