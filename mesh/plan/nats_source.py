"""Sources that are JetStream streams: ``@source(type='nats', stream='ORDERS', destination='o.>')``.

Such a stream is read like the app's own channels, by sequence and exactly once. It is never
changed: nothing is written to it, and undeploying the app removes nothing from it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mesh.errors import not_supported
from mesh.model.app import Channel

if TYPE_CHECKING:
    from mesh.language.syntax import Annotation
    from mesh.model.types import StreamSchema

TYPE: Final = "nats"
#: Options of ``type='nats'`` here; ``@dist`` and ``@map`` may be nested as in any source.
_OPTIONS: Final = ("type", "stream", "destination")
_STREAM_NAME: Final = re.compile(r"[^\s.*>/\\]+\Z")
_SUBJECT: Final = re.compile(r"[^\s.*>]+(\.[^\s.*>]+|\.\*)*(\.>)?\Z|[*](\.[^\s.>]+)*(\.>)?\Z|>\Z")


def check_source(source: Annotation) -> None:
    """Refuse a source that can't be run yet, with a hint at those that can; MESH-P900."""
    kind = source.get("type") or ""
    if kind != TYPE:
        raise not_supported(
            f'@source of type "{kind}"',
            source.position,
            hint="Publish events to the stream's subject; or read a JetStream stream: "
            "@source(type='nats', stream='NAME').",
        )
    for name, _ in source.elements:
        if name is not None and name not in _OPTIONS:
            raise not_supported(
                f'option "{name}" of a source of type "nats"',
                source.position,
                hint="It has stream and destination; servers and users are those of the mesh.",
            )
    stream = source.get("stream")
    if stream is None:
        raise not_supported(
            "a source of type 'nats' without a JetStream stream",
            source.position,
            hint="Events of a bare subject are lost without a subscriber: add a stream over "
            "it ('nats stream add'), and name that: stream='NAME'.",
        )
    if not _STREAM_NAME.match(stream):
        raise not_supported(f'"{stream}" as the name of a JetStream stream', source.position)
    subject = source.get("destination")
    if subject is not None and not _SUBJECT.match(subject):
        raise not_supported(f'"{subject}" as a subject to read', source.position)
    for mapper in source.annotations:
        if mapper.name.lower() == "map":
            _check_mapper(mapper)


def _check_mapper(mapper: Annotation) -> None:
    is_plain = not mapper.annotations and len(mapper.elements) == 1
    if (mapper.get("type") or "").lower() != "json" or not is_plain:
        raise not_supported(
            "@map in a source of type 'nats', but for @map(type='json')",
            mapper.position,
            hint="A message is JSON with the attributes' names, or its Content-Type says that it "
            "is MessagePack or Arrow.",
        )


def foreign_channel(app: str, schema: StreamSchema, source: Annotation) -> Channel | None:
    """The stream that ``source`` reads as a channel; None for a source of another type."""
    stream = source.get("stream")
    if source.get("type") != TYPE or stream is None:
        return None
    return Channel(app, schema, foreign=stream, reads=source.get("destination") or ">")
