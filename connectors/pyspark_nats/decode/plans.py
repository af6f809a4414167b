"""Facts about a schema for decoding, computed once: a run of few messages takes no longer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pyspark_nats.decode.few_values import readers_of
from pyspark_nats.decode.limits import row_bytes

if TYPE_CHECKING:
    from pyspark_nats.arrow import DataType
    from pyspark_nats.decode.few_values import Reader

_PLANS_MAX: Final = 4096


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
