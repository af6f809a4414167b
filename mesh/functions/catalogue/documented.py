"""Functions of common Siddhi extensions, which the reference engine doesn't include.

Transcribed from the public API documentation of siddhi-execution-string, -math, -time, -regex,
-json, -map, -list, -unique, -extrema, -geo and -reorder.  The engine used for tests has none of
them, so they could not be observed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue.event_functions import EVENT_FUNCTIONS, ranked_attributes
from mesh.functions.catalogue.model import Argument, NameKind, Objection, Reason
from mesh.functions.catalogue.notation import UNIT_RATIOS, sentence_of, signatures
from mesh.functions.catalogue.statements import STATEMENTS
from mesh.model.types import Attribute

if TYPE_CHECKING:
    from mesh.functions.catalogue.model import Signature

_FUNCTIONS: Final = """
# The character at an index, from 0.
str:charAt(input.value string, index int) -> string
# The number of times that the text has the character.
str:charFrequency(input.string string, char string) -> long
# The first argument that is not null.
str:coalesce(arg any, arg any same ..) -> arg
# The arguments joined to a text.
str:concat(arg scalar, arg scalar ..) -> string
# Whether the text has the other one in it.
str:contains(input.string string, search.string string) -> bool
# Whether the texts are equal without regard to case.
str:equalsIgnoreCase(arg1 string, arg2 string) -> bool
# The template with its {{names}} or {{numbers}} filled in.
str:fillTemplate(template string, replacement scalar, replacement scalar ..) -> string
str:fillTemplate(template string, map object) -> string
# The hexadecimal digits of the characters.
str:hex(input.string string) -> string
# The number of characters.
str:length(input.string string) -> int
# The position of a text in another one, from 0; -1 if it is not there.
str:locate(search.for string, search.in string) -> int
str:locate(search.for string, search.in string, start int) -> int
# The text in lower case.
str:lower(input.string string) -> string
# Whether the whole text matches the pattern.
str:regexp(input.string string, regex string) -> bool
# The text, several times.
str:repeat(input.string string, times int) -> string
# The text with every match of the pattern replaced.
str:replaceAll(input.string string, regex string, replacement string) -> string
# The text with the first match of the pattern replaced.
str:replaceFirst(input.string string, regex string, replacement string) -> string
# The text backwards.
str:reverse(input.string string) -> string
# The SHA-256 of the text in hexadecimal digits; with a key its HMAC-SHA-256.
str:sha256(input.string string) -> string
str:sha256(input.string string, key string) -> string
# A part of the text between separators, by its number from 0.
str:split(input.string string, split.string string, group.number int) -> string
# The order of two texts: negative, 0 or positive.
str:strcmp(arg1 string, arg2 string) -> int
# A part of the text: from an index, or a match of a pattern.
str:substr(input.string string, begin.index int) -> string
str:substr(input.string string, begin.index int, length int) -> string
str:substr(input.string string, regex string) -> string
str:substr(input.string string, regex string, group.number int) -> string
# The text without spaces at both ends.
str:trim(input.string string) -> string
# The characters of hexadecimal digits.
str:unhex(input.string string) -> string
# The text in upper case.
str:upper(input.string string) -> string

# The absolute value.
math:abs(p1 number) -> double
# The arc cosine, in radians.
math:acos(p1 float|double) -> double
# The arc sine, in radians.
math:asin(p1 float|double) -> double
# The arc tangent, in radians; of two arguments the angle of the point.
math:atan(p1 number) -> double
math:atan(p1 number, p2 number) -> double
# The binary digits.
math:bin(p1 int|long) -> string
# The cube root.
math:cbrt(p1 number) -> double
# The least whole number that is not smaller.
math:ceil(p1 float|double) -> double
# The number in another base.
math:conv(a string, from.base int, to.base int) -> string
# The first number with the sign of the second.
math:copySign(magnitude number, sign number) -> double
# The cosine of an angle in radians.
math:cos(p1 number) -> double
# The hyperbolic cosine.
math:cosh(p1 number) -> double
# Euler's number.
math:e() -> double
# e to the power of the number.
math:exp(p1 number) -> double
# The greatest whole number that is not larger.
math:floor(p1 number) -> double
# The binary exponent.
math:getExponent(p1 number) -> int
# The hexadecimal digits.
math:hex(p1 number) -> string
# Whether the number is infinite.
math:isInfinite(p1 float|double) -> bool
# Whether the value is no number.
math:isNan(p1 float|double) -> bool
# The natural logarithm.
math:ln(p1 number) -> double
# The logarithm to a base.
math:log(number number, base number) -> double
# The logarithm to the base 10.
math:log10(p1 number) -> double
# The logarithm to the base 2.
math:log2(p1 number) -> double
# The greater of two numbers.
math:max(p1 number, p2 number) -> double
# The lesser of two numbers.
math:min(p1 number, p2 number) -> double
# The octal digits.
math:oct(p1 int|long) -> string
# The double of a text.
math:parseDouble(p1 string) -> double
# The float of a text.
math:parseFloat(p1 string) -> float
# The int of a text.
math:parseInt(p1 string) -> int
# The long of a text.
math:parseLong(p1 string) -> long
# The number pi.
math:pi() -> double
# The number to a power.
math:power(value number, to.power number) -> double
# A random number from 0 to 1, another one for each event.
math:rand() -> double
math:rand(seed int|long) -> double
# The nearest whole number.
math:round(p1 float) -> int
math:round(p1 double) -> long
# 1, 0 or -1: the sign of the number.
math:signum(p1 number) -> int
# The sine of an angle in radians.
math:sin(p1 number) -> double
# The hyperbolic sine.
math:sinh(p1 number) -> double
# The square root.
math:sqrt(p1 number) -> double
# The tangent of an angle in radians.
math:tan(p1 number) -> double
# The hyperbolic tangent.
math:tanh(p1 number) -> double
# Radians as degrees.
math:toDegrees(p1 number) -> double
# Degrees as radians.
math:toRadians(p1 number) -> double

# The date of the app's clock, yyyy-MM-dd.
time:currentDate() -> string
# The time of day of the app's clock, HH:mm:ss.
time:currentTime() -> string
# The date and time of the app's clock, yyyy-MM-dd HH:mm:ss.
time:currentTimestamp() -> string
time:currentTimestamp(timezone string constant) -> string
# The date part of a date.
time:date(date.value string) -> string
time:date(date.value string, date.format string) -> string
# The date with a number of units added.
time:dateAdd(date.value string, expr int, unit string constant) -> string
time:dateAdd(timestamp.in.milliseconds long, expr int, unit string constant) -> string
time:dateAdd(date.value string, expr int, unit string constant, date.format string) -> string
# The days between two dates.
time:dateDiff(date.value1 string, date.value2 string) -> int
time:dateDiff(timestamp1 long, timestamp2 long) -> int
time:dateDiff(date.value1 string, date.value2 string, format1 string, format2 string) -> int
# The date in another format.
time:dateFormat(date.value string, target.format string) -> string
time:dateFormat(timestamp.in.milliseconds long, target.format string) -> string
time:dateFormat(date.value string, target.format string, source.format string) -> string
# The date with a number of units subtracted.
time:dateSub(date.value string, expr int, unit string constant) -> string
time:dateSub(timestamp.in.milliseconds long, expr int, unit string constant) -> string
time:dateSub(date.value string, expr int, unit string constant, date.format string) -> string
# The name of the day of the week.
time:dayOfWeek(date.value string) -> string
time:dayOfWeek(date.value string, date.format string) -> string
# A unit of the date: YEAR, MONTH, DAY, HOUR and others.
time:extract(unit string constant, date.value string) -> int
time:extract(timestamp.in.milliseconds long, unit string constant) -> int
time:extract(unit string constant, date.value string, date.format string) -> int
time:extract(timestamp.in.milliseconds long, unit string constant, locale string constant) -> int
time:extract(unit string constant, date string, format string, locale string constant) -> int
# The date, or the present time, in milliseconds.
time:timestampInMilliseconds() -> long
time:timestampInMilliseconds(date.value string) -> long
time:timestampInMilliseconds(date.value string, date.format string) -> long
# The date in another time zone.
time:timezoneConvert(date.value string, source.format string, target.timezone string) -> string
time:timezoneConvert(date string, format string, target.zone string, source.zone string) -> string
# The date and time of the app's clock, in UTC.
time:utcTimestamp() -> string
time:utcTimestamp(date.format string) -> string

# Whether a part of the text matches the pattern.
regex:find(regex string, input.sequence string) -> bool
regex:find(regex string, input.sequence string, starting.index int) -> bool
# A group of the first match of the pattern.
regex:group(regex string, input.sequence string, group.id int) -> string
# Whether the text begins with a match of the pattern.
regex:lookingAt(regex string, input.sequence string) -> bool
# Whether the whole text matches the pattern.
regex:matches(regex string, input.sequence string) -> bool

# The bool at the path; null if there is none.
json:getBool(json string|object, path string) -> bool
# The number at the path as a double; null if there is none.
json:getDouble(json string|object, path string) -> double
# The number at the path as a float; null if there is none.
json:getFloat(json string|object, path string) -> float
# The number at the path as an int; null if there is none.
json:getInt(json string|object, path string) -> int
# The number at the path as a long; null if there is none.
json:getLong(json string|object, path string) -> long
# The value at the path.
json:getObject(json string|object, path string) -> object
# The value at the path as a text.
json:getString(json string|object, path string) -> string
# Whether there is a value at the path.
json:isExists(json string|object, path string) -> bool
# The JSON value with another value at the path.
json:setElement(json string|object, path string, json.element any) -> object
json:setElement(json string|object, path string, json.element any, key string) -> object
# The JSON value of a text.
json:toObject(json string) -> object
# The text of a JSON value.
json:toString(json string|object) -> string
json:toString(json string|object, allow.escape bool) -> string

# The map without its entries.
map:clear(map object) -> object
# A copy of the map.
map:clone(map object) -> object
# A map from each key to the list of its values in the maps.
map:combineByKey(map object, map object, map object ..) -> object
# Whether the map has the key.
map:containsKey(map object, key scalar) -> bool
# Whether the map has the value.
map:containsValue(map object, value scalar) -> bool
# A map of the keys and values.
map:create() -> object
map:create(key1 any, value1 any, more any ..) -> object
# The map of a JSON object.
map:createFromJSON(json.string string) -> object
# The map of an XML document.
map:createFromXML(xml.string string) -> object
# The value of the key; the default, or null, if there is none.
map:get(map object, key scalar) -> object
map:get(map object, key scalar, default.value any) -> default.value
# Whether the map has no entry.
map:isEmpty(map object) -> bool
# Whether the value is a map.
map:isMap(arg any) -> bool
# The keys of the map, as a list.
map:keys(map object) -> object
# The map with the entry.
map:put(map object, key any, value any) -> object
# The first map with the entries of the second.
map:putAll(to.map object, from.map object) -> object
# The map with the entry, unless it has the key.
map:putIfAbsent(map object, key scalar, value scalar) -> object
# The map without the key.
map:remove(map object, key any) -> object
# The map with another value of the key, if it has the key.
map:replace(map object, key scalar, value scalar) -> object
# The first map with the values of the second for the keys of both.
map:replaceAll(to.map object, from.map object) -> object
# The number of entries.
map:size(map object) -> int
# The JSON object of the map, as a text.
map:toJSON(map object) -> string
# The XML of the map, as a text.
map:toXML(map object) -> string
map:toXML(map object, root.element.name string|object) -> string
# The values of the map, as a list.
map:values(map object) -> object

# The list with the value added, at the end or at an index.
list:add(list object, value any) -> object
list:add(list object, value any, index int) -> object
# The first list with the values of the second.
list:addAll(to.list object, from.list object) -> object
list:addAll(to.list object, from.list object, is.distinct bool) -> object
# The list without its values.
list:clear(list object) -> object
# A copy of the list.
list:clone(list object) -> object
# Whether the list has the value.
list:contains(list object, value any) -> bool
# Whether the list has every value of the second.
list:containsAll(list object, given.list object) -> bool
# Whether the list has a value of the second.
list:containsAny(list object, given.list object) -> bool
# A list of the values.
list:create(value any ..) -> object
# The value at an index, from 0.
list:get(list object, index int) -> object
# The first index of the value; -1 if the list has it not.
list:indexOf(list object, value any) -> int
# Whether the list has no value.
list:isEmpty(list object) -> bool
# Whether the value is a list.
list:isList(arg any) -> bool
# The last index of the value; -1 if the list has it not.
list:lastIndexOf(list object, value any) -> int
# The list without the value.
list:remove(list object, value any) -> object
# The first list without the values of the second.
list:removeAll(list object, given.list object) -> object
# The list without the value at an index.
list:removeByIndex(list object, index int) -> object
# The values of the first list that the second has as well.
list:retainAll(list object, given.list object) -> object
# The list with another value at an index.
list:setValue(list object, index int, value any) -> object
# The number of values.
list:size(list object) -> int
# The list in ascending order, or in the order 'asc' or 'desc'.
list:sort(list object) -> object
list:sort(list object, order string constant) -> object

# The first public address of a header X-Forwarded-For.
env:getOriginIPFromXForwarded(x.forwarded.header string) -> string

# The distance of two points on the earth, in metres.
geo:distance(latitude double, longitude double, latitude double, longitude double) -> double
# Whether the point or geometry is within a distance of the fence, in metres.
geo:withinDistance(longitude double, latitude double, fence string, radius double) -> bool
geo:withinDistance(geo.json.geometry string, fence string, radius double) -> bool
# Whether the point or geometry has nothing in common with the fence.
geo:disjoint(longitude double, latitude double, fence string) -> bool
geo:disjoint(geo.json.geometry string, fence string) -> bool
# Whether the point or geometry is the same as the fence.
geo:equals(longitude double, latitude double, fence string) -> bool
geo:equals(geo.json.geometry string, fence string) -> bool
# Whether the point or geometry has a point in common with the fence.
geo:intersects(longitude double, latitude double, fence string) -> bool
geo:intersects(geo.json.geometry string, fence string) -> bool
# Whether the geometry and the fence overlap, and neither contains the other.
geo:overlaps(longitude double, latitude double, fence string) -> bool
geo:overlaps(geo.json.geometry string, fence string) -> bool
# Whether the point or geometry has only points of the border in common with the fence.
geo:touches(longitude double, latitude double, fence string) -> bool
geo:touches(geo.json.geometry string, fence string) -> bool
# Whether the point or geometry is inside of the fence.
geo:within(longitude double, latitude double, fence string) -> bool
geo:within(geo.json.geometry string, fence string) -> bool
"""

_WITH_STATE: Final = """
# An estimate of a value that is measured with noise.
kf:kalmanFilter(measured.value double) -> double
kf:kalmanFilter(measured.value double, measurement.noise.sd double) -> double
kf:kalmanFilter(measured.value double, measured.changing.rate double, measurement.noise.sd double,
    timestamp long) -> double
"""
_CONVERSIONS: Final = "\n".join(
    f"# {sentence_of(name)}\nunitconversion:{name}(p1 number) -> double" for name in UNIT_RATIOS
)

_AGGREGATORS: Final = """
# The texts of all events, joined.
str:groupConcat(key scalar) -> string
str:groupConcat(key scalar, separator string constant) -> string
str:groupConcat(key scalar, separator string constant, distinct bool constant) -> string
str:groupConcat(key scalar, separator string constant, distinct bool constant,
    order string constant =asc|desc) -> string
# The value below which p percent of the values are.
math:percentile(arg number, p double constant) -> double
# The median of the values.
stats:median(data number) -> double
# The JSON values of all events, as an array in a text.
json:group(json string|object) -> string
json:group(json string|object, distinct bool constant) -> string
json:group(json string|object, enclosing.element string constant) -> string
json:group(json string|object, enclosing.element string constant,
    distinct bool constant) -> string
# The JSON values of all events, as an array.
json:groupAsObject(json string|object) -> object
json:groupAsObject(json string|object, distinct bool constant) -> object
json:groupAsObject(json string|object, enclosing.element string constant) -> object
json:groupAsObject(json string|object, enclosing.element string constant,
    distinct bool constant) -> object
# A map with the key and the value of each event.
map:collect(key scalar, value any) -> object
# The maps of all events, merged.
map:merge(map object) -> object
# A list with the value of each event.
list:collect(value any) -> object
list:collect(value any, is.distinct bool constant) -> object
# The lists of all events, joined.
list:merge(list object) -> object
list:merge(list object, is.distinct bool constant) -> object
"""


def _is_percent(arguments: tuple[Argument, ...]) -> Objection | None:
    percent = arguments[1].value
    if isinstance(percent, float) and 0 < percent <= 100:
        return None
    return Objection(Reason.VALUE, "takes a percentage above 0 and up to 100.0", 1)


_TOKENIZERS: Final = """
# An event for each part of the text between matches of the pattern.
str:tokenize(input.string string, regex string) -> token string
str:tokenize(input.string string, regex string, distinct bool) -> token string
# An event for each value at the path, as a text.
json:tokenize(json string|object, path string) -> jsonElement string
json:tokenize(json string|object, path string, fail bool constant) -> jsonElement string
# An event for each value at the path.
json:tokenizeAsObject(json string|object, path string) -> jsonElement object
json:tokenizeAsObject(json string|object, path string, fail bool constant) -> jsonElement object
# An event for each entry of the maps.
map:tokenize(map object, map object ..) -> key object, value object
# An event for each value of the lists.
list:tokenize(list object, list object ..) -> index int, value object
"""

_STATEFUL: Final = """
# Drop events whose key occurred within the time.
unique:deduplicate(unique.key scalar, time.interval int|long constant)
# Order late events by time, with a delay as long as the latest event was late.
reorder:kslack(timestamp long)
reorder:kslack(timestamp long, timeout long constant)
reorder:kslack(timestamp long, discard.late.arrival bool constant)
reorder:kslack(timestamp long, timeout long constant, max.k long constant)
reorder:kslack(timestamp long, timeout long constant, discard.late.arrival bool constant)
reorder:kslack(timestamp long, timeout long constant, max.k long constant, discard bool constant)
"""

_PRIORITY: Final = """
# Events of a key until its priority has sunk to 0, by one in each time span.
priority:time(unique.key scalar attribute, priority int|long attribute, timeout int|long constant)
"""
_SMOOTHED: Final = """
# Local extremes of values that a Kalman filter has smoothed.
{0}:kalmanMinMax(attribute number attribute, q double constant, r double constant,
    window.size int constant, extrema.type string constant =min|max|minmax) -> extremaType string
# Local extremes of values that a Gaussian kernel has smoothed.
{0}:kernelMinMax(attribute number attribute, bandwidth int|double constant,
    window.size int constant, extrema.type string constant =min|max|minmax) -> extremaType string
"""
_SMOOTHED_MAX: Final = 1000
#: Most frequent values of a batch, or rarest ones: as many attributes as the last argument says.
_RANKED: Final = """
# The k {order} frequent values of each n events.
extrema:{side}KLengthBatch(attribute scalar attribute, window.length int constant,
    k.value int constant)
# The k {order} frequent values of each time span.
extrema:{side}KTimeBatch(attribute scalar attribute, time.window int|long constant,
    k.value int constant)
extrema:{side}KTimeBatch(attribute scalar attribute, time.window int|long constant,
    start.time int|long constant, k.value int constant)
"""
_RANKS_MAX: Final = 100

# Measurements, which a cluster makes itself: the events pass.
_PASSING: Final = """
# The events pass unchanged; mesh top shows their rates.
throughput:throughput(argument any ..)
"""

_ADAPTIVE: Final = """
# Order late events by time, with a delay that adapts to a wanted quality.
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
# The last events for which an expression over the window holds.
expression(expression string)
# Batches that end where an expression over the window ceases to hold.
expressionBatch(expression string)
expressionBatch(expression string, include.triggering.event bool)
expressionBatch(expression string, include.triggering.event bool, stream.current.event bool)
"""
_WINDOWS_THAT_RUN: Final = """
# Every hop the events of the last time span, as a batch.
hopping(window.time int|long constant, hop.time int|long constant)
# The event with the greatest value among the last n.
extrema:maxByLength(attribute number|string attribute, window.length int constant)
# Batches of n events, of which the one with the greatest value is emitted.
extrema:maxByLengthBatch(attribute number|string attribute, window.length int constant)
# The event with the greatest value of the last time span.
extrema:maxByTime(attribute number|string attribute, window.time int|long constant not-negative)
# Batches of a time span, of which the event with the greatest value is emitted.
extrema:maxByTimeBatch(attribute number|string attribute, window.time int|long constant)
extrema:maxByTimeBatch(attribute number|string attribute, window.time int|long constant,
    start.time int|long constant)
# The event with the least value among the last n.
extrema:minByLength(attribute number|string attribute, window.length int constant)
# Batches of n events, of which the one with the least value is emitted.
extrema:minByLengthBatch(attribute number|string attribute, window.length int constant)
# The event with the least value of the last time span.
extrema:minByTime(attribute number|string attribute, window.time int|long constant not-negative)
# Batches of a time span, of which the event with the least value is emitted.
extrema:minByTimeBatch(attribute number|string attribute, window.time int|long constant)
extrema:minByTimeBatch(attribute number|string attribute, window.time int|long constant,
    start.time int|long constant)
# The last event of each key.
unique:ever(unique.key scalar attribute, unique.key scalar attribute ..)
# Batches by a timestamp in the events, with the last event of each key.
unique:externalTimeBatch(unique.key scalar attribute, time.stamp long attribute,
    window.time int|long constant)
unique:externalTimeBatch(unique.key scalar attribute, time.stamp long attribute,
    window.time int|long constant, start.time int|long constant)
unique:externalTimeBatch(unique.key scalar attribute, time.stamp long attribute,
    window.time int|long constant, start.time int|long constant, time.out int|long constant)
unique:externalTimeBatch(unique.key scalar attribute, time.stamp long attribute,
    window.time int|long constant, start.time int|long constant, time.out int|long constant,
    replace.time.stamp.with.batch.end.time bool constant)
# The first event of each key.
unique:first(unique.key scalar attribute, unique.key scalar attribute ..)
# Batches of n events, with the first event of each key.
unique:firstLengthBatch(unique.key scalar attribute, window.length int constant)
# Batches of a time span, with the first event of each key.
unique:firstTimeBatch(unique.key scalar attribute, window.time int|long constant)
unique:firstTimeBatch(unique.key scalar attribute, time int|long constant,
    start int|long constant)
# The last n events, with the last event of each key.
unique:length(unique.key scalar attribute, window.length int constant)
# Batches of n events, with the last event of each key.
unique:lengthBatch(unique.key scalar attribute, window.length int constant)
# The events of the last time span, with the last event of each key.
unique:time(unique.key scalar attribute, window.time int|long constant not-negative)
# Batches of a time span, with the last event of each key.
unique:timeBatch(unique.key scalar attribute, window.time int|long constant)
unique:timeBatch(unique.key scalar attribute, window.time int|long constant,
    start int|long constant)
# Batches of a time span or n events, with the last event of each key.
unique:timeLengthBatch(unique.key scalar attribute, window.time int|long constant,
    window.length int constant)
unique:timeLengthBatch(unique.key scalar attribute, window.time int|long constant,
    start.time int|long constant, window.length int constant)
"""


def _takes_both_times(arguments: tuple[Argument, ...]) -> str | None:
    return _takes_time(arguments) or _takes_time(arguments[::-1])


def _keeps_times(arguments: tuple[Argument, ...]) -> Objection | None:
    if arguments[5:] and arguments[5].value is True:
        what = "keeps the time of each event"
        hint = "Write false; externalTimeBatch(time, 1 min, 0, 5 min, true) replaces times."
        return Objection(Reason.VALUE, what, 5, hint)
    return None


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


def _ranked(side: str, order: str) -> dict[str, Signature]:
    """Functions that add the values of the highest ranks with their counts: Top1Element .."""

    def adds(arguments: tuple[Argument, ...]) -> tuple[Attribute, ...]:
        count = int(arguments[-1].value or 0)
        return ranked_attributes(side.capitalize(), arguments[0].type, count)

    by_name = signatures(
        _RANKED.format(side=side, order=order), NameKind.STREAM_PROCESSOR, runs=True
    )
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
    | _ranked("top", "most")
    | _ranked("bottom", "least")
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
    rules={"unique:externalTimeBatch": _keeps_times},
    restrictions={
        **dict.fromkeys(_NEED_TIME_OR_LENGTH, _takes_time),
        "hopping": _takes_both_times,
        "unique:externalTimeBatch": _takes_time_after_key,
    },
)
