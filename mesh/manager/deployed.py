"""Answers of a manager to a deploy, and to what it would change; what it runs first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from mesh.model.values import JsonObject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mesh.manager.guarantees import Guarantees
    from mesh.model.cluster import AppRecord
    from mesh.model.history import Backfilled

#: Writes why an app does not run yet.
Tell: TypeAlias = "Callable[[str], Awaitable[None]]"


@dataclass(frozen=True, slots=True)
class Deployed:
    """The answer to a deploy."""

    app: str
    #: False if an app of this name was deployed already.
    is_new: bool
    #: Whether another app was removed for it.
    replaced: bool = False
    #: Whether a running app continues with another plan.
    edited: bool = False
    #: The changes of an edit, as ``mesh diff --output json`` prints them.
    changes: JsonObject | None = None
    #: Parts of the app that run to no effect, a sentence each.
    warnings: tuple[str, ...] = ()
    #: A line of the guarantees that hold on this cluster, then one for each that does not.
    guarantees: tuple[str, ...] = ()
    #: The history after which a new app begins; None without one.
    past: Backfilled | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """The effect of a text, as it would be if it were deployed now."""

    app: str
    #: Whether no app of this name is deployed.
    is_new: bool
    #: As ``mesh plan --output json`` prints it.
    plan: JsonObject
    #: As ``mesh diff --output json`` prints them; None for a new app.
    changes: JsonObject | None
    #: The error with which the deploy would be refused; None if it would not be.
    refused: JsonObject | None
    #: The guarantees that the app would have through each failure.
    guarantees: Guarantees | None = None


class AppPast(Protocol):
    """The past of a new app."""

    @property
    def done(self) -> Backfilled | None:
        """The outcome, as soon as it has been run."""
        ...

    async def run(self, record: AppRecord, tell: Tell) -> Mapping[str, int]:
        """Run it for an app whose channels are there: by JetStream stream, what it includes."""
        ...

    async def ended(self, app: str) -> None:
        """Remove what only another run of it would need."""
        ...
