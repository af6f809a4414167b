"""Windows of the reference engine (Siddhi 5.1.7).

Sizes and times are constants; keys, timestamps and sort keys are attributes.  The engine accepts
nearly every value: a length of -1 is valid.
"""

from __future__ import annotations

from typing import Final

from mesh.functions.catalogue.model import (
    ATTRIBUTE,
    BOOL,
    CONSTANT,
    DOUBLE,
    INT,
    LONG,
    NUMBER,
    STRING,
    WHOLE,
    Argument,
    Form,
    Kind,
    Objection,
    Overload,
    Parameter,
    Reason,
    Requirement,
    Signature,
    ordinal,
)
from mesh.model.types import AttributeType

_ORDERS: Final = ("asc", "desc")


def _window(name: str, *forms: tuple[Parameter, ...] | Overload) -> Signature:
    """A window that this version executes; a test checks ``mesh.operators.windows.registry``."""
    overloads = tuple(form if isinstance(form, Overload) else Overload(form) for form in forms)
    return Signature(name, Kind.WINDOW, overloads, runs=True)


def _not_negative(arguments: tuple[Argument, ...]) -> Objection | None:
    value = arguments[0].value
    if isinstance(value, int) and value < 0:
        return Objection(Reason.VALUE, "can't have fewer events than none", 0)
    return None


def _int_start_is_constant(arguments: tuple[Argument, ...]) -> Objection | None:
    start = arguments[2]
    if start.type is AttributeType.INT and start.form is not Form.CONSTANT:
        what = "takes a constant or a long as its third argument"
        return Objection(Reason.FORM, what, 2)
    return None


def _latency_within_gap(arguments: tuple[Argument, ...]) -> Objection | None:
    gap, latency = arguments[0].value, arguments[2].value
    if isinstance(gap, int) and isinstance(latency, int) and latency > gap:
        return Objection(Reason.VALUE, "can't wait longer for late events than its gap", 2)
    return None


def _sorted_by(arguments: tuple[Argument, ...]) -> Objection | None:
    """Check that attributes follow the first argument, each with an optional order."""
    index = 1
    while index < len(arguments):
        if arguments[index].form is not Form.ATTRIBUTE:
            what = f"takes an attribute to sort by as its {ordinal(index)} argument"
            return Objection(Reason.FORM, what, index)
        index += 1
        if index < len(arguments) and arguments[index].type is AttributeType.STRING:
            order = arguments[index]
            if order.form is not Form.CONSTANT:
                what = f"takes 'asc' or 'desc' as its {ordinal(index)} argument"
                hint = "A second attribute to sort by follows the order of the first."
                return Objection(Reason.FORM, what, index, hint)
            if str(order.value).lower() not in _ORDERS:
                what = f"can't sort in the order '{order.value}'"
                return Objection(Reason.VALUE, what, index, "It is 'asc' or 'desc'.")
            index += 1
    return None


def _never_ends(arguments: tuple[Argument, ...]) -> str | None:
    time = arguments[0].value
    if isinstance(time, int) and time <= 0:
        return "A batch that takes no time never lets the first event through."
    return None


def _divides_by_time(arguments: tuple[Argument, ...]) -> str | None:
    return "A batch that takes no time has no start." if arguments[1].value == 0 else None


def _within_bounds(arguments: tuple[Argument, ...]) -> str | None:
    bounds = [argument.value for argument in arguments[:2]]
    if all(isinstance(bound, float) and 0 <= bound <= 1 for bound in bounds):
        return None
    return "The threshold and the error bound lie between 0 and 1."


_LENGTH: Final = Parameter("window.length", INT, CONSTANT)
_TIME: Final = Parameter("window.time", WHOLE, CONSTANT)
_TIMER: Final = Parameter("window.time", WHOLE, CONSTANT, requires=Requirement.NOT_NEGATIVE)
_DELAY: Final = Parameter("window.delay", WHOLE, CONSTANT, requires=Requirement.NOT_NEGATIVE)
_SCHEDULE: Final = Parameter("cron.expression", STRING, CONSTANT, requires=Requirement.CRON)
_CURRENT: Final = Parameter("stream.current.event", BOOL, CONSTANT, default="false")
_TIMESTAMP: Final = Parameter("timestamp", LONG, ATTRIBUTE)
_KEY: Final = Parameter("attribute", STRING, ATTRIBUTE, default="all attributes")
_COUNT: Final = Parameter("event.count", INT, CONSTANT)
_START: Final = Parameter("start.time", WHOLE, CONSTANT, default="the first event's time")
_FREE_START: Final = Parameter("start.time", WHOLE, default="the first event's time")
_TIMEOUT: Final = Parameter("timeout", WHOLE, CONSTANT, default="none")
_REPLACE: Final = Parameter("replace.with.batchtime", BOOL, CONSTANT, default="false")
_SUPPORT: Final = Parameter("support.threshold", DOUBLE, CONSTANT)
_ERROR: Final = Parameter("error.bound", DOUBLE, CONSTANT)
_GAP: Final = Parameter("window.session", LONG, CONSTANT)
_SESSION_KEY: Final = Parameter("window.key", STRING, ATTRIBUTE, default="one for all")
_LATENCY: Final = Parameter("window.allowed.latency", LONG, CONSTANT, default="0")
_SORTED: Final = Parameter("attribute", NUMBER | STRING, ATTRIBUTE)
_ORDER: Final = Parameter("order", STRING, CONSTANT, choices=_ORDERS, default="asc")

_ENGINE: Final = (
    _window("batch", (), Overload((_LENGTH,), rule=_not_negative)),
    _window("cron", (_SCHEDULE,)),
    _window("delay", (_DELAY,)),
    _window("externalTime", (_TIMESTAMP, _TIME)),
    _window(
        "externalTimeBatch",
        Overload((_TIMESTAMP, _TIME), doom=_divides_by_time),
        *(
            Overload(
                (_TIMESTAMP, _TIME, _FREE_START, *more),
                rule=_int_start_is_constant,
                doom=_divides_by_time,
            )
            for more in ((), (_TIMEOUT,), (_TIMEOUT, _REPLACE))
        ),
    ),
    _window("frequent", (_COUNT,), (_COUNT, _KEY)),
    _window("length", (_LENGTH,)),
    _window("lengthBatch", (_LENGTH,), (_LENGTH, _CURRENT)),
    # The engine documents a form without the error bound, and fails on it whatever the threshold.
    _window(
        "lossyFrequent",
        Overload((_SUPPORT, _ERROR), doom=_within_bounds),
        Overload((_SUPPORT, _ERROR, _KEY), doom=_within_bounds),
    ),
    _window(
        "session",
        (_GAP,),
        (_GAP, _SESSION_KEY),
        Overload((_GAP, _SESSION_KEY, _LATENCY), rule=_latency_within_gap),
    ),
    _window(
        "sort",
        (_LENGTH, _SORTED),
        Overload(
            (_LENGTH, _SORTED, _ORDER),
            more=Parameter("attribute or order", NUMBER | STRING),
            rule=_sorted_by,
        ),
    ),
    _window("time", (_TIMER,)),
    _window(
        "timeBatch",
        *(
            Overload((_TIME, *more), doom=_never_ends)
            for more in ((), (_START,), (_CURRENT,), (_START, _CURRENT))
        ),
    ),
    _window("timeLength", (_TIMER, _LENGTH)),
)

#: Windows by name, of ``#window.x(..)`` and of ``define window``.
WINDOWS: Final = {signature.name: signature for signature in _ENGINE}
