"""Apps whose instances would have the same names, or would accept at the same address.

An instance is named after its app, its group and a number, with ``-`` between them.  Names of apps
and of groups may hold a ``-`` as well: group ``eu-filter`` of app ``orders``, and group ``filter``
of app ``orders-eu``, would both have the instance ``orders-eu-filter-1``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.model.app import AppSpec


@dataclass(frozen=True, slots=True)
class Collision:
    """Two groups of two apps whose instances have one name."""

    group: str
    other_app: str
    other_group: str


def collision_of(
    spec: AppSpec, before: AppSpec | None, others: Iterable[AppSpec]
) -> Collision | None:
    """The first group that an app gets whose instances have the names of another app's.

    Args:
        spec: the app as it shall be.
        before: the app as it is; None for a new one.  Its groups keep their names.
        others: all apps; one of the same name is left out.
    """
    had = {group.name for group in before.groups} if before is not None else set()
    added = {names.group_name(spec.name, g.name): g.name for g in spec.groups if g.name not in had}
    for other in others:
        if other.name == spec.name:
            continue
        for group in other.groups:
            if ours := added.get(names.group_name(other.name, group.name)):
                return Collision(ours, other.name, group.name)
    return None


def address_collision(spec: AppSpec, others: Iterable[AppSpec]) -> tuple[str, str] | None:
    """The first address of an app's sources that another app has, and that app's name."""
    ours = {group.address for group in spec.groups if group.address}
    for other in others:
        for group in other.groups if other.name != spec.name else ():
            if group.address in ours:
                return group.address, other.name
    return None
