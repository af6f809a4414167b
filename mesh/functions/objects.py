"""Values of type ``object``: representation in Python, Arrow and text, and equality.

| in the reference engine (Java) | here |
| --- | --- |
| Integer, Long, Float, Double | ``np.int32``, ``int``, ``np.float32``, ``float`` |
| String, Boolean, null | ``str``, ``bool``, ``None`` |
| List, Map | ``list``, ``dict`` |
| Set | ``ValueSet`` |
| anything else, an exception for one | ``Opaque``: its class and its text |

They are immutable: functions return new values.  In Arrow a column of them is binary, each packed
with MessagePack; extension types preserve distinctions that MessagePack lacks.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import numpy as np
import orjson
import pyarrow as pa

from mesh.functions.exact_json import JsonReal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from pyspark_nats.arrow import ArrowArray

    Objects = npt.NDArray[np.object_]


#: Java's Integer and Float; the stubs would have parameters for them.
INTEGER: Final[type[Any]] = np.int32
FLOAT: Final[type[Any]] = np.float32

_INTEGER: Final = 1
_FLOAT: Final = 2
_SET: Final = 3
_OPAQUE: Final = 4
_BIG: Final = 5
_REAL: Final = 6
#: Levels of nested lists and maps; what writes JSON accepts 254.
_LEVELS_MAX: Final = 100

#: Rows that are Python objects at one time: with all of them the garbage collector looks at
#: everything that the process has, again and again.
_ROWS: Final = 500


def identity(value: object) -> Any:
    """A hashable key that is equal for two values if Java's ``equals`` says they are.

    An Integer and a Long are never equal; NaN is equal to itself, and 0.0 is not to -0.0.
    """
    if isinstance(value, bool | INTEGER):
        return (type(value), bool(value) if isinstance(value, bool) else int(value))
    if isinstance(value, float | FLOAT):
        number = float(value)
        shown = "NaN" if math.isnan(number) else (number, math.copysign(1.0, number))
        return (FLOAT if isinstance(value, FLOAT) else float, shown)
    match value:
        case None | str():
            return value
        case int():
            return (int, value)
        case list():
            return (list, tuple(identity(one) for one in value))
        case dict():
            return (dict, frozenset((identity(k), identity(v)) for k, v in value.items()))
        case ValueSet():
            return (ValueSet, frozenset(value.identities()))
        case _:
            return (type(value), str(value))


class ValueSet:
    """A set of values with Java's equality, in insertion order."""

    __slots__ = ("_members",)

    def __init__(self, values: Iterable[object] = ()) -> None:
        self._members: dict[object, object] = {identity(value): value for value in values}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[object]:
        return iter(self._members.values())

    def __contains__(self, value: object) -> bool:
        return identity(value) in self._members

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueSet) and self._members.keys() == other._members.keys()

    def __hash__(self) -> int:
        return hash(frozenset(self._members))

    def __repr__(self) -> str:
        return f"ValueSet({list(self)!r})"

    def identities(self) -> Iterable[object]:
        """The members' keys by ``identity``."""
        return self._members.keys()


@dataclass(frozen=True, slots=True)
class Opaque:
    """An object of which only the class and the text are known."""

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text


def java_class(value: object) -> str:
    """The name of the Java class of ``value`` in the reference engine."""
    if isinstance(value, INTEGER):
        return "java.lang.Integer"
    if isinstance(value, FLOAT):
        return "java.lang.Float"
    match value:
        case bool():
            return "java.lang.Boolean"
        case str():
            return "java.lang.String"
        case int():
            return "java.lang.Long"
        case float():
            return "java.lang.Double"
        case list():
            return "java.util.ArrayList"
        case dict():
            return "java.util.HashMap"
        case ValueSet():
            return "java.util.HashSet"
        case Opaque():
            return value.kind
        case _:
            return type(value).__name__


def object_text(value: object) -> str:
    """``value`` as Java's ``String.valueOf`` formats it."""
    if isinstance(value, JsonReal):
        return value.text
    if isinstance(value, float | FLOAT):
        return java_text(value)
    match value:
        case None:
            return "null"
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case list() | ValueSet():
            return f"[{', '.join(object_text(one) for one in value)}]"
        case dict():
            inside = (f"{object_text(k)}={object_text(v)}" for k, v in value.items())
            return f"{{{', '.join(inside)}}}"
        case _:
            return str(value)


def python_value(value: object) -> object:
    """``value`` in the types of JSON and of Python code: plain numbers, sets as lists."""
    match value:
        case np.generic():
            return value.item()
        case list() | ValueSet():
            return [python_value(one) for one in value]
        case dict():
            return {
                k if isinstance(k, str) else object_text(k): python_value(v)
                for k, v in value.items()
            }
        case Opaque():
            return value.text
        case _:
            return value


def from_python(value: object) -> object:
    """Convert a value of Python code or JSON to an object: whole numbers that fit are Integers."""
    if value is None or isinstance(value, bool | str | float | ValueSet | Opaque | INTEGER | FLOAT):
        return value
    match value:
        case int():
            return INTEGER(value) if -(2**31) <= value < 2**31 else value
        case np.generic():
            return from_python(value.item())
        case list() | tuple():
            return [from_python(one) for one in value]
        case set() | frozenset():
            return ValueSet(from_python(one) for one in value)
        case dict():
            return {from_python(k): from_python(v) for k, v in value.items()}
        case _:
            return Opaque(type(value).__name__, str(value))


def pack(value: object) -> bytes:
    """One object as bytes; see ``unpack``."""
    packed: bytes = msgpack.packb(value, default=_extension, strict_types=True)
    return packed


def unpack(data: bytes) -> Any:
    """The object that ``pack`` encoded as ``data``."""
    return msgpack.unpackb(data, ext_hook=_from_extension, strict_map_key=False)


def _extension(value: object) -> object:
    if isinstance(value, INTEGER):
        return msgpack.ExtType(_INTEGER, struct.pack("<i", value))
    if isinstance(value, FLOAT):
        return msgpack.ExtType(_FLOAT, struct.pack("<f", value))
    match value:
        case JsonReal():
            return msgpack.ExtType(_REAL, value.text.encode())
        case np.generic():
            return value.item()
        case ValueSet():
            return msgpack.ExtType(_SET, pack(list(value)))
        case Opaque():
            return msgpack.ExtType(_OPAQUE, pack([value.kind, value.text]))
        case int():
            # Integers beyond 64 bits, which JSON may have.
            return msgpack.ExtType(_BIG, str(value).encode())
        case tuple():
            return list(value)
        case _:
            return _extension(Opaque(type(value).__name__, str(value)))


def _from_extension(code: int, data: bytes) -> object:
    match code:
        case 1:
            return np.int32(struct.unpack("<i", data)[0])
        case 2:
            return np.float32(struct.unpack("<f", data)[0])
        case 3:
            return ValueSet(unpack(data))
        case 4:
            kind, text = unpack(data)
            return Opaque(str(kind), str(text))
        case 5:
            return int(data)
        case 6:
            return JsonReal(data.decode())
        case _:
            return msgpack.ExtType(code, data)


def object_array(values: Iterable[object]) -> Objects:
    """Values as a NumPy array of objects; lists stay single values."""
    items = list(values)
    array = np.empty(len(items), dtype=np.object_)
    for index, item in enumerate(items):
        array[index] = item
    return array


def to_binary(values: Iterable[object]) -> ArrowArray:
    """Objects as an Arrow array; a null object is null."""
    return pa.array([None if v is None else pack(v) for v in values], pa.binary())


def from_binary(array: ArrowArray) -> Objects:
    """The objects of an Arrow array from ``to_binary``, or from any publisher of an event."""
    return object_array(None if data is None else _any_value(data) for data in array.to_pylist())


def _any_value(data: bytes) -> object:
    """The object in ``data``; an opaque one if it holds none, or one nested too deeply."""
    try:
        value = unpack(data)
        if _is_within(value, _LEVELS_MAX):
            return value
    except MemoryError:
        raise
    # A publisher may write any octets.
    except Exception:
        pass
    return Opaque("byte[]", f"{len(data)} bytes that are no object")


def _is_within(value: Any, levels: int) -> bool:
    """Whether lists, maps and sets are nested at most ``levels`` deep."""
    match value:
        case dict():
            inside: Iterable[Any] = [*value.keys(), *value.values()]
        case list() | tuple() | ValueSet():
            inside = value
        case _:
            return True
    return levels > 0 and all(_is_within(one, levels - 1) for one in inside)


def java_text(value: np.floating[Any] | float) -> str:
    """A number as Java formats it: plain from 0.001 to below ten million, else ``1.5E-7``.

    The digits are the fewest that parse to the same number; Java before 19 sometimes has more.
    """
    number = float(value)
    size = abs(number)
    if size == 0 or 1e-3 <= size < 1e7:
        # For a float the digits of the float count, not those of its double representation.
        return str(value) if isinstance(value, np.float32) else repr(number)
    if number != number:
        return "NaN"
    if size == math.inf:
        return "Infinity" if number > 0 else "-Infinity"
    mantissa, exponent = np.format_float_scientific(value, unique=True, trim="0").split("e")
    if mantissa.endswith(".0"):
        # At least two digits are shown, and then the nearest two: 4.9E-324.
        mantissa, exponent = f"{number:.1e}".split("e")
    return f"{mantissa}E{int(exponent)}"


def json_rows(batches: Iterable[pa.RecordBatch]) -> bytes:
    """A JSON list with a list of the values of each row."""
    parts = []
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS):
            columns = [_values(column) for column in batch.slice(start, _ROWS).columns]
            parts.append(orjson.dumps(list(zip(*columns, strict=True)), default=str)[1:-1])
    return b"[%b]" % b",".join(parts)


def _values(column: ArrowArray) -> list[object]:
    """A column as JSON values; a float with the digits that it needs."""
    if pa.types.is_binary(column.type):
        return [python_value(value) for value in from_binary(column)]
    values: list[Any]
    if column.null_count == 0 and (pa.types.is_integer(column.type) or column.type == pa.float64()):
        # Several times as fast.
        values = column.to_numpy().tolist()
        return values
    values = column.to_pylist()
    if pa.types.is_float32(column.type):
        return [None if value is None else float(str(np.float32(value))) for value in values]
    return values
