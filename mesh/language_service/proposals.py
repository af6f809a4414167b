"""Proposals of the completion, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mesh.model import names

if TYPE_CHECKING:
    from mesh.model.app import AppSpec


class ProposalKind(StrEnum):
    """Kind of a proposal, for its icon."""

    KEYWORD = "keyword"
    STREAM = "stream"
    ATTRIBUTE = "attribute"
    FUNCTION = "function"
    WINDOW = "window"
    ANNOTATION = "annotation"
    OPTION = "option"
    VALUE = "value"
    TYPE = "type"


@dataclass(frozen=True, slots=True)
class Proposal:
    """One text that may be written."""

    label: str
    kind: ProposalKind
    #: A signature, a type, a default.
    detail: str = ""
    doc: str = ""
    #: The text to insert; empty for the label.
    insert: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """Proposals that replace the part of a word before the place."""

    #: Offset of the replaced part.
    start: int
    proposals: tuple[Proposal, ...]


@dataclass(frozen=True, slots=True)
class ClusterStream:
    """A stream of an app that runs in the connected cluster."""

    app: str
    name: str
    #: ``item string, price double``.
    attributes: str

    @property
    def subject(self) -> str:
        """The subject to which clients publish its events."""
        return names.subject(self.app, self.name)

    @property
    def js_stream(self) -> str:
        """The JetStream stream that stores them."""
        return names.js_stream(self.app, self.name)


def streams_of(spec: AppSpec) -> list[ClusterStream]:
    """The streams of an app that are its own, each once."""
    schemas = {one.stream.name: one.stream for one in spec.channels if not one.foreign}
    return [
        ClusterStream(spec.name, name, ", ".join(f"{a.name} {a.type}" for a in schema.attributes))
        for name, schema in schemas.items()
    ]
