"""Messages between the session and its slots, over a Unix domain socket or TLS (``slot_network``).

And the rows that slots give to Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mesh.spark.shared_query.members import Member
    from mesh.spark.shared_query.work import Outcome


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of a slot."""

    pid: int
    #: File of its ``AtWork``; empty for a slot on another machine, which sends ``Working``.
    at_work: str


@dataclass(frozen=True, slots=True)
class Working:
    """A slot on another machine begins work for an instance, or is idle: None."""

    instance: str | None


@dataclass(frozen=True, slots=True)
class Admit:
    """Serve these parts of a member from now on; an outcome ``ADMITTED`` or ``FAILED`` follows."""

    member: Member
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """Serve a member no longer; an outcome ``REMOVED`` follows, if it has not failed before."""

    name: str


#: Messages of the session, and of a slot.
Command = Admit | Remove
Report = Hello | Working | tuple["Outcome", ...]

#: Columns of the query's rows, which have the work of each part in a batch.
DONE: Final = {
    "instance": "string",
    "part": "string",
    "messages": "long",
    "events_in": "long",
    "events_out": "long",
    "errors": "long",
    "took_ms": "long",
}
