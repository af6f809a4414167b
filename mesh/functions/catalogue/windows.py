"""Windows of the reference engine (Siddhi 5.1.7); this version executes all of them.

Sizes and times are constants; keys, timestamps and sort keys are attributes.  The engine accepts
nearly every value: a length of -1 is valid.
"""

from __future__ import annotations

from typing import Final

from mesh.functions.catalogue.model import (
    Argument,
    ArgumentForm,
    NameKind,
    Objection,
    Reason,
    ordinal,
)
from mesh.functions.catalogue.notation import signatures
from mesh.model.types import AttributeType

# The engine documents a form of lossyFrequent without the error bound, and fails on it whatever the
# threshold.
_WINDOWS: Final = """
# The events that arrive together; they expire with the next batch.
batch()
batch(window.length int constant)
# Batches of the events between two times of a cron expression.
cron(cron.expression string constant cron)
# Events are emitted after a time.
delay(window.delay int|long constant not-negative)
# The events of the last time span, by a timestamp in the events.
externalTime(timestamp long attribute, window.time int|long constant)
# Batches of a time span, by a timestamp in the events.
externalTimeBatch(timestamp long attribute, window.time int|long constant)
externalTimeBatch(timestamp long attribute, window.time int|long constant, start.time int|long)
externalTimeBatch(timestamp long attribute, window.time int|long constant, start.time int|long,
    timeout int|long constant)
externalTimeBatch(timestamp long attribute, window.time int|long constant, start.time int|long,
    timeout int|long constant, replace.with.batchtime bool constant)
# The events of the most frequent values.
frequent(event.count int constant)
frequent(event.count int constant, attribute string attribute)
# The last n events.
length(window.length int constant)
# Batches of n events.
lengthBatch(window.length int constant)
lengthBatch(window.length int constant, stream.current.event bool constant)
# The events of values more frequent than a threshold, within an error bound.
lossyFrequent(support.threshold double constant, error.bound double constant)
lossyFrequent(support.threshold double constant, error.bound double constant,
    attribute string attribute)
# Sessions: events of a key without a gap longer than the given one.
session(window.session long constant)
session(window.session long constant, window.key string attribute)
session(window.session long constant, window.key string attribute,
    window.allowed.latency long constant)
# The n least events in the order of the attributes.
sort(window.length int constant, attribute number|string attribute)
sort(window.length int constant, attribute number|string attribute,
    order string constant =asc|desc, attribute_or_order number|string ..)
# The events of the last time span.
time(window.time int|long constant not-negative)
# Batches of a time span.
timeBatch(window.time int|long constant)
timeBatch(window.time int|long constant, start.time int|long constant)
timeBatch(window.time int|long constant, stream.current.event bool constant)
timeBatch(window.time int|long constant, start.time int|long constant,
    stream.current.event bool constant)
# The events of the last time span, at most n.
timeLength(window.time int|long constant not-negative, window.length int constant)
"""


def _not_negative(arguments: tuple[Argument, ...]) -> Objection | None:
    if any(isinstance(one.value, int) and one.value < 0 for one in arguments):
        return Objection(Reason.VALUE, "can't have fewer events than none", 0)
    return None


def _int_start_is_constant(arguments: tuple[Argument, ...]) -> Objection | None:
    for start in arguments[2:3]:
        if start.type is AttributeType.INT and start.form is not ArgumentForm.CONSTANT:
            what = "takes a constant or a long as its third argument"
            return Objection(Reason.FORM, what, 2)
    return None


def _latency_within_gap(arguments: tuple[Argument, ...]) -> Objection | None:
    gap = arguments[0].value
    for latency in (one.value for one in arguments[2:]):
        if isinstance(gap, int) and isinstance(latency, int) and latency > gap:
            return Objection(Reason.VALUE, "can't wait longer for late events than its gap", 2)
    return None


def _sorted_by(arguments: tuple[Argument, ...]) -> Objection | None:
    """Check that attributes follow the first argument, each with an optional order."""
    index = 1
    while index < len(arguments):
        if arguments[index].form is not ArgumentForm.ATTRIBUTE:
            what = f"takes an attribute to sort by as its {ordinal(index)} argument"
            return Objection(Reason.FORM, what, index)
        index += 1
        if index < len(arguments) and arguments[index].type is AttributeType.STRING:
            order = arguments[index]
            if order.form is not ArgumentForm.CONSTANT:
                what = f"takes 'asc' or 'desc' as its {ordinal(index)} argument"
                hint = "A second attribute to sort by follows the order of the first."
                return Objection(Reason.FORM, what, index, hint)
            if str(order.value).lower() not in ("asc", "desc"):
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


#: Windows by name, of ``#window.x(..)`` and of ``define window``.
WINDOWS: Final = signatures(
    _WINDOWS,
    NameKind.WINDOW,
    runs=True,
    rules={
        "batch": _not_negative,
        "externalTimeBatch": _int_start_is_constant,
        "session": _latency_within_gap,
        "sort": _sorted_by,
    },
    restrictions={
        "externalTimeBatch": _divides_by_time,
        "lossyFrequent": _within_bounds,
        "timeBatch": _never_ends,
    },
)
#: Windows that give the engine's outputs in loops of a group: of queries, of joins, and those that
#: do so for current events only.
IN_LOOPS: Final = frozenset({"length", "time", "lengthBatch", "timeBatch"})
IN_LOOPS_OF_JOINS: Final = frozenset({"length", "time"})
IN_LOOPS_OF_CURRENT: Final = frozenset({"timeBatch"})
