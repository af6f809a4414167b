"""Addresses of JetStream streams with past events.

nats:OLD_ORDERS                    a stream of the mesh's own servers
nats:OLD_ORDERS#orders.eu.>        its messages with such a subject

The stream of an app's channel is one as well; other streams of the mesh are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.model import names
from mesh.model.types import AttributeType
from mesh.plan.history_files import unusable
from mesh.plan.nats_source import is_stream_name, is_subject

if TYPE_CHECKING:
    from mesh.model.types import StreamSchema

_STREAM: Final = "nats:"


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """A JetStream stream, or its messages with some subjects."""

    js_stream: str
    #: With wildcards; empty for all events.
    subject: str = ""

    def __str__(self) -> str:
        """For messages."""
        return f"JetStream stream {self.js_stream}"

    @property
    def app(self) -> str | None:
        """The app whose channel it is; None for a stream of others."""
        is_mesh = names.is_mesh_stream(self.js_stream)
        return names.app_of_js_stream(self.js_stream) if is_mesh else None

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subjects of its events; none for all messages."""
        if self.subject:
            return (self.subject,)
        # Markers of writers are beside the events of an app.
        return (names.subject(self.app, ">"),) if self.app is not None else ()


def is_stream(path: str) -> bool:
    """Whether a path of a history is a JetStream stream."""
    return path.startswith(_STREAM)


def stream_of(path: str) -> StreamPlace:
    """The stream of an address; MESH-C161 for one that names none, or one of the mesh's records."""
    js_stream, _, subject = path.removeprefix(_STREAM).partition("#")
    if not is_stream_name(js_stream) or (subject and not is_subject(subject)):
        raise unusable(
            f"{path} names no JetStream stream",
            "It is nats:STREAM, or nats:STREAM#SUBJECT, on the mesh's own servers.",
        )
    place = StreamPlace(js_stream, subject)
    if names.is_mesh_stream(js_stream) and place.app is None:
        raise unusable(
            f"{place} has no events of an app", "It is one of the mesh's buckets or records."
        )
    return place


def check_time(place: StreamPlace, time: str, stream: StreamSchema) -> None:
    """Refuse an attribute of a stream that has no times; MESH-C161."""
    kinds = {one.name: one.type for one in stream.attributes}
    if time and kinds.get(time) not in (AttributeType.LONG, AttributeType.INT):
        raise unusable(
            f'events of {place} have no times in "{time}"',
            "Times are in an attribute of type long, milliseconds since 1970; without one they are "
            "those of the messages.",
        )
