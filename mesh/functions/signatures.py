"""What functions exist and what they take, as data.

The planner types calls by this table; ``mesh.functions`` and ``mesh.spark`` hold what computes
them.  A function is listed once both can.  Types are the reference engine's: it mixes no types in
one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mesh.model.types import NUMERIC, AttributeType

_ANY: Final = frozenset(AttributeType) - {AttributeType.OBJECT}
_NUMERIC: Final = frozenset(NUMERIC)
_BOOL: Final = frozenset({AttributeType.BOOL})


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: the types it takes."""

    name: str
    types: frozenset[AttributeType]
    #: Must have the type of the parameter with this index; None when it is free.
    same_as: int | None = None
    #: Must be a constant.
    is_constant: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's or an aggregator's parameters and result."""

    #: As it is written in SiddhiQL, namespace included; names are case-sensitive.
    name: str
    parameters: tuple[Parameter, ...]
    #: One type; or the index of a parameter, and a type for each type that it takes.
    result: AttributeType | tuple[int, dict[AttributeType, AttributeType]]
    #: How many parameters must be given; the rest may be left out.
    required: int
    #: The last parameter may be given again and again.
    repeats: bool = False
    is_aggregator: bool = False

    @property
    def bound_name(self) -> str:
        """What ``mesh.plan.bound`` calls it: lower case."""
        return self.name.lower()


def _same(types: frozenset[AttributeType]) -> dict[AttributeType, AttributeType]:
    return {kind: kind for kind in types}


_NUMBER: Final = Parameter("value", _NUMERIC)
_SUMS: Final = {
    AttributeType.INT: AttributeType.LONG,
    AttributeType.LONG: AttributeType.LONG,
    AttributeType.FLOAT: AttributeType.DOUBLE,
    AttributeType.DOUBLE: AttributeType.DOUBLE,
}

_AGGREGATORS: Final = (
    Signature("avg", (_NUMBER,), AttributeType.DOUBLE, required=1, is_aggregator=True),
    Signature("sum", (_NUMBER,), (0, _SUMS), required=1, is_aggregator=True),
    Signature(
        "count", (Parameter("value", _ANY),), AttributeType.LONG, required=0, is_aggregator=True
    ),
    Signature("min", (_NUMBER,), (0, _same(_NUMERIC)), required=1, is_aggregator=True),
    Signature("max", (_NUMBER,), (0, _same(_NUMERIC)), required=1, is_aggregator=True),
    Signature("stdDev", (_NUMBER,), AttributeType.DOUBLE, required=1, is_aggregator=True),
)

_MORE_NUMBERS: Final = Parameter("value", _NUMERIC, same_as=0)

_SCALARS: Final = (
    Signature(
        "coalesce",
        (Parameter("value", _ANY), Parameter("value", _ANY, same_as=0)),
        (0, _same(_ANY)),
        required=1,
        repeats=True,
    ),
    Signature(
        "default",
        (
            Parameter("attribute", _ANY),
            Parameter("default", _ANY, same_as=0, is_constant=True),
        ),
        (0, _same(_ANY)),
        required=2,
    ),
    Signature(
        "ifThenElse",
        (
            Parameter("condition", _BOOL),
            Parameter("if.expression", _ANY),
            Parameter("else.expression", _ANY, same_as=1),
        ),
        (1, _same(_ANY)),
        required=3,
    ),
    Signature("maximum", (_NUMBER, _MORE_NUMBERS), (0, _same(_NUMERIC)), required=1, repeats=True),
    Signature("minimum", (_NUMBER, _MORE_NUMBERS), (0, _same(_NUMERIC)), required=1, repeats=True),
)

SIGNATURES: Final = {signature.name: signature for signature in (*_AGGREGATORS, *_SCALARS)}

#: What the reference engine has and this version has not.
KNOWN_ELSEWHERE: Final = frozenset(
    {
        "UUID",
        "and",
        "cast",
        "convert",
        "createSet",
        "currentTimeMillis",
        "distinctCount",
        "eventTimestamp",
        "instanceOfBoolean",
        "instanceOfDouble",
        "instanceOfFloat",
        "instanceOfInteger",
        "instanceOfLong",
        "instanceOfString",
        "maxForever",
        "minForever",
        "or",
        "sizeOfSet",
        "unionSet",
    }
)
#: Namespaces of functions that people use with the reference engine.
NAMESPACES_ELSEWHERE: Final = frozenset(
    {"str", "math", "time", "regex", "json", "map", "list", "unique", "reorder"}
)
