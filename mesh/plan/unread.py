"""Sources of an app that are not opened, because nothing reads their streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.language.parser import parse_app
from mesh.plan.bind import bind
from mesh.plan.doors import door_of

if TYPE_CHECKING:
    from mesh.model.app import AppSpec


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
