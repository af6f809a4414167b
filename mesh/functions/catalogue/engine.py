"""Scalar functions and aggregators of the reference engine (Siddhi 5.1.7).

Types don't mix: arguments that belong together have one type, and nothing is widened.

Stream functions of the reference engine (Siddhi 5.1.7): ``S#name(..)``.
"""

from __future__ import annotations

from typing import Final

from mesh.functions.catalogue.model import Argument, NameKind, Objection, Reason
from mesh.functions.catalogue.notation import signatures
from mesh.model.types import AttributeType

_SCALARS: Final = """
# A random identifier, another one for each event.
UUID() -> string
# The value as the named type; an error for a value of another type.
cast(value any, type string constant =int|long|float|double|bool|string) -> named by type
# The first value that is not null.
coalesce(value any, value any same ..) -> value
# The value converted to the named type; null where that is not possible.
convert(value any, type string constant =int|long|float|double|bool|string) -> named by type
# A set with the value.
createSet(value scalar) -> object
# The time of the app's clock, in milliseconds.
currentTimeMillis() -> long
# The attribute, or the constant where it is null.
default(attribute any, default any constant same) -> attribute
# The time of the event, in milliseconds.
eventTimestamp() -> long
# The second argument where the condition holds, otherwise the third.
ifThenElse(condition bool, if.expression any, else.expression any same=1) -> if.expression
# Whether the value is a bool.
instanceOfBoolean(value any) -> bool
# Whether the value is a double.
instanceOfDouble(value any) -> bool
# Whether the value is a float.
instanceOfFloat(value any) -> bool
# Whether the value is an int.
instanceOfInteger(value any) -> bool
# Whether the value is a long.
instanceOfLong(value any) -> bool
# Whether the value is a string.
instanceOfString(value any) -> bool
# The greatest of the arguments.
maximum(value number, value number same ..) -> value
# The least of the arguments.
minimum(value number, value number same ..) -> value
# The number of values in a set.
sizeOfSet(set object) -> int
"""

# The engine inserts them into its own plans of aggregations; apps can call them too.
_INTERNAL: Final = """
# Internal to aggregations: the time zone of a time.
incrementalAggregator:getTimeZone() -> string
incrementalAggregator:getTimeZone(time string) -> string
# Internal to aggregations: the milliseconds of a time.
incrementalAggregator:timestampInMilliseconds(time string) -> long
# Internal to aggregations: the start of a bucket.
incrementalAggregator:getAggregationStartTime(time any, duration string) -> object
# Internal to aggregations: the bounds of 'within'.
incrementalAggregator:startTimeEndTime(within string) -> object
incrementalAggregator:startTimeEndTime(time string|long, time string|long) -> object
# Internal to aggregations: whether a time is the latest.
incrementalAggregator:shouldUpdate(timestamp long) -> bool
"""

_AGGREGATORS: Final = """
# Whether the condition holds for every event.
and(condition bool) -> bool
# The mean of the values.
avg(value number) -> double
# The number of events.
count() -> long
count(value any) -> long
# The number of different values.
distinctCount(value number|string) -> long
# The greatest value; of a window, among the events in it.
max(value number) -> value
# The greatest value so far, also of events that have left the window.
maxForever(value number) -> value
# The least value; of a window, among the events in it.
min(value number) -> value
# The least value so far, also of events that have left the window.
minForever(value number) -> value
# Whether the condition holds for an event.
or(condition bool) -> bool
# The standard deviation of the values.
stdDev(value number) -> double
# The sum of the values.
sum(value number) -> wide value
# The union of the sets.
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

_PROCESSORS: Final = """
# Write each event to the log of the instance.
log()
log(log.message string)
log(is.event.logged bool constant)
log(log.message string, is.event.logged bool constant)
log(priority string constant =info|debug|warn|fatal|error|off|trace, log.message string)
log(priority string constant =info|debug|warn|fatal|error|off|trace, log.message string,
    is.event.logged bool constant)
"""
_FUNCTIONS: Final = """
# Add the Cartesian coordinates of polar ones.
pol2Cart(theta double, rho double) -> x double, y double
pol2Cart(theta double, rho double, z double) -> x double, y double, z double
"""

#: Stream functions by name.  Those of kind STREAM_PROCESSOR are invalid in patterns and sequences;
#: the attributes that one adds must have new names.
STREAM_FUNCTIONS: Final = signatures(
    _PROCESSORS, NameKind.STREAM_PROCESSOR, runs=True
) | signatures(_FUNCTIONS, NameKind.STREAM_FUNCTION, runs=True)


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
