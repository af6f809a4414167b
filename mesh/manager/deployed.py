"""Answers of a manager to a deploy: what it would change and runs first, and why it is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from mesh.errors import MeshError
from mesh.model.values import JsonObject
from mesh.plan.fork import read_by_others

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from mesh.manager.guarantees import Guarantees
    from mesh.model.app import AppSpec
    from mesh.model.cluster import AppRecord, Retired
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


def refuse_edit(record: AppRecord) -> None:
    """Refuse an edit of an app that does not run, or is a fork: MESH-A409."""
    name = record.spec.name
    if record.held:
        raise MeshError(
            "MESH-A409", f'app "{name}" is being restored', hint="Deploy it again when it runs."
        )
    if record.paused:
        raise paused_error(name)
    if record.adopting:
        raise MeshError(
            "MESH-A409",
            f'app "{name}" waits for states of a fork that is promoted',
            hint="'mesh promote' of the fork again continues it.",
        )
    if record.fork is not None:
        raise MeshError(
            "MESH-A409",
            f'app "{name}" is a fork of "{record.fork.app}" and keeps its text',
            hint=f"Undeploy it, and fork '{record.fork.app}' with the new text.",
        )


def refuse_lost_input(specs: Iterable[AppSpec], name: str, retired: Retired) -> None:
    """Refuse an edit that removes a channel which a fork reads: MESH-A409."""
    read = read_by_others(specs, name)
    for channel in retired.channels:
        if channel.id in read:
            fork = read[channel.id]
            raise MeshError(
                "MESH-A409",
                f'app "{name}" would lose channel {channel.subject()}, which fork "{fork}" reads',
                hint=f"'mesh undeploy {fork}' first.",
            )


def paused_error(app: str) -> MeshError:
    """The refusal of a change of an app that is paused."""
    return MeshError(
        "MESH-A409",
        f'app "{app}" is paused',
        hint=f"'mesh resume {app}' continues it; change it then.",
    )
