"""Permissions of users: view apps, manage them, monitor the cluster.

Each request needs one of the three, by its method and path.  A user of the users file without a
list has all.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from mesh.errors import MeshError


class Permission(StrEnum):
    """A permission."""

    #: See apps, their texts, states and errors, and what is in their tables and windows.
    VIEW = "view"
    #: Deploy, change and remove apps; set the admission of workers.
    MANAGE = "manage"
    #: See nodes, the leader, statistics and metrics.
    MONITOR = "monitor"


ALL: Final = frozenset(Permission)
#: First parts of paths that show the cluster rather than one app.
_OF_THE_CLUSTER: Final = (
    *("nodes", "managers", "metrics", "resourceClusterWorkers"),
    *("overview", "history", "statistics", "system-details"),
)
_OF_APPS: Final = ("siddhi-apps", "siddhi-apps-execution")


def needed(method: str, path: str) -> Permission:
    """The permission that a request needs; ``path`` without its query."""
    parts = path.strip("/").split("/")
    if method == "POST" and parts == ["stores", "query"]:
        return Permission.VIEW
    if method not in ("GET", "HEAD"):
        return Permission.MANAGE
    if parts == ["siddhi-apps", "statistics"]:
        return Permission.MONITOR
    if parts[0] == "managers" and len(parts) > 1 and parts[1] in _OF_APPS:
        return Permission.VIEW
    return Permission.MONITOR if parts[0] in _OF_THE_CLUSTER else Permission.VIEW


def read_permissions(text: str) -> frozenset[Permission]:
    """The permissions of a comma-separated list; all for an empty one.

    Raises:
        MeshError: MESH-A101 for an unknown permission.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in list(Permission):
            raise MeshError(
                "MESH-A101",
                f'permission "{name}" does not exist',
                hint=f"There are {', '.join(Permission)}.",
            )
    return frozenset(map(Permission, names)) or ALL
