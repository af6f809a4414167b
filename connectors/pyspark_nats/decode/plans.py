"""Facts about a schema for decoding, computed once: a run of few messages takes no longer.

Lists of values of few events, by the rules of ``decode.values``, where those are simple.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.decode.result import row_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark_nats.arrow import DataType

    #: From a value other than null to the one of the column; None if the rules have to decide.
    Reader = Callable[[Any], Any]


_PLANS_MAX: Final = 4096

#: Whole numbers up to here are floating-point numbers, by the width of those.
_WHOLE_MAX: Final = {32: 1 << 24, 64: 1 << 53}


@dataclass(frozen=True, slots=True)
class Plan:
    """Of one schema."""

    #: Its fields, each of which may be null, without metadata.
    schema: pa.Schema
    fields: tuple[pa.Field[Any], ...]
    #: See ``limits.row_bytes``.
    row_bytes: int
    #: Whether numbers have to keep all their digits.
    holds_decimals: bool
    #: See ``few_values.readers_of``.
    readers: tuple[tuple[str, Reader], ...] | None


def of(schema: pa.Schema) -> Plan:
    """The plan of a schema."""
    # By identity: to hash a schema takes as long as to decode a message.  The entry keeps the
    # schema alive, so no other one has its identity.
    entry = _plans.get(id(schema))
    if entry is None:
        if len(_plans) >= _PLANS_MAX:
            _plans.clear()
            _equal.clear()
        plain = pa.schema([pa.field(field.name, field.type) for field in schema])
        plan = _equal.get(plain)
        if plan is None:
            fields = tuple(plain)
            is_exact = any(_holds_decimal(field.type) for field in fields)
            plan = Plan(plain, fields, row_bytes(plain), is_exact, readers_of(fields))
            _plans[id(plain)], _equal[plain] = (plain, plan), plan
        _plans[id(schema)] = schema, plan
        return plan
    return entry[1]


def _holds_decimal(kind: DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_decimal(kind.field(n).type) for n in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind))


_plans: dict[int, tuple[pa.Schema, Plan]] = {}
#: By schemas without metadata: apps of one query have equal ones, and share what depends on them.
_equal: dict[pa.Schema, Plan] = {}


def lists_of(
    events: Sequence[dict[str, object]], readers: Iterable[tuple[str, Reader]]
) -> dict[str, list[object]] | None:
    """By attribute the value of each event; None if one has to be read by the rules.

    Args:
        events: JSON objects.
        readers: of ``readers_of``.
    """
    lists = {}
    for name, read in readers:
        values = []
        for event in events:
            value = event.get(name)
            if value is None:
                # A missing attribute is no null.
                if name not in event:
                    return None
            else:
                value = read(value)
                if value is None:
                    return None
            values.append(value)
        lists[name] = values
    return lists


def readers_of(fields: Iterable[Any]) -> tuple[tuple[str, Reader], ...] | None:
    """The name and the reader of each attribute; None if a type has none, or there are none."""
    pairs = [(field.name, _reader_of(field.type)) for field in fields]
    readers = tuple((name, read) for name, read in pairs if read is not None)
    return readers if pairs and len(readers) == len(pairs) else None


def _reader_of(kind: DataType) -> Reader | None:
    if pa.types.is_string(kind):
        return lambda value: value if type(value) is str else None
    if pa.types.is_boolean(kind):
        return lambda value: value if type(value) is bool else None
    if pa.types.is_integer(kind):
        bounds = np.iinfo(str(kind))
        low, high = int(bounds.min), int(bounds.max)
        return lambda value: value if type(value) is int and low <= value <= high else None
    if pa.types.is_float64(kind):
        return _double
    return _single if pa.types.is_float32(kind) else None


def _double(value: Any) -> float | None:
    if type(value) is float:
        return value
    is_exact = type(value) is int and abs(value) <= _WHOLE_MAX[64]
    return float(value) if is_exact else None


def _single(value: object) -> float | None:
    if type(value) is not float and not (type(value) is int and abs(value) <= _WHOLE_MAX[32]):
        return None
    with np.errstate(over="ignore"):
        nearest = float(np.float32(value))
    return nearest if np.isfinite(nearest) else None
