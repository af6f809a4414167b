"""Lineage of an event: the inputs without which it would be another one, as a tree.

And streams whose stored events are read for an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.model.values import JsonObject

if TYPE_CHECKING:
    from mesh.model.app import Channel


@dataclass(frozen=True, slots=True)
class Cause:
    """An event with its causes."""

    #: Of the app's text.
    stream: str
    js_stream: str
    sequence: int
    #: Place of the event in its message, from 0.
    index: int
    #: Its own time, milliseconds since 1970.
    time_ms: int
    event: JsonObject
    #: Group that emitted it; empty for one that came from outside.
    group: str = ""
    inputs: tuple[Cause, ...] = ()
    #: Inputs that are not listed, because there are many.
    more: int = 0
    #: Why its inputs are not known, or not all; empty if they are.
    note: str = ""


#: What the start of a run takes, in events that a run processes in that time.
RUN_COST: Final = 3_000


@dataclass(slots=True)
class Budget:
    """Work that one answer may still take."""

    #: Messages that are read.
    messages: int = 200_000
    #: Events that are explained by recomputing a group.
    replays: int = 40
    #: Events that recomputations may run, ``RUN_COST`` for each run among them.  The event that is
    #: asked about is explained in any case.
    work: int = 30_000_000
    #: Events of the answer.
    events: int = 500
    #: By (stream, sequence, index): events that were explained already.
    causes: dict[tuple[str, int, int], Cause] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredStream:
    """The place of the stored events for a stream of a text."""

    stream: str
    #: JetStream streams and the subjects of events in them.
    places: tuple[tuple[str, str], ...]
    #: A channel with the schema in which events are read.
    channel: Channel
