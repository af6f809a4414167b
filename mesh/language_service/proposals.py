"""Proposals of the completion, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
