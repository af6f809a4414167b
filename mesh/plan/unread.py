"""Warnings of a deploy: sources that nothing reads, and where the rows of tables are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.language.parser import parse_app
from mesh.plan.bind import bind
from mesh.plan.doors import door_of
from mesh.plan.stores import stored_table_of

if TYPE_CHECKING:
    from mesh.model.app import AppSpec


def warnings_of(spec: AppSpec) -> tuple[str, ...]:
    """A sentence for each source that is not opened, and for each table in a database."""
    return (*unread_sources(spec), *table_places(spec))


def table_places(spec: AppSpec) -> tuple[str, ...]:
    """A sentence for each table in a database: whether it is a copy, or is read there."""
    found = []
    for table in bind(parse_app(spec.text)).tables:
        store = stored_table_of(table)
        if store is None:
            continue
        name = table.schema.name
        if store.is_kept:
            found.append(
                f'table "{name}" is copied when its group first starts: rows that other programs '
                "write later are not seen; with kept='false' they are"
            )
        elif store.cache is not None:
            found.append(
                f'table "{name}" is read in its database, and some rows stay at hand: changes of '
                "other programs are seen when they are read again"
            )
        else:
            found.append(
                f'table "{name}" is read in its database: rows that other programs write are seen '
                "in the next run of events"
            )
    return tuple(found)


def unread_sources(spec: AppSpec) -> tuple[str, ...]:
    """A sentence for each source of an app that no group has."""
    bound = bind(parse_app(spec.text))
    opened = {stream for group in spec.groups for stream in group.sources}
    return tuple(
        f'{door_of(annotation).connector} of stream "{stream}" is not opened: '
        "no query and no sink reads the stream"
        for stream, annotation in bound.stream_annotations
        if annotation.name.lower() == "source" and stream not in opened
    )
