"""Annotations that the engine reads when it creates an app, with its checks.

Other annotations pass anywhere.  Names and keys are compared without case.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from zoneinfo import available_timezones

from mesh.errors import MeshError
from mesh.language.parser import parse_expression
from mesh.language.syntax import Literal, TimeUnit, Variable, find
from mesh.plan.aggregation_tables import DURATIONS, duration_of
from mesh.plan.connections import check_sink, check_source, check_store, wrong
from mesh.plan.name_errors import nearest, unknown_attribute

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.language.syntax import (
        AggregationDefinition,
        Annotation,
        StreamDefinition,
        TableDefinition,
    )
    from mesh.model.types import StreamSchema
    from mesh.plan.diagnostics import Diagnostics

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}\Z")
_ASYNC_NUMBERS: Final = ("buffer.size", "workers", "batch.size.max")
_PLAYBACK: Final = ("idle.time", "increment")
#: STORE is of later releases of the engine; here the error stream has failed events by LOG, too.
_ON_ERROR: Final = ("log", "stream", "store")
_DAY_MS: Final = 86_400_000
#: Minimum retention of an aggregation's values, by duration.
_RETENTION_MS_MIN: Final = {
    TimeUnit.SECOND: 120_000,
    TimeUnit.MINUTE: 120 * 60_000,
    TimeUnit.HOUR: 25 * 3_600_000,
    TimeUnit.DAY: 32 * _DAY_MS,
    TimeUnit.MONTH: 13 * 30 * _DAY_MS,
}


def named(annotation: Annotation, name: str) -> bool:
    """Whether the annotation's name is ``name``, which is in lower case."""
    return annotation.name.lower() == name


def check_app(annotations: Iterable[Annotation], problems: Diagnostics) -> None:
    """Check an annotation of the app itself; MESH-L223 if the engine refuses it."""
    names = 0
    for annotation in annotations:
        names += named(annotation, "app:name")
        if named(annotation, "app:name") and names > 1:
            problems.add(wrong(annotation, "@App:name is given twice"))
        elif named(annotation, "app:async"):
            hint = "Write @Async before the definition of a stream."
            problems.add(wrong(annotation, "@Async is for streams, not for an app", hint))
        elif named(annotation, "app:playback"):
            problems.attempt(_check_playback, annotation)
        elif named(annotation, "app:aggtimezone"):
            problems.attempt(_check_zone, annotation)
        elif named(annotation, "app:statistics"):
            problems.attempt(_number, annotation, "interval")


def _check_zone(annotation: Annotation) -> None:
    zone = annotation.get() or ""
    if zone not in available_timezones():
        raise wrong(
            annotation,
            f'@{annotation.name} has no time zone "{zone}"',
            "Write the id of a zone: @App:aggTimeZone('Europe/Berlin').",
        )


def _check_playback(annotation: Annotation) -> None:
    elements = {key.lower(): text for key, text in annotation.elements if key is not None}
    for key in elements:
        if key not in _PLAYBACK:
            raise wrong(
                annotation,
                f'@App:playback has no element "{key}"',
                nearest(key, _PLAYBACK) or "It has idle.time and increment.",
            )
    if len(elements) == 1:
        missing = next(key for key in _PLAYBACK if key not in elements)
        raise wrong(annotation, f'@App:playback needs the element "{missing}" as well')
    for key in elements:
        time_in(annotation, key)


def playback_times(annotation: Annotation) -> tuple[int, int] | None:
    """``idle.time`` and ``increment`` of ``@App:playback`` in milliseconds; None without them.

    Raises:
        MeshError: MESH-L223 for one that is no time.
    """
    keys = {key.lower() for key, _ in annotation.elements if key is not None}
    if not keys.issuperset(_PLAYBACK):
        return None
    idle_ms, increment_ms = (time_in(annotation, key) for key in _PLAYBACK)
    return idle_ms, increment_ms


def check_stream(annotation: Annotation, definition: StreamDefinition) -> None:
    """Check a stream's annotation; MESH-L223 or MESH-L224 if the engine refuses it."""
    if named(annotation, "async"):
        for key in _ASYNC_NUMBERS:
            value = _number(annotation, key)
            if value is not None and value <= 0:
                raise wrong(annotation, f'"{key}" of @Async must be more than 0, not {value}')
    elif named(annotation, "onerror"):
        action = annotation.get("action")
        if action is None:
            hint = "Write @OnError(action='LOG') or @OnError(action='STREAM')."
            raise wrong(annotation, "@OnError has no action", hint)
        if action.lower() not in _ON_ERROR:
            hint = nearest(action, ("LOG", "STREAM")) or "It is LOG, STORE or STREAM."
            raise wrong(annotation, f'@OnError has no action "{action}"', hint)
    elif named(annotation, "source"):
        check_source(annotation, definition.attributes)
    elif named(annotation, "sink"):
        check_sink(annotation, definition.attributes)


def has_fault_stream(annotations: Iterable[Annotation]) -> bool:
    """Whether ``@OnError(action='STREAM')`` is among them."""
    annotation = find(tuple(annotations), "OnError")
    return annotation is not None and (annotation.get("action") or "").lower() == "stream"


# Tables


def check_table(definition: TableDefinition, schema: StreamSchema, problems: Diagnostics) -> None:
    """Check a table's annotations; MESH-L202, L223 or L224 if the engine refuses them."""
    keys = [a for a in definition.annotations if named(a, "primarykey")]
    refuse_second(definition.annotations, ("PrimaryKey", "Store"), problems)
    stores = [a for a in definition.annotations if named(a, "store")]
    before = problems.failures
    for annotation in stores:
        problems.attempt(check_store, annotation)
    if problems.failures > before:
        # Keys and indexes are written in another way for other stores.
        return
    has_store = bool(stores)
    indexed: set[str] = set()
    declared = frozenset(schema.names)
    for annotation in definition.annotations:
        if annotation in keys[:1]:
            problems.attempt(_attributes, annotation, schema, declared)
        elif named(annotation, "index"):
            problems.attempt(_check_index, annotation, schema, declared, indexed, has_store)


def _check_index(
    annotation: Annotation,
    schema: StreamSchema,
    declared: frozenset[str],
    indexed: set[str],
    has_store: bool,
) -> None:
    names = _attributes(annotation, schema, declared)
    if has_store:
        return
    if len(names) != 1:
        hint = "Write @Index('a') @Index('b')."
        raise wrong(annotation, f"@Index takes one attribute, not {len(names)}", hint)
    if names[0] in indexed:
        raise wrong(annotation, f'attribute "{names[0]}" has an index already')
    indexed.add(names[0])


def _attributes(
    annotation: Annotation, schema: StreamSchema, declared: frozenset[str]
) -> tuple[str, ...]:
    names = _texts(annotation)
    for name in names:
        if name not in declared:
            variable = Variable(name, position=annotation.position)
            error = unknown_attribute(variable, schema.attributes, f'table "{schema.name}"')
            if "," in name:
                parts = ", ".join(f"'{part.strip()}'" for part in name.split(","))
                error.hint = f"Each attribute is a text of its own: {parts}."
            raise error
    return names


def _texts(annotation: Annotation) -> tuple[str, ...]:
    return tuple(text for _, text in annotation.elements)


def primary_key(annotations: tuple[Annotation, ...]) -> tuple[str, ...]:
    """The attributes of a table's ``@PrimaryKey``, each once."""
    annotation = find(annotations, "PrimaryKey")
    return tuple(dict.fromkeys(_texts(annotation))) if annotation is not None else ()


def indexes(annotations: Iterable[Annotation]) -> tuple[str, ...]:
    """The attributes of a table's ``@Index``."""
    return tuple(text for a in annotations if named(a, "index") for text in _texts(a))


def index_lists(annotations: Iterable[Annotation]) -> tuple[tuple[str, ...], ...]:
    """The attributes of each ``@Index`` of a table in a store, each list once."""
    lists = (tuple(dict.fromkeys(_texts(a))) for a in annotations if named(a, "index"))
    return tuple(dict.fromkeys(names for names in lists if names))


# Aggregations and partitions


def check_aggregation(annotation: Annotation, definition: AggregationDefinition) -> None:
    """Check an aggregation's annotation; MESH-L223 or MESH-L224 if the engine refuses it."""
    if named(annotation, "store"):
        check_store(annotation)
    if named(annotation, "primarykey"):
        hint = "Leave it out: the key is the bucket and the group-by attributes."
        raise wrong(annotation, f'@PrimaryKey of aggregation "{definition.name}"', hint)
    if not named(annotation, "purge") or not _is_on(annotation):
        return
    time_in(annotation, "interval")
    retention = find(annotation.annotations, "retentionPeriod")
    if retention is None:
        return
    for key, text in retention.elements:
        unit = _retention_unit(retention, key, definition)
        if text.lower() == "all":
            continue
        _one_unit(retention, str(key), text)
        period_ms = _milliseconds(retention, str(key), text)
        if period_ms < _RETENTION_MS_MIN.get(unit, 0):
            raise wrong(
                retention,
                f'values by {unit} can\'t be purged after "{text}"',
                f"They are kept for {_RETENTION_MS_MIN[unit] // 1000} sec at least.",
            )


def _retention_unit(
    retention: Annotation, key: str | None, definition: AggregationDefinition
) -> TimeUnit:
    """The duration that ``key`` names, by which the aggregation has to be kept."""
    unit = duration_of(key) if key is not None else None
    if unit is None:
        said = f'names no duration with "{key}"' if key is not None else "has a time without a name"
        hint = nearest(key or "", [f"{one}" for one in DURATIONS])
        raise wrong(
            retention, f"@retentionPeriod {said}", hint or "Write sec='2 min', day='1 year'."
        )
    every = definition.every
    places = [DURATIONS.index(one) for one in every.units if one in DURATIONS]
    place = DURATIONS.index(unit)
    has_unit = min(places) <= place <= max(places) if every.is_range else place in places
    if places and not has_unit:
        raise wrong(retention, f'aggregation "{definition.name}" is not kept by {unit}')
    return unit


def _one_unit(annotation: Annotation, key: str, text: str) -> None:
    """Refuse a retention of several numbers, as the engine does."""
    if len(text.split()) > 2:
        message = f'"{text}" has more than one unit, as "{key}" of @{annotation.name}'
        raise wrong(annotation, message, "Write 90 sec, not 1 min 30 sec.")


def _is_on(annotation: Annotation) -> bool:
    """Whether ``enable`` is true or not given."""
    text = annotation.get("enable")
    if text is None:
        return True
    if text.lower() not in ("true", "false"):
        message = f'"enable" of @{annotation.name} is true or false, not "{text}"'
        raise wrong(annotation, message)
    return text.lower() == "true"


def refuse_second(
    annotations: Iterable[Annotation], names: Iterable[str], problems: Diagnostics
) -> None:
    """Report each annotation that occurs twice; ``names`` are those that must not."""
    for name in names:
        for annotation in [a for a in annotations if named(a, name.lower())][1:]:
            problems.add(wrong(annotation, f"@{name} is given twice"))


def check_partition(annotation: Annotation) -> None:
    """Check a partition's annotation; MESH-L223 if the engine refuses it."""
    if not named(annotation, "purge"):
        return
    for key in ("enable", "idle.period"):
        if annotation.get(key) is None:
            hint = "Write @purge(enable='true', interval='10 sec', idle.period='1 hour')."
            raise wrong(annotation, f'@purge has no element "{key}"', hint)
    _is_on(annotation)
    for key in ("interval", "idle.period"):
        time_in(annotation, key)


def time_in(annotation: Annotation, key: str) -> int:
    """The time of an element, milliseconds; 0 without it.

    Raises:
        MeshError: MESH-L223 for one that is no time.
    """
    text = annotation.get(key)
    return 0 if text is None else _milliseconds(annotation, key, text)


def _milliseconds(annotation: Annotation, key: str, text: str) -> int:
    try:
        time = parse_expression(text)
    except MeshError:
        time = None
    if not (isinstance(time, Literal) and time.is_time and isinstance(time.value, int)):
        message = f'"{text}" is no time, as "{key}" of @{annotation.name}'
        raise wrong(annotation, message, "Write 10 sec, or 1 hour 30 min.")
    return time.value


def _number(annotation: Annotation, key: str) -> int | None:
    text = annotation.get(key)
    if text is None:
        return None
    if not _NUMBER.match(text):
        message = f'"{text}" is no whole number, as "{key}" of @{annotation.name}'
        raise wrong(annotation, message)
    return int(text)
