"""Annotations that the engine reads when it creates an app, with its checks.

Other annotations pass anywhere.  Names and keys are compared without case.

``@source``, ``@sink`` and ``@store``: kinds, options, mappers and destinations, checked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from zoneinfo import available_timezones

from mesh.connect.places import PAYLOAD_TEMPLATE
from mesh.errors import MeshError, not_supported
from mesh.functions.catalogue import (
    EXTENSIONS,
    CallRefusal,
    Extension,
    ExtensionRole,
    check_options,
    find_extension,
    instead_of_kind,
)
from mesh.language.parser import parse_expression
from mesh.language.syntax import Literal, TimeUnit, Variable, find
from mesh.plan.aggregation_tables import DURATIONS, duration_of
from mesh.plan.diagnostics import nearest, unknown_attribute
from mesh.plan.expressions import refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.language.syntax import (
        AggregationDefinition,
        Annotation,
        AttributeDefinition,
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


def check_source(source: Annotation, attributes: Sequence[AttributeDefinition]) -> None:
    """Refuse a ``@source`` that the engine refuses; MESH-L223 or MESH-L224."""
    extension = _extension(source, ExtensionRole.SOURCE)
    _check_options(source, extension, _options(source), attributes)
    mapper = _mapper(source, ExtensionRole.SOURCE_MAPPER)
    mapped = find(mapper.annotations, "attributes") if mapper is not None else None
    if mapper is not None and mapped is not None:
        _check_mapped(mapper, mapped, attributes)


def _check_mapped(
    mapper: Annotation, mapped: Annotation, attributes: Sequence[AttributeDefinition]
) -> None:
    keys = [key for key, _ in mapped.elements]
    if None in keys and any(key is not None for key in keys):
        way_out = "Give a name to all of them, as in a='$.x', or to none."
        raise wrong(mapped, "@attributes has elements with and without names", way_out)
    names = [attribute.name for attribute in attributes]
    if None in keys:
        if len(keys) != len(names):
            raise wrong(mapped, f"@attributes has {len(keys)} elements, the stream {len(names)}")
        return
    mapped_keys = set(keys)
    missing = next((name for name in names if name not in mapped_keys), None)
    if missing is not None:
        odd = next((key for key in keys if key is not None and key not in names), None)
        hint = nearest(odd, names) if odd is not None else None
        raise wrong(mapped, f'@attributes says nothing of attribute "{missing}"', hint)


def check_sink(sink: Annotation, attributes: Sequence[AttributeDefinition]) -> None:
    """Refuse a ``@sink`` that the engine refuses; MESH-L223 or MESH-L224."""
    extension = _extension(sink, ExtensionRole.SINK)
    mapper = _mapper(sink, ExtensionRole.SINK_MAPPER)
    if mapper is not None:
        _check_payload(mapper, attributes)
    options = _options(sink)
    distribution = find(sink.annotations, "distribution")
    if distribution is None:
        _check_options(sink, extension, options, attributes)
        return
    strategy = _extension(distribution, ExtensionRole.DISTRIBUTION, key="strategy")
    settings = _options(distribution, but="strategy")
    _check_options(distribution, strategy, settings, attributes)
    destinations = [a for a in distribution.annotations if a.name.lower() == "destination"]
    if not destinations:
        hint = "Write @destination(..) in it for each."
        raise wrong(distribution, "@distribution has no destination", hint)
    for destination in destinations:
        _check_options(destination, extension, options | _options(destination), attributes)


def check_store(store: Annotation) -> None:
    """Refuse a ``@store`` of a kind that is not known; MESH-L223 or MESH-L224."""
    _extension(store, ExtensionRole.STORE)


def _extension(annotation: Annotation, role: ExtensionRole, key: str = "type") -> Extension:
    name = annotation.get(key)
    reference = annotation.get("ref")
    if (
        name is None
        and reference is not None
        and role in (ExtensionRole.SOURCE, ExtensionRole.SINK)
    ):
        raise wrong(
            annotation,
            f'@{annotation.name} has no type, and reference "{reference}" has none here',
            f"Write @{annotation.name}(type='..', ref='{reference}'), or give the reference its "
            "type in the file of receiver.refs_file of each manager.",
        )
    if name is None:
        of_reference = f", ref='{reference}'" if reference is not None else ""
        kind = "rdbms" if role is ExtensionRole.STORE else ".."
        raise wrong(
            annotation,
            f'@{annotation.name} has no element "{key}"',
            f"Write @{annotation.name}({key}='{kind}'{of_reference}).",
        )
    extension = find_extension(role, name)
    if isinstance(extension, CallRefusal):
        raise refused(extension, "MESH-L224", annotation.position)
    if not extension.runs:
        # At once: its other options and annotations have a meaning that is not known here.
        raise not_supported(
            f'{role} "{name}"', annotation.position, hint=instead_of_kind(role, name) or _run(role)
        )
    return extension


def _run(role: ExtensionRole) -> str:
    """A hint with the kinds of a role that run."""
    runs = ", ".join(kind.name for kind in EXTENSIONS[role].values() if kind.runs)
    return f"{str(role).capitalize()}s that run: {runs}; see docs/connectors.md."


def _mapper(annotation: Annotation, role: ExtensionRole) -> Annotation | None:
    mappers = [a for a in annotation.annotations if a.name.lower() == "map"]
    if len(mappers) > 1:
        raise wrong(mappers[1], "@map is given twice")
    if not mappers:
        return None
    _extension(mappers[0], role)
    return mappers[0]


def _check_payload(mapper: Annotation, attributes: Iterable[AttributeDefinition]) -> None:
    names = {attribute.name: attribute for attribute in attributes}
    payloads = [a for a in mapper.annotations if a.name.lower() == "payload"]
    if len(payloads) > 1:
        raise wrong(payloads[1], "@payload is given twice")
    payload = payloads[0] if payloads else None
    keys = [key for key, _ in payload.elements] if payload is not None else []
    if payload is not None and len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        message = "values without names" if twice is None else f'values for "{twice}"'
        raise wrong(payload, f"@payload has two {message}")
    if _options(mapper).get("mustache.enabled", "").lower() == "true":
        # Its tags have another form; the mapper checks them.
        return
    for _, text in payload.elements if payload is not None else ():
        for match in PAYLOAD_TEMPLATE.finditer(text):
            name = match[1] if match[1] is not None else match[2]
            if name not in names:
                message = f'@payload names attribute "{name}", which the stream doesn\'t have'
                raise wrong(payload or mapper, message, nearest(name, names))


def _options(annotation: Annotation, but: str = "type") -> dict[str, str]:
    return {key: text for key, text in annotation.elements if key is not None and key != but}


def _check_options(
    annotation: Annotation,
    extension: Extension,
    options: dict[str, str],
    attributes: Iterable[AttributeDefinition],
) -> None:
    refusal = check_options(extension, options, [attribute.name for attribute in attributes])
    if refusal is not None:
        raise refused(refusal, "MESH-L224", annotation.position)


def wrong(annotation: Annotation, message: str, hint: str | None = None) -> MeshError:
    """MESH-L223: the engine refuses an annotation."""
    return MeshError("MESH-L223", message, hint=hint, position=annotation.position)
