"""Removal of channels and groups that only an earlier text of an app had.

An edit leaves channels and groups unused.  They are removed when no instance that knows them runs
any more: all groups of the app have the desired revision, and there is no other group.  Until then
another edit may use them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.control.actions import Retire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.control.cluster_state import ClusterState
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.model.cluster import AppRecord


def retirements(cluster: ClusterState, snapshot: ClusterSnapshot) -> Iterator[Retire]:
    """Channels and groups to remove now."""
    for app in snapshot.apps:
        retired = app.value.retired
        if app.value.deleting or app.value.held or retired is None:
            continue
        # A removal that has begun is completed, even if the app has changed since.
        if retired.removing or _is_settled(cluster, snapshot, app.value):
            yield Retire(app.value, app.revision, "the app has another text")


def _is_settled(cluster: ClusterState, snapshot: ClusterSnapshot, app: AppRecord) -> bool:
    """Whether the groups of an app are exactly the desired ones."""
    name = app.spec.name
    desired = {group.name: group for group in app.spec.groups}
    if any(cluster.forms[name, group].spec != spec for group, spec in desired.items()):
        return False
    there = [a.group for a in cluster.assignments.values() if a.app == name]
    there += [form.value.group for form in snapshot.forms if form.value.app == name]
    return all(group in desired for group in there)
