"""Scalar functions and aggregators of the reference engine (Siddhi 5.1.7).

Types don't mix: arguments that belong together have one type, and nothing is widened.
"""

from __future__ import annotations

from typing import Final

from mesh.functions.catalogue.model import Argument, NameKind, Objection, Reason
from mesh.functions.catalogue.notation import signatures
from mesh.model.types import AttributeType

_SCALARS: Final = """
UUID() -> string
cast(value any, type string constant =int|long|float|double|bool|string) -> named by type
coalesce(value any, value any same ..) -> value
convert(value any, type string constant =int|long|float|double|bool|string) -> named by type
createSet(value scalar) -> object
currentTimeMillis() -> long
default(attribute any, default any constant same) -> attribute
eventTimestamp() -> long
ifThenElse(condition bool, if.expression any, else.expression any same=1) -> if.expression
instanceOfBoolean(value any) -> bool
instanceOfDouble(value any) -> bool
instanceOfFloat(value any) -> bool
instanceOfInteger(value any) -> bool
instanceOfLong(value any) -> bool
instanceOfString(value any) -> bool
maximum(value number, value number same ..) -> value
minimum(value number, value number same ..) -> value
sizeOfSet(set object) -> int
"""

# The engine inserts them into its own plans of aggregations; apps can call them too.
_INTERNAL: Final = """
incrementalAggregator:getTimeZone() -> string
incrementalAggregator:getTimeZone(time string) -> string
incrementalAggregator:timestampInMilliseconds(time string) -> long
incrementalAggregator:getAggregationStartTime(time any, duration string) -> object
incrementalAggregator:startTimeEndTime(within string) -> object
incrementalAggregator:startTimeEndTime(time string|long, time string|long) -> object
incrementalAggregator:shouldUpdate(timestamp long) -> bool
"""

_AGGREGATORS: Final = """
and(condition bool) -> bool
avg(value number) -> double
count() -> long
count(value any) -> long
distinctCount(value number|string) -> long
max(value number) -> value
maxForever(value number) -> value
min(value number) -> value
minForever(value number) -> value
or(condition bool) -> bool
stdDev(value number) -> double
sum(value number) -> wide value
unionSet(set object) -> object
"""

_INCREMENTAL: Final = """
avg(attribute number attribute) -> double
count() -> long
count(attribute any attribute) -> long
distinctCount(attribute scalar attribute) -> long
max(attribute number attribute) -> attribute
min(attribute number attribute) -> attribute
sum(attribute number attribute) -> wide attribute
"""


def _object_becomes_a_string(arguments: tuple[Argument, ...]) -> Objection | None:
    value, target = arguments
    if value.type is AttributeType.OBJECT and str(target.value).lower() != "string":
        what = f"can't make '{target.value}' of an object"
        return Objection(Reason.VALUE, what, 1, "An object converts to 'string' only; see cast.")
    return None


def _only_a_bool_casts_to_bool(arguments: tuple[Argument, ...]) -> str | None:
    value, target = arguments
    # An object may hold such a value.
    may_be_bool = value.type in (AttributeType.BOOL, AttributeType.OBJECT)
    if not may_be_bool and str(target.value).lower() == "bool":
        return f"A value of type {value.type} can't be cast to bool; convert makes one of it."
    return None


def _time_is_long(arguments: tuple[Argument, ...]) -> str | None:
    kind = arguments[0].type
    if kind in (AttributeType.LONG, AttributeType.OBJECT):
        return None
    return f"The time is read as a long, not as {kind}."


#: Scalar functions by name.
SCALARS: Final = signatures(
    _SCALARS,
    NameKind.SCALAR,
    runs=True,
    rules={"convert": _object_becomes_a_string},
    restrictions={"cast": _only_a_bool_casts_to_bool},
) | signatures(
    _INTERNAL,
    NameKind.SCALAR,
    restrictions={"incrementalAggregator:getAggregationStartTime": _time_is_long},
)
#: Aggregators by name: valid in the select part of a query, also nested or in expressions.
AGGREGATORS: Final = signatures(_AGGREGATORS, NameKind.AGGREGATOR, runs=True)
#: The aggregators of ``define aggregation``, over a plain attribute; the rest of the select item is
#: an ordinary expression.
INCREMENTAL_AGGREGATORS: Final = signatures(_INCREMENTAL, NameKind.AGGREGATOR)
