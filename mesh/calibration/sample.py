"""Random events of an app's streams, with values that its text distinguishes.

Strings, and attributes by which the text groups or partitions, have ``keys`` values.  A number that
the text compares with constants lies between twice the least and twice the greatest of them and 0,
so that a condition is true for some events and false for others.  Other numbers lie between 0 and
100.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from mesh.errors import MeshError
from mesh.language.parser import parse_app
from mesh.language.syntax import (
    Binary,
    BinaryOperator,
    Literal,
    SelectClause,
    Unary,
    UnaryOperator,
    ValuePartition,
    Variable,
)
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mesh.model.types import StreamSchema

_COMPARES: Final = frozenset(
    {
        BinaryOperator.EQUAL,
        BinaryOperator.NOT_EQUAL,
        BinaryOperator.LESS,
        BinaryOperator.LESS_OR_EQUAL,
        BinaryOperator.GREATER,
        BinaryOperator.GREATER_OR_EQUAL,
    }
)
_USUAL_MAX: Final = 100.0
_WHOLE: Final = frozenset({AttributeType.INT, AttributeType.LONG})


@dataclass(frozen=True, slots=True)
class Hints:
    """Facts of a text that decide the values of random events."""

    #: Names by which events are grouped or partitioned.
    keys: frozenset[str]
    #: By attribute: the least and the greatest constant with which it is compared, and 0.
    compared: Mapping[str, tuple[float, float]]
    #: By attribute: the strings with which it is compared.
    texts: Mapping[str, tuple[str, ...]]
    #: The longest time that is named, seconds; 0 without one.
    longest_s: float


def hints_of(text: str) -> Hints:
    """The facts of an app's text, or of a group's."""
    keys: set[str] = set()
    compared: dict[str, tuple[float, float]] = {}
    texts: dict[str, list[str]] = {}
    longest_s = 0.0
    for node in nodes(parse_app(text)):
        match node:
            case SelectClause():
                keys |= {one.name for one in node.group_by}
            case ValuePartition(expression=Variable(name=name)):
                keys.add(name)
            case Literal(value=value, is_time=True):
                longest_s = max(longest_s, float(value) / 1000)
            case Binary(operator=operator) if operator in _COMPARES:
                for name, value in _constants(node):
                    if isinstance(value, str):
                        texts.setdefault(name, []).append(value)
                    else:
                        low, high = compared.get(name, (0.0, 0.0))
                        compared[name] = min(low, value), max(high, value)
            case _:
                pass
    return Hints(
        frozenset(keys), compared, {k: tuple(dict.fromkeys(v)) for k, v in texts.items()}, longest_s
    )


def nodes(tree: object) -> Iterator[Any]:
    """A syntax tree's nodes, the root first."""
    if isinstance(tree, tuple):
        for one in tree:
            yield from nodes(one)
    elif is_dataclass(tree):
        yield tree
        for one in fields(tree):
            yield from nodes(getattr(tree, one.name))


def _constants(node: Binary) -> Iterator[tuple[str, str | float]]:
    """The attribute and the constant of a comparison of these."""
    for one, other in ((node.left, node.right), (node.right, node.left)):
        sign = 1.0
        if isinstance(other, Unary) and other.operator is UnaryOperator.NEGATE:
            sign, other = -1.0, other.operand
        if isinstance(one, Variable) and isinstance(other, Literal):
            value = other.value
            yield one.name, value if isinstance(value, str) else sign * float(value)


class Sampler:
    """Draws the events of one stream.

    Args:
        schema: of the stream.
        hints: facts of the app's text.
        keys: number of values of a key.
        samples: events as JSON objects; rows are drawn from them if there are any.
        seed: of the random numbers.

    Raises:
        MeshError: MESH-U161 for a given event that does not fit the stream.
    """

    def __init__(
        self,
        schema: StreamSchema,
        hints: Hints,
        keys: int,
        samples: Sequence[str] = (),
        seed: int = 1,
    ) -> None:
        self._schema, self._hints, self._keys = schema, hints, max(1, keys)
        self._random = np.random.default_rng(seed)
        self._samples = _rows(schema, samples) if samples else None

    def rows(self, count: int) -> pa.RecordBatch:
        """The next ``count`` events."""
        if self._samples is not None:
            chosen: Any = pa.array(self._random.integers(0, self._samples.num_rows, count))
            return self._samples.take(chosen)
        columns = [self._column(a.name, a.type, count) for a in self._schema.attributes]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema.arrow)

    def _column(self, name: str, kind: AttributeType, count: int) -> Any:
        column_type = self._schema.arrow.field(name).type
        if kind is AttributeType.BOOL:
            return pa.array(self._random.integers(0, 2, count) == 1)
        if kind is AttributeType.STRING and name in self._hints.texts:
            # One more, which equals none of them.
            values = (*self._hints.texts[name], "other")
            return pa.array(values, column_type).take(self._drawn(len(values), count))
        if kind is AttributeType.STRING:
            numbers = self._random.integers(0, self._keys, count).astype(str)
            return pa.array(np.char.add("k", numbers), column_type)
        if kind is AttributeType.OBJECT:
            return pa.nulls(count, column_type)
        if name in self._hints.keys:
            return pa.array(self._random.integers(0, self._keys, count)).cast(column_type)
        low, high = self._hints.compared.get(name, (0.0, 0.0))
        low, high = (2 * low, 2 * high) if low < high else (0.0, _USUAL_MAX)
        if kind in _WHOLE:
            drawn = self._random.integers(round(low), round(high) + 1, count)
            return pa.array(drawn).cast(column_type)
        return pa.array(self._random.uniform(low, high, count)).cast(column_type)

    def _drawn(self, of: int, count: int) -> object:
        return pa.array(self._random.integers(0, of, count))


def _rows(schema: StreamSchema, samples: Sequence[str]) -> pa.RecordBatch:
    values = [orjson.loads(one) for one in samples]
    try:
        return pa.RecordBatch.from_pylist(values, schema.arrow)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise MeshError(
            "MESH-U161",
            f'an event does not fit stream "{schema.name}"',
            detail=f"{error}.",
        ) from error
