"""A fork: another app over the input of an app, from a place in the past."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.model.values import JsonMapping


@dataclass(frozen=True, slots=True)
class ForkOrigin:
    """The origin of a fork, as its record keeps it."""

    #: The app whose input it reads, and that app's incarnation.
    app: str
    incarnation: str
    #: Revision of the backup whose state it began with; empty for none.
    backup: str = ""
    #: By JetStream stream of its input: the last sequence that it does not read.  Streams that are
    #: not named are read from their oldest message.
    begins: Mapping[str, int] = field(default_factory=dict, hash=False)
    #: By JetStream stream of its input: the last sequence that it reads; empty for no end.
    until: Mapping[str, int] = field(default_factory=dict, hash=False)
    #: SiddhiQL as it was given, with sources and sinks; empty for that of the app.
    text: str = ""


@dataclass(frozen=True, slots=True)
class Forked:
    """Result of a fork."""

    app: str
    of: str
    #: As ``ForkOrigin``.
    backup: str
    begins: Mapping[str, int]
    until: Mapping[str, int]
    #: Messages of the app's inner channels that were copied for it.
    copied: int
    #: What a person has to know about its beginning, as sentences.
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Promoted:
    """Result of a promotion: the app has the fork's text, and the fork is being removed."""

    app: str
    fork: str
    #: The changes of the app, as ``mesh diff --output json`` prints them; None without any.
    changes: JsonMapping | None
