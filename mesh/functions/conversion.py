"""``convert(x, 'type')``: type conversion as in the reference engine.

Text is parsed and formatted with Java's rules.  That is done once for each distinct value, in
Python: Arrow implements neither Java's number formats nor its parsers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mesh.functions import kernels
from mesh.functions.objects import java_text as java_text
from mesh.functions.objects import object_text
from mesh.functions.vectors import Vector, dtype_of
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_nats.arrow import ArrowArray

_INTEGER = re.compile(r"[+-]?\d+\Z")
_DECIMAL = re.compile(
    r"([+-]?)(?:(NaN|Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)\Z"
)
#: The characters that Java's trim() removes.
_BLANK = "".join(map(chr, range(33)))


def convert(vector: Vector, type: AttributeType) -> Vector:
    """``vector`` as ``type``; text that is not a number gives null, or false for bool."""
    if type is AttributeType.STRING:
        return _to_text(vector)
    if vector.type is AttributeType.STRING:
        return _from_text(vector, type)
    if type is AttributeType.BOOL:
        # Only 1 is true; there is no null bool, so null converts to false.
        true = vector.values == 1
        return Vector(type, true if vector.nulls is None else true & ~vector.nulls)
    return kernels.cast(vector, type)


def _from_text(vector: Vector, type: AttributeType) -> Vector:
    texts = vector.values
    if type is AttributeType.BOOL:
        is_true = pc.equal(pc.ascii_lower(texts), pa.scalar("true"))
        true = pc.fill_null(is_true, pa.scalar(False))
        return Vector(type, true.to_numpy(zero_copy_only=False))
    parse = parse_real if type in (AttributeType.FLOAT, AttributeType.DOUBLE) else _parse_integer
    if type is AttributeType.INT:
        parse = _parse_int
    whole = dtype_of(type).kind == "i"
    parsed = _each(texts, parse, pa.int64() if whole else pa.float64())
    nulls = parsed.is_null().to_numpy(zero_copy_only=False)
    values: Any = parsed.fill_null(0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        return Vector(type, values.astype(dtype_of(type)), nulls if nulls.any() else None)


def _to_text(vector: Vector) -> Vector:
    if vector.type is AttributeType.STRING:
        return vector
    if vector.type is AttributeType.OBJECT:
        texts = [None if value is None else object_text(value) for value in vector.values]
        return Vector(AttributeType.STRING, pa.array(texts, pa.string()))
    array = vector.to_arrow(len(vector))
    if vector.type is AttributeType.FLOAT:
        text = _each(array, lambda x: java_text(np.float32(x)), pa.string())
    elif vector.type is AttributeType.DOUBLE:
        text = _each(array, lambda x: java_text(np.float64(x)), pa.string())
    else:
        text = array.cast(pa.string())
    return Vector(AttributeType.STRING, text)


def _each(array: ArrowArray, function: Callable[[Any], Any], type: pa.DataType) -> ArrowArray:
    """``function`` of each distinct value; null stays null."""
    coded = array.dictionary_encode()
    results = pa.array([function(v) for v in coded.dictionary.to_pylist()], type)
    return results.take(coded.indices)


def _parse_integer(text: str) -> int | None:
    if not _INTEGER.match(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def _parse_int(text: str) -> int | None:
    value = _parse_integer(text)
    return value if value is not None and -(2**31) <= value < 2**31 else None


def parse_real(text: str) -> float | None:
    """Parse a double by Java's rules; None if the text is no number."""
    match = _DECIMAL.match(text.strip(_BLANK))
    if not match:
        return None
    sign, word, decimal, hexadecimal = match.groups()
    try:
        value = float.fromhex(hexadecimal) if hexadecimal else float(word or decimal)
    except OverflowError:
        value = float("inf")
    return -value if sign == "-" else value
