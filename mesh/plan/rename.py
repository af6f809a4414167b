"""An app under another name, for a restore into a new app."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.language.syntax import find
from mesh.plan.build import plan

if TYPE_CHECKING:
    from mesh.model.app import AppSpec


def renamed(spec: AppSpec, other: str) -> AppSpec:
    """An app as it would be planned under another name; MESH-P102 for a name that can't be used.

    Raises:
        MeshError: MESH-A409 when it is planned otherwise today.
    """
    tree = parse(spec.text)
    named = find(tree.annotations, "App:name")
    annotations = tuple(
        replace(one, elements=((None, other),)) if one is named else one for one in tree.annotations
    )
    partitions = max((c.partitions for c in spec.channels), default=1)
    result = plan(replace(tree, annotations=annotations), partitions=max(1, partitions)).spec
    if _shape(result) != _shape(spec):
        raise MeshError(
            "MESH-A409",
            f'app "{spec.name}" would be planned otherwise today, and its state would not fit',
            hint="Restore it under its own name.",
        )
    return result


def _shape(spec: AppSpec) -> object:
    """The parts of a plan that snapshots depend on: groups, instances and channels."""
    return (
        [(c.stream.name, c.key_name, c.partitions) for c in spec.channels],
        [
            (
                group.name,
                group.parallel,
                [(i.channel.stream.name, i.channel.key_name, i.strategy) for i in group.inputs],
            )
            for group in spec.groups
        ],
    )
