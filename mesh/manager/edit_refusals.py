"""Refusals of an edit of an app that can't be made now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.plan.fork import read_by_others

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.model.app import AppSpec
    from mesh.model.cluster import AppRecord, Retired


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
