"""Sources that are JetStream streams: ``@source(type='nats', stream='ORDERS', destination='o.>')``.

Such a stream of the mesh's own servers is read like the app's own channels, by sequence and exactly
once.  It is never changed: nothing is written to it, and undeploying the app removes nothing of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, not_supported
from mesh.language.syntax import find
from mesh.model.app import Channel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.errors import Position
    from mesh.language.syntax import Annotation
    from mesh.model.types import StreamSchema

TYPE: Final = "nats"
_STREAM_NAME: Final = re.compile(r"[^\s.*>/\\]+\Z")
_SUBJECT: Final = re.compile(r"[^\s.*>]+(\.[^\s.*>]+|\.\*)*(\.>)?\Z|[*](\.[^\s.>]+)*(\.>)?\Z|>\Z")


def is_stream_name(name: str) -> bool:
    """Whether NATS takes a name for a JetStream stream."""
    return _STREAM_NAME.match(name) is not None


def is_subject(name: str) -> bool:
    """Whether NATS takes a name for a subject to read, with wildcards."""
    return _SUBJECT.match(name) is not None


def check_names(options: Mapping[str, str], position: Position) -> None:
    """Refuse names of streams and subjects that NATS refuses; MESH-P900."""
    texts = {name.lower(): text for name, text in options.items()}
    stream, subject = texts.get("stream"), texts.get("destination")
    if stream is not None and not is_stream_name(stream):
        raise not_supported(f'"{stream}" as the name of a JetStream stream', position)
    if subject is not None and not is_subject(subject):
        raise MeshError(
            "MESH-P232",
            f'option "destination" of source "nats" is no subject: "{subject}"',
            hint="Its tokens are between dots, with the wildcards * and >: orders.*.new",
            position=position,
        )
    if stream is None and subject is None:
        raise MeshError(
            "MESH-P231",
            'source "nats" needs one of the options "stream" and "destination"',
            hint="stream reads a JetStream stream exactly once, destination core subjects.",
            position=position,
        )


def foreign_channel(app: str, schema: StreamSchema, source: Annotation) -> Channel | None:
    """The stream that ``source`` reads as a channel; None for a source of another type."""
    stream, mapper = source.get("stream"), find(source.annotations, "map")
    if source.get("type") != TYPE or stream is None:
        return None
    return Channel(
        app,
        schema,
        foreign=stream,
        reads=source.get("destination") or ">",
        is_mapped=mapper is not None and mapper.get("type") == "json",
    )
