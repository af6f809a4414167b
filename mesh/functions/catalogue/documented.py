"""Functions of common Siddhi extensions, which the reference engine doesn't include.

Transcribed from the public API documentation of siddhi-execution-string, -math, -time, -regex,
-json, -map, -list, -unique, -extrema, -geo and -reorder.  The engine used for tests has none of
them, so they could not be observed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue.conversions import UNIT_RATIOS
from mesh.functions.catalogue.event_functions import EVENT_FUNCTIONS
from mesh.functions.catalogue.model import Argument, NameKind, Objection, Reason
from mesh.functions.catalogue.notation import signatures
from mesh.functions.catalogue.series import ranked_attributes
from mesh.functions.catalogue.statements import STATEMENTS
from mesh.model.types import Attribute

if TYPE_CHECKING:
    from mesh.functions.catalogue.model import Signature

_FUNCTIONS: Final = """
str:charAt(input.value string, index int) -> string
str:charFrequency(input.string string, char string) -> long
str:coalesce(arg any, arg any same ..) -> arg
str:concat(arg scalar, arg scalar ..) -> string
str:contains(input.string string, search.string string) -> bool
str:equalsIgnoreCase(arg1 string, arg2 string) -> bool
str:fillTemplate(template string, replacement scalar, replacement scalar ..) -> string
str:fillTemplate(template string, map object) -> string
str:hex(input.string string) -> string
str:length(input.string string) -> int
str:locate(search.for string, search.in string) -> int
str:locate(search.for string, search.in string, start int) -> int
str:lower(input.string string) -> string
str:regexp(input.string string, regex string) -> bool
str:repeat(input.string string, times int) -> string
str:replaceAll(input.string string, regex string, replacement string) -> string
str:replaceFirst(input.string string, regex string, replacement string) -> string
str:reverse(input.string string) -> string
str:split(input.string string, split.string string, group.number int) -> string
str:strcmp(arg1 string, arg2 string) -> int
str:substr(input.string string, begin.index int) -> string
str:substr(input.string string, begin.index int, length int) -> string
str:substr(input.string string, regex string) -> string
str:substr(input.string string, regex string, group.number int) -> string
str:trim(input.string string) -> string
str:unhex(input.string string) -> string
str:upper(input.string string) -> string

math:abs(p1 number) -> double
math:acos(p1 float|double) -> double
math:asin(p1 float|double) -> double
math:atan(p1 number) -> double
math:atan(p1 number, p2 number) -> double
math:bin(p1 int|long) -> string
math:cbrt(p1 number) -> double
math:ceil(p1 float|double) -> double
math:conv(a string, from.base int, to.base int) -> string
math:copySign(magnitude number, sign number) -> double
math:cos(p1 number) -> double
math:cosh(p1 number) -> double
math:e() -> double
math:exp(p1 number) -> double
math:floor(p1 number) -> double
math:getExponent(p1 number) -> int
math:hex(p1 number) -> string
math:isInfinite(p1 float|double) -> bool
math:isNan(p1 float|double) -> bool
math:ln(p1 number) -> double
math:log(number number, base number) -> double
math:log10(p1 number) -> double
math:log2(p1 number) -> double
math:max(p1 number, p2 number) -> double
math:min(p1 number, p2 number) -> double
math:oct(p1 int|long) -> string
math:parseDouble(p1 string) -> double
math:parseFloat(p1 string) -> float
math:parseInt(p1 string) -> int
math:parseLong(p1 string) -> long
math:pi() -> double
math:power(value number, to.power number) -> double
math:rand() -> double
math:rand(seed int|long) -> double
math:round(p1 float) -> int
math:round(p1 double) -> long
math:signum(p1 number) -> int
math:sin(p1 number) -> double
math:sinh(p1 number) -> double
math:sqrt(p1 number) -> double
math:tan(p1 number) -> double
math:tanh(p1 number) -> double
math:toDegrees(p1 number) -> double
math:toRadians(p1 number) -> double

time:currentDate() -> string
time:currentTime() -> string
time:currentTimestamp() -> string
time:currentTimestamp(timezone string constant) -> string
time:date(date.value string) -> string
time:date(date.value string, date.format string) -> string
time:dateAdd(date.value string, expr int, unit string constant) -> string
time:dateAdd(timestamp.in.milliseconds long, expr int, unit string constant) -> string
time:dateAdd(date.value string, expr int, unit string constant, date.format string) -> string
time:dateDiff(date.value1 string, date.value2 string) -> int
time:dateDiff(timestamp1 long, timestamp2 long) -> int
time:dateDiff(date.value1 string, date.value2 string, format1 string, format2 string) -> int
time:dateFormat(date.value string, target.format string) -> string
time:dateFormat(timestamp.in.milliseconds long, target.format string) -> string
time:dateFormat(date.value string, target.format string, source.format string) -> string
time:dateSub(date.value string, expr int, unit string constant) -> string
time:dateSub(timestamp.in.milliseconds long, expr int, unit string constant) -> string
time:dateSub(date.value string, expr int, unit string constant, date.format string) -> string
time:dayOfWeek(date.value string) -> string
time:dayOfWeek(date.value string, date.format string) -> string
time:extract(unit string constant, date.value string) -> int
time:extract(timestamp.in.milliseconds long, unit string constant) -> int
time:extract(unit string constant, date.value string, date.format string) -> int
time:extract(timestamp.in.milliseconds long, unit string constant, locale string constant) -> int
time:extract(unit string constant, date string, format string, locale string constant) -> int
time:timestampInMilliseconds() -> long
time:timestampInMilliseconds(date.value string) -> long
time:timestampInMilliseconds(date.value string, date.format string) -> long
time:timezoneConvert(date.value string, source.format string, target.timezone string) -> string
time:timezoneConvert(date string, format string, target.zone string, source.zone string) -> string
time:utcTimestamp() -> string
time:utcTimestamp(date.format string) -> string

regex:find(regex string, input.sequence string) -> bool
regex:find(regex string, input.sequence string, starting.index int) -> bool
regex:group(regex string, input.sequence string, group.id int) -> string
regex:lookingAt(regex string, input.sequence string) -> bool
regex:matches(regex string, input.sequence string) -> bool

json:getBool(json string|object, path string) -> bool
json:getDouble(json string|object, path string) -> double
json:getFloat(json string|object, path string) -> float
json:getInt(json string|object, path string) -> int
json:getLong(json string|object, path string) -> long
json:getObject(json string|object, path string) -> object
json:getString(json string|object, path string) -> string
json:isExists(json string|object, path string) -> bool
json:setElement(json string|object, path string, json.element any) -> object
json:setElement(json string|object, path string, json.element any, key string) -> object
json:toObject(json string) -> object
json:toString(json string|object) -> string
json:toString(json string|object, allow.escape bool) -> string

map:clear(map object) -> object
map:clone(map object) -> object
map:combineByKey(map object, map object, map object ..) -> object
map:containsKey(map object, key scalar) -> bool
map:containsValue(map object, value scalar) -> bool
map:create() -> object
map:create(key1 any, value1 any, more any ..) -> object
map:createFromJSON(json.string string) -> object
map:createFromXML(xml.string string) -> object
map:get(map object, key scalar) -> object
map:get(map object, key scalar, default.value any) -> default.value
map:isEmpty(map object) -> bool
map:isMap(arg any) -> bool
map:keys(map object) -> object
map:put(map object, key any, value any) -> object
map:putAll(to.map object, from.map object) -> object
map:putIfAbsent(map object, key scalar, value scalar) -> object
map:remove(map object, key any) -> object
map:replace(map object, key scalar, value scalar) -> object
map:replaceAll(to.map object, from.map object) -> object
map:size(map object) -> int
map:toJSON(map object) -> string
map:toXML(map object) -> string
map:toXML(map object, root.element.name string|object) -> string
map:values(map object) -> object

list:add(list object, value any) -> object
list:add(list object, value any, index int) -> object
list:addAll(to.list object, from.list object) -> object
list:addAll(to.list object, from.list object, is.distinct bool) -> object
list:clear(list object) -> object
list:clone(list object) -> object
list:contains(list object, value any) -> bool
list:containsAll(list object, given.list object) -> bool
list:containsAny(list object, given.list object) -> bool
list:create(value any ..) -> object
list:get(list object, index int) -> object
list:indexOf(list object, value any) -> int
list:isEmpty(list object) -> bool
list:isList(arg any) -> bool
list:lastIndexOf(list object, value any) -> int
list:remove(list object, value any) -> object
list:removeAll(list object, given.list object) -> object
list:removeByIndex(list object, index int) -> object
list:retainAll(list object, given.list object) -> object
list:setValue(list object, index int, value any) -> object
list:size(list object) -> int
list:sort(list object) -> object
list:sort(list object, order string constant) -> object

env:getOriginIPFromXForwarded(x.forwarded.header string) -> string

geo:distance(latitude double, longitude double, latitude double, longitude double) -> double
geo:withinDistance(longitude double, latitude double, fence string, radius double) -> bool
geo:withinDistance(geo.json.geometry string, fence string, radius double) -> bool
geo:disjoint(longitude double, latitude double, fence string) -> bool
geo:disjoint(geo.json.geometry string, fence string) -> bool
geo:equals(longitude double, latitude double, fence string) -> bool
geo:equals(geo.json.geometry string, fence string) -> bool
geo:intersects(longitude double, latitude double, fence string) -> bool
geo:intersects(geo.json.geometry string, fence string) -> bool
geo:overlaps(longitude double, latitude double, fence string) -> bool
geo:overlaps(geo.json.geometry string, fence string) -> bool
geo:touches(longitude double, latitude double, fence string) -> bool
geo:touches(geo.json.geometry string, fence string) -> bool
geo:within(longitude double, latitude double, fence string) -> bool
geo:within(geo.json.geometry string, fence string) -> bool
"""

_WITH_STATE: Final = """
kf:kalmanFilter(measured.value double) -> double
kf:kalmanFilter(measured.value double, measurement.noise.sd double) -> double
kf:kalmanFilter(measured.value double, measured.changing.rate double, measurement.noise.sd double,
    timestamp long) -> double
"""
_CONVERSIONS: Final = "\n".join(
    f"unitconversion:{name}(p1 number) -> double" for name in UNIT_RATIOS
)

_AGGREGATORS: Final = """
str:groupConcat(key scalar) -> string
str:groupConcat(key scalar, separator string constant) -> string
str:groupConcat(key scalar, separator string constant, distinct bool constant) -> string
str:groupConcat(key scalar, separator string constant, distinct bool constant,
    order string constant =asc|desc) -> string
math:percentile(arg number, p double constant) -> double
stats:median(data number) -> double
json:group(json string|object) -> string
json:group(json string|object, distinct bool constant) -> string
json:group(json string|object, enclosing.element string constant) -> string
json:group(json string|object, enclosing.element string constant,
    distinct bool constant) -> string
json:groupAsObject(json string|object) -> object
json:groupAsObject(json string|object, distinct bool constant) -> object
json:groupAsObject(json string|object, enclosing.element string constant) -> object
json:groupAsObject(json string|object, enclosing.element string constant,
    distinct bool constant) -> object
map:collect(key scalar, value any) -> object
map:merge(map object) -> object
list:collect(value any) -> object
list:collect(value any, is.distinct bool constant) -> object
list:merge(list object) -> object
list:merge(list object, is.distinct bool constant) -> object
"""


def _is_percent(arguments: tuple[Argument, ...]) -> Objection | None:
    percent = arguments[1].value
    if isinstance(percent, float) and 0 < percent <= 100:
        return None
    return Objection(Reason.VALUE, "takes a percentage above 0 and up to 100.0", 1)


_TOKENIZERS: Final = """
str:tokenize(input.string string, regex string) -> token string
str:tokenize(input.string string, regex string, distinct bool) -> token string
json:tokenize(json string|object, path string) -> jsonElement string
json:tokenize(json string|object, path string, fail bool constant) -> jsonElement string
json:tokenizeAsObject(json string|object, path string) -> jsonElement object
json:tokenizeAsObject(json string|object, path string, fail bool constant) -> jsonElement object
map:tokenize(map object, map object ..) -> key object, value object
list:tokenize(list object, list object ..) -> index int, value object
"""

_STATEFUL: Final = """
unique:deduplicate(unique.key scalar, time.interval int|long constant)
reorder:kslack(timestamp long)
reorder:kslack(timestamp long, timeout long constant)
reorder:kslack(timestamp long, discard.late.arrival bool constant)
reorder:kslack(timestamp long, timeout long constant, max.k long constant)
reorder:kslack(timestamp long, timeout long constant, discard.late.arrival bool constant)
reorder:kslack(timestamp long, timeout long constant, max.k long constant, discard bool constant)
"""

_PRIORITY: Final = """
priority:time(unique.key scalar attribute, priority int|long attribute, timeout int|long constant)
"""
_SMOOTHED: Final = """
{0}:kalmanMinMax(attribute number attribute, q double constant, r double constant,
    window.size int constant, extrema.type string constant =min|max|minmax) -> extremaType string
{0}:kernelMinMax(attribute number attribute, bandwidth int|double constant,
    window.size int constant, extrema.type string constant =min|max|minmax) -> extremaType string
"""
_SMOOTHED_MAX: Final = 1000
#: Most frequent values of a batch, or rarest ones: as many attributes as the last argument says.
_RANKED: Final = """
extrema:{side}KLengthBatch(attribute scalar attribute, window.length int constant,
    k.value int constant)
extrema:{side}KTimeBatch(attribute scalar attribute, time.window int|long constant,
    k.value int constant)
extrema:{side}KTimeBatch(attribute scalar attribute, time.window int|long constant,
    start.time int|long constant, k.value int constant)
"""
_RANKS_MAX: Final = 100

# Measurements, which a cluster makes itself: the events pass.
_PASSING: Final = """
throughput:throughput(argument any ..)
"""

_ADAPTIVE: Final = """
reorder:akslack(timestamp long, correlation.field number)
reorder:akslack(timestamp long, correlation.field number, batch.size long constant)
reorder:akslack(timestamp long, correlation.field number, batch.size long constant,
    timeout long constant)
reorder:akslack(timestamp long, correlation.field number, batch.size long constant,
    timeout long constant, max.k long constant)
reorder:akslack(timestamp long, correlation.field number, batch.size long constant,
    timeout long constant, max.k long constant, discard.late.arrival bool constant)
reorder:akslack(timestamp long, correlation.field number, batch.size long constant,
    timeout long constant, max.k long constant, discard.late.arrival bool constant,
    error.threshold double constant, confidence.level double constant)
"""
_BATCH_MAX: Final = 100_000

# The three without a namespace belong to later versions of the engine itself.
_WINDOWS: Final = """
expression(expression string)
expressionBatch(expression string)
expressionBatch(expression string, include.triggering.event bool)
expressionBatch(expression string, include.triggering.event bool, stream.current.event bool)
hopping(window.time int|long constant, hop.time int|long constant)
"""
_WINDOWS_THAT_RUN: Final = """
extrema:maxByLength(attribute number|string attribute, window.length int constant)
extrema:maxByLengthBatch(attribute number|string attribute, window.length int constant)
extrema:maxByTime(attribute number|string attribute, window.time int|long constant not-negative)
extrema:maxByTimeBatch(attribute number|string attribute, window.time int|long constant)
extrema:maxByTimeBatch(attribute number|string attribute, window.time int|long constant,
    start.time int|long constant)
extrema:minByLength(attribute number|string attribute, window.length int constant)
extrema:minByLengthBatch(attribute number|string attribute, window.length int constant)
extrema:minByTime(attribute number|string attribute, window.time int|long constant not-negative)
extrema:minByTimeBatch(attribute number|string attribute, window.time int|long constant)
extrema:minByTimeBatch(attribute number|string attribute, window.time int|long constant,
    start.time int|long constant)
unique:ever(unique.key scalar attribute, unique.key scalar attribute ..)
unique:externalTimeBatch(unique.key scalar attribute, time.stamp long attribute,
    window.time int|long constant)
unique:externalTimeBatch(unique.key scalar attribute, time.stamp long attribute,
    window.time int|long constant, start.time int|long constant)
unique:externalTimeBatch(unique.key scalar attribute, time.stamp long attribute,
    window.time int|long constant, start.time int|long constant, time.out int|long constant)
unique:first(unique.key scalar attribute, unique.key scalar attribute ..)
unique:firstLengthBatch(unique.key scalar attribute, window.length int constant)
unique:firstTimeBatch(unique.key scalar attribute, window.time int|long constant)
unique:firstTimeBatch(unique.key scalar attribute, time int|long constant,
    start int|long constant)
unique:length(unique.key scalar attribute, window.length int constant)
unique:lengthBatch(unique.key scalar attribute, window.length int constant)
unique:time(unique.key scalar attribute, window.time int|long constant not-negative)
unique:timeBatch(unique.key scalar attribute, window.time int|long constant)
unique:timeBatch(unique.key scalar attribute, window.time int|long constant,
    start int|long constant)
unique:timeLengthBatch(unique.key scalar attribute, window.time int|long constant,
    window.length int constant)
unique:timeLengthBatch(unique.key scalar attribute, window.time int|long constant,
    start.time int|long constant, window.length int constant)
"""


def _takes_time_after_key(arguments: tuple[Argument, ...]) -> str | None:
    return _takes_time(arguments[1:])


def _takes_time(arguments: tuple[Argument, ...]) -> str | None:
    span = arguments[1].value
    if isinstance(span, int) and span <= 0:
        return "A window of no time or no length never lets the first event through."
    return None


#: Functions with a state, which the binder computes for each event before the select clause.
STATEFUL_FUNCTIONS: Final = signatures(_WITH_STATE, NameKind.SCALAR, runs=True)
#: Scalar functions and aggregators of extensions, by name.
DOCUMENTED_FUNCTIONS: Final = (
    signatures(_FUNCTIONS + _CONVERSIONS, NameKind.SCALAR, runs=True)
    | signatures(
        _AGGREGATORS, NameKind.AGGREGATOR, runs=True, rules={"math:percentile": _is_percent}
    )
    | STATEFUL_FUNCTIONS
)


def _ranked(side: str) -> dict[str, Signature]:
    """Functions that add the values of the highest ranks with their counts: Top1Element .."""

    def adds(arguments: tuple[Argument, ...]) -> tuple[Attribute, ...]:
        count = int(arguments[-1].value or 0)
        return ranked_attributes(side.capitalize(), arguments[0].type, count)

    by_name = signatures(_RANKED.format(side=side), NameKind.STREAM_PROCESSOR, runs=True)
    return {
        name: replace(
            one,
            overloads=tuple(replace(o, rule=_is_ranked, adds_for=adds) for o in one.overloads),
        )
        for name, one in by_name.items()
    }


def _is_ranked(arguments: tuple[Argument, ...]) -> Objection | None:
    span, count = arguments[1].value, arguments[-1].value
    if not isinstance(span, int) or span <= 0:
        return Objection(Reason.VALUE, "takes a length or a time above 0", 1)
    if not isinstance(count, int) or not 0 < count <= _RANKS_MAX:
        what = f"takes 1 to {_RANKS_MAX} values as its last argument"
        return Objection(Reason.VALUE, what, len(arguments) - 1)
    return None


def _is_smoothed(arguments: tuple[Argument, ...]) -> Objection | None:
    size = arguments[-2].value
    for place, one in enumerate(arguments[1:-2], 1):
        if not isinstance(one.value, int | float) or not 0 < one.value < math.inf:
            return Objection(Reason.VALUE, "takes numbers above 0", place)
    if isinstance(size, int) and 0 < size <= _SMOOTHED_MAX:
        return None
    what = f"takes a window of 1 to {_SMOOTHED_MAX} events"
    return Objection(Reason.VALUE, what, len(arguments) - 2)


def _is_adaptive(arguments: tuple[Argument, ...]) -> Objection | None:
    for place, one in enumerate(arguments[2:3], 2):
        if not isinstance(one.value, int) or not 15 <= one.value <= _BATCH_MAX:
            what = f"takes a batch of 15 to {_BATCH_MAX:,} events"
            return Objection(Reason.VALUE, what, place)
    for place, one in enumerate(arguments[6:], 6):
        if not isinstance(one.value, float) or not 0 < one.value < 1:
            what = "takes a threshold and a confidence between 0 and 1"
            return Objection(Reason.VALUE, what, place)
    return None


def _has_timeout(arguments: tuple[Argument, ...]) -> Objection | None:
    timeout = arguments[2].value
    if isinstance(timeout, int) and timeout > 0:
        return None
    return Objection(Reason.VALUE, "takes a time above 0", 2)


def _with_priority(arguments: tuple[Argument, ...]) -> tuple[Attribute, ...]:
    key, priority = arguments[0].type, arguments[1].type
    return Attribute("priorityKey", key), Attribute("currentPriority", priority)


def _priority() -> dict[str, Signature]:
    by_name = signatures(
        _PRIORITY, NameKind.STREAM_PROCESSOR, runs=True, rules={"priority:time": _has_timeout}
    )
    return {
        name: replace(
            one, overloads=tuple(replace(o, adds_for=_with_priority) for o in one.overloads)
        )
        for name, one in by_name.items()
    }


def _smoothed(space: str) -> dict[str, Signature]:
    names = f"{space}:kalmanMinMax", f"{space}:kernelMinMax"
    return signatures(
        _SMOOTHED.format(space),
        NameKind.STREAM_PROCESSOR,
        runs=True,
        rules=dict.fromkeys(names, _is_smoothed),
    )


#: Stream processors of extensions that keep events, by name.
STATEFUL_STREAM_FUNCTIONS: Final = (
    signatures(_STATEFUL, NameKind.STREAM_PROCESSOR, runs=True)
    | _ranked("top")
    | _ranked("bottom")
    | _priority()
    | signatures(
        _ADAPTIVE, NameKind.STREAM_PROCESSOR, runs=True, rules={"reorder:akslack": _is_adaptive}
    )
    | _smoothed("extrema")
    | _smoothed("timeseries")
)
#: Stream processors of extensions, by name.
DOCUMENTED_STREAM_FUNCTIONS: Final = (
    signatures(_TOKENIZERS + _PASSING, NameKind.STREAM_PROCESSOR, runs=True)
    | STATEFUL_STREAM_FUNCTIONS
    | EVENT_FUNCTIONS
    | STATEMENTS
)
#: Windows whose second argument is above 0.
_NEED_TIME_OR_LENGTH: Final = (
    "extrema:maxByLength", "extrema:maxByTimeBatch", "extrema:minByLength",
    "extrema:minByTimeBatch", "unique:firstTimeBatch", "unique:timeBatch",
    "unique:timeLengthBatch",
)  # fmt: skip
#: Windows of extensions and of later versions of the engine, by name.
DOCUMENTED_WINDOWS: Final = signatures(_WINDOWS, NameKind.WINDOW) | signatures(
    _WINDOWS_THAT_RUN,
    NameKind.WINDOW,
    runs=True,
    restrictions={
        **dict.fromkeys(_NEED_TIME_OR_LENGTH, _takes_time),
        "unique:externalTimeBatch": _takes_time_after_key,
    },
)
