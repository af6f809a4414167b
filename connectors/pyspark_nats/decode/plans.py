"""Facts about a schema for decoding, computed once: a run of few messages takes no longer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pyspark_nats.decode.limits import row_bytes

if TYPE_CHECKING:
    from pyspark_nats.arrow import DataType

_PLANS_MAX: Final = 1024


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


def of(schema: pa.Schema) -> Plan:
    """The plan of a schema."""
    # By identity: to hash a schema takes as long as to decode a message.  The entry keeps the
    # schema alive, so no other one has its identity.
    found = _plans.get(id(schema))
    if found is None:
        if len(_plans) >= _PLANS_MAX:
            _plans.clear()
        plain = pa.schema([pa.field(field.name, field.type) for field in schema])
        fields = tuple(plain)
        is_exact = any(_holds_decimal(field.type) for field in fields)
        plan = Plan(plain, fields, row_bytes(plain), is_exact)
        _plans[id(schema)] = schema, plan
        _plans[id(plain)] = plain, plan
        return plan
    return found[1]


def _holds_decimal(kind: DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_decimal(kind.field(n).type) for n in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind))


_plans: dict[int, tuple[pa.Schema, Plan]] = {}
