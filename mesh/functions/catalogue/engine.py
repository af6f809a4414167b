"""Scalar functions and aggregators of the reference engine (Siddhi 5.1.7).

Types don't mix: arguments that belong together have one type, and nothing is widened.
"""

from __future__ import annotations

from typing import Final

from mesh.functions.catalogue.model import (
    ANY,
    ATTRIBUTE,
    BOOL,
    CONSTANT,
    LONG,
    NUMBER,
    OBJECT,
    STRING,
    Argument,
    Kind,
    Objection,
    Overload,
    Parameter,
    Reason,
    Signature,
    TypeNamedBy,
    TypeOf,
)
from mesh.functions.catalogue.running import RUNNING
from mesh.model.types import AttributeType

_TYPE_NAMES: Final = ("int", "long", "float", "double", "bool", "string")
_SUM: Final = TypeOf(
    0,
    {
        AttributeType.INT: AttributeType.LONG,
        AttributeType.LONG: AttributeType.LONG,
        AttributeType.FLOAT: AttributeType.DOUBLE,
        AttributeType.DOUBLE: AttributeType.DOUBLE,
    },
)
_NUMBER: Final = (Parameter("value", NUMBER),)
_CONDITION: Final = (Parameter("condition", BOOL),)
_SET: Final = (Parameter("set", OBJECT),)


def _scalar(name: str, *overloads: Overload) -> Signature:
    return Signature(name, Kind.SCALAR, overloads, runs=name in RUNNING)


def _aggregator(name: str, *overloads: Overload) -> Signature:
    return Signature(name, Kind.AGGREGATOR, overloads, runs=name in RUNNING)


def _one_of_a_kind(name: str, types: frozenset[AttributeType]) -> Signature:
    """A signature with one argument or more, all of one type, which is the result's."""
    more = Parameter("value", types, same_as=0)
    return _scalar(name, Overload((Parameter("value", types),), TypeOf(0), more))


def _object_becomes_a_string(arguments: tuple[Argument, ...]) -> Objection | None:
    value, wanted = arguments
    if value.type is AttributeType.OBJECT and str(wanted.value).lower() != "string":
        what = f"can't make '{wanted.value}' of an object"
        return Objection(Reason.VALUE, what, 1, "An object converts to 'string' only; see cast.")
    return None


def _only_a_bool_casts_to_bool(arguments: tuple[Argument, ...]) -> str | None:
    value, wanted = arguments
    # An object may hold such a value.
    may_be_bool = value.type in (AttributeType.BOOL, AttributeType.OBJECT)
    if not may_be_bool and str(wanted.value).lower() == "bool":
        return f"A value of type {value.type} can't be cast to bool; convert makes one of it."
    return None


def _time_is_long(arguments: tuple[Argument, ...]) -> str | None:
    kind = arguments[0].type
    if kind in (AttributeType.LONG, AttributeType.OBJECT):
        return None
    return f"The time is read as a long, not as {kind}."


_TYPE_NAME: Final = Parameter("type", STRING, CONSTANT, choices=_TYPE_NAMES)

_SCALARS: Final = (
    _scalar("UUID", Overload((), AttributeType.STRING)),
    _scalar(
        "cast",
        Overload(
            (Parameter("value", ANY), _TYPE_NAME), TypeNamedBy(1), doom=_only_a_bool_casts_to_bool
        ),
    ),
    _one_of_a_kind("coalesce", ANY),
    _scalar(
        "convert",
        Overload(
            (Parameter("value", ANY), _TYPE_NAME), TypeNamedBy(1), rule=_object_becomes_a_string
        ),
    ),
    _scalar("createSet", Overload((Parameter("value", ANY - OBJECT),), AttributeType.OBJECT)),
    _scalar("currentTimeMillis", Overload((), AttributeType.LONG)),
    _scalar(
        "default",
        Overload(
            (Parameter("attribute", ANY), Parameter("default", ANY, CONSTANT, same_as=0)), TypeOf(0)
        ),
    ),
    _scalar("eventTimestamp", Overload((), AttributeType.LONG)),
    _scalar(
        "ifThenElse",
        Overload(
            (
                Parameter("condition", BOOL),
                Parameter("if.expression", ANY),
                Parameter("else.expression", ANY, same_as=1),
            ),
            TypeOf(1),
        ),
    ),
    *(
        _scalar(f"instanceOf{name}", Overload((Parameter("value", ANY),), AttributeType.BOOL))
        for name in ("Boolean", "Double", "Float", "Integer", "Long", "String")
    ),
    _one_of_a_kind("maximum", NUMBER),
    _one_of_a_kind("minimum", NUMBER),
    _scalar("sizeOfSet", Overload(_SET, AttributeType.INT)),
)

_AGGREGATORS: Final = (
    _aggregator("and", Overload(_CONDITION, AttributeType.BOOL)),
    _aggregator("avg", Overload(_NUMBER, AttributeType.DOUBLE)),
    _aggregator(
        "count",
        Overload((), AttributeType.LONG),
        Overload((Parameter("value", ANY),), AttributeType.LONG),
    ),
    _aggregator(
        "distinctCount", Overload((Parameter("value", NUMBER | STRING),), AttributeType.LONG)
    ),
    _aggregator("max", Overload(_NUMBER, TypeOf(0))),
    _aggregator("maxForever", Overload(_NUMBER, TypeOf(0))),
    _aggregator("min", Overload(_NUMBER, TypeOf(0))),
    _aggregator("minForever", Overload(_NUMBER, TypeOf(0))),
    _aggregator("or", Overload(_CONDITION, AttributeType.BOOL)),
    _aggregator("stdDev", Overload(_NUMBER, AttributeType.DOUBLE)),
    _aggregator("sum", Overload(_NUMBER, _SUM)),
    _aggregator("unionSet", Overload(_SET, AttributeType.OBJECT)),
)

#: Functions that the engine inserts into its own plans of aggregations; apps can call them too.
_TIME: Final = Parameter("time", STRING | LONG)
_INTERNAL: Final = (
    _scalar(
        "incrementalAggregator:getTimeZone",
        Overload((), AttributeType.STRING),
        Overload((Parameter("time", STRING),), AttributeType.STRING),
    ),
    _scalar(
        "incrementalAggregator:timestampInMilliseconds",
        Overload((Parameter("time", STRING),), AttributeType.LONG),
    ),
    _scalar(
        "incrementalAggregator:getAggregationStartTime",
        Overload(
            (Parameter("time", ANY), Parameter("duration", STRING)),
            AttributeType.OBJECT,
            doom=_time_is_long,
        ),
    ),
    _scalar(
        "incrementalAggregator:startTimeEndTime",
        Overload((Parameter("within", STRING),), AttributeType.OBJECT),
        Overload((_TIME, _TIME), AttributeType.OBJECT),
    ),
    _scalar(
        "incrementalAggregator:shouldUpdate",
        Overload((Parameter("timestamp", LONG),), AttributeType.BOOL),
    ),
)

#: Scalar functions by name.
SCALARS: Final = {signature.name: signature for signature in (*_SCALARS, *_INTERNAL)}
#: Aggregators by name: valid in the select part of a query, also nested or in expressions.
AGGREGATORS: Final = {signature.name: signature for signature in _AGGREGATORS}


def _incremental(name: str, *overloads: Overload) -> Signature:
    return Signature(name, Kind.AGGREGATOR, overloads)


_ATTRIBUTE_OF_NUMBERS: Final = (Parameter("attribute", NUMBER, ATTRIBUTE),)

#: The aggregators of ``define aggregation``, over a plain attribute; the rest of the select item is
#: an ordinary expression.
INCREMENTAL_AGGREGATORS: Final = {
    signature.name: signature
    for signature in (
        _incremental("avg", Overload(_ATTRIBUTE_OF_NUMBERS, AttributeType.DOUBLE)),
        _incremental(
            "count",
            Overload((), AttributeType.LONG),
            Overload((Parameter("attribute", ANY, ATTRIBUTE),), AttributeType.LONG),
        ),
        _incremental(
            "distinctCount",
            Overload((Parameter("attribute", ANY - OBJECT, ATTRIBUTE),), AttributeType.LONG),
        ),
        _incremental("max", Overload(_ATTRIBUTE_OF_NUMBERS, TypeOf(0))),
        _incremental("min", Overload(_ATTRIBUTE_OF_NUMBERS, TypeOf(0))),
        _incremental("sum", Overload(_ATTRIBUTE_OF_NUMBERS, _SUM)),
    )
}
