"""Warnings of a deploy: sources that nothing reads, options that mean less, places of tables.

Annotations that are probably misspelt are among them: the engine passes any annotation, so they do
nothing.

@sorce(type='http', ..)      opens no source
@App:nam('Shop')             names no app
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mesh.connect import registry
from mesh.connect.spec import Role
from mesh.functions.catalogue import did_you_mean
from mesh.language.parser import parse_app
from mesh.plan.bind import bind
from mesh.plan.connectors import connector_of
from mesh.plan.stores import stored_table_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from mesh.connect.spec import Option, Spec
    from mesh.language.syntax import Annotation
    from mesh.model.app import AppSpec
    from mesh.plan.bound import BoundApp
    from mesh.plan.connectors import Connector


#: A name in single braces.
_BRACES: Final = re.compile(r"(?<!\{)\{(\w+)\}(?!\})")

#: Names by the kind of element that has them; those of the engine without a meaning here as well.
APP: Final = (
    "App:name", "App:description", "App:playback", "App:guarantee", "App:aggTimeZone",
    "App:transportChannelCreationEnabled", "App:statistics", "App:async", "App:enforceOrder",
)  # fmt: skip
STREAM: Final = ("source", "sink", "OnError", "Async")
TABLE: Final = ("PrimaryKey", "Index", "store")
AGGREGATION: Final = ("store", "purge", "PartitionById", "dist")
QUERY: Final = ("info", "dist")
PARTITION: Final = ("purge", "dist")


def warnings_of(spec: AppSpec) -> tuple[str, ...]:
    """Sentences about sources that are not opened, options that mean less, and tables."""
    bound = bind(parse_app(spec.text))
    return (
        *misspelt_annotations(bound),
        *unread_sources(bound, spec),
        *noted_options(bound),
        *table_places(bound),
    )


def noted_options(bound: BoundApp) -> tuple[str, ...]:
    """A sentence for each note of a declaration whose options an app gives."""
    notes: dict[str, list[str]] = {}
    for stream, annotation in bound.stream_annotations:
        if annotation.name.lower() not in ("source", "sink"):
            continue
        for spec, of, options in _declared(connector_of(annotation)):
            for name in options:
                option = spec.option(name)
                note = (
                    None
                    if option is None
                    else option.note
                    or _single_braces(option, options[name], bound.stream(stream).names)
                )
                if note:
                    key = f' of {of} of stream "{stream}": {note}'
                    notes.setdefault(key, []).append(name)
    return tuple(f"{', '.join(names)}{text}" for text, names in notes.items())


def _single_braces(option: Option, text: str, attributes: Collection[str]) -> str | None:
    """A note about an attribute in single braces, which is no place for its value."""
    found = _BRACES.findall(text) if option.is_dynamic else []
    near = next((name for name in found if name in attributes), None)
    return f"{{{near}}} stays as it is: write {{{{{near}}}}} for the attribute" if near else None


def _declared(connector: Connector) -> Iterator[tuple[Spec, str, Mapping[str, str]]]:
    """The declarations of a connector and its mapper, with their names and given options."""
    spec = registry.find(connector.role, connector.type)
    if spec is not None:
        for options in (connector.options, *connector.destinations):
            yield spec, connector.kind, options
    mapper = Role.SOURCE_MAPPER if connector.role is Role.SOURCE else Role.SINK_MAPPER
    spec = registry.find(mapper, connector.map.type)
    if spec is not None:
        yield spec, f"mapper {connector.map.type} of {connector.kind}", connector.map.options


def table_places(bound: BoundApp) -> tuple[str, ...]:
    """A sentence for each table in a database: whether it is a copy, or is read there."""
    sentences = []
    for table in bound.tables:
        store = stored_table_of(table)
        if store is None:
            continue
        name = table.schema.name
        if store.is_in_state:
            sentences.append(
                f'table "{name}" is copied when its group first starts: rows that other programs '
                "write later are not seen; with kept='false' they are"
            )
        elif store.cache is not None:
            sentences.append(
                f'table "{name}" is read in its database, and some rows stay at hand: changes of '
                "other programs are seen when they are read again"
            )
        else:
            sentences.append(
                f'table "{name}" is read in its database: rows that other programs write are seen '
                "in the next run of events"
            )
    return tuple(sentences)


def unread_sources(bound: BoundApp, spec: AppSpec) -> tuple[str, ...]:
    """A sentence for each source of an app that no group has; ``bound`` is its text as bound."""
    opened = {stream for group in spec.groups for stream in group.sources}
    return tuple(
        f'{connector_of(annotation).kind} of stream "{stream}" is not opened: '
        "no query and no sink reads the stream"
        for stream, annotation in bound.stream_annotations
        if annotation.name.lower() == "source" and stream not in opened
    )


def misspelt_annotations(bound: BoundApp) -> tuple[str, ...]:
    """A sentence for each annotation without a meaning whose name is near to one with a meaning."""
    return tuple(dict.fromkeys(_sentences(bound)))


def _sentences(bound: BoundApp) -> Iterator[str]:
    yield from _of("the app", bound.annotations, APP)
    for stream, annotation in bound.stream_annotations:
        yield from _of(f'stream "{stream}"', [annotation], STREAM)
    for table in bound.tables:
        yield from _of(f'table "{table.schema.name}"', table.annotations, TABLE)
    for aggregation in bound.aggregations:
        name = aggregation.schema.name
        yield from _of(f'aggregation "{name}"', aggregation.annotations, AGGREGATION)
    for partition in bound.partitions:
        yield from _of("a partition", partition.annotations, PARTITION)
    for query in bound.all_queries:
        yield from _of(f'query "{query.name}"', query.annotations, QUERY)


def _of(owner: str, annotations: Iterable[Annotation], names: tuple[str, ...]) -> Iterator[str]:
    known = {name.lower() for name in names}
    for annotation in annotations:
        if annotation.name.lower() in known:
            continue
        hint = did_you_mean(annotation.name, [*names])
        if hint is not None:
            near = hint.replace('"', "@", 1).replace('"', "", 1)
            yield f"@{annotation.name} of {owner} has no effect: {near[0].lower()}{near[1:]}"
