"""Annotations that are probably misspelt: the engine passes any annotation, so they do nothing.

@sorce(type='http', ..)      opens no source
@App:nam('Shop')             names no app
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.functions.catalogue import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mesh.language.syntax import Annotation
    from mesh.plan.bound import BoundApp

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
