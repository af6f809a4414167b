"""Permissions, roles and grants: decisions about who may do what, over values.

A grant gives permissions for the apps that a pattern names (``Shop*``).  What concerns the whole
cluster needs a grant for every app (``*``).

    view        apps.view, data.read            the words of users files
    manage      apps.manage, data.write, nodes.manage
    monitor     monitor

    viewer      apps.view, data.read, monitor                       roles
    developer   a viewer who deploys, without Python: apps.manage, data.write
    operator    apps.view, monitor, nodes.manage: no payloads, no code
    admin       all

Permission of an app to read JetStream streams of the mesh that are not those of its channels.

A manager decides for the author of a text, and writes the permitted streams into each group.  A
worker compares them again with what a group is about to read.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mesh.model.app import GroupSpec
    from mesh.model.values import JsonMapping, JsonObject


class Permission(StrEnum):
    """A permission."""

    #: See apps, their texts, plans, states and stories.
    APPS_VIEW = "apps.view"
    #: Deploy, change and remove apps, and their backups.
    APPS_MANAGE = "apps.manage"
    #: Deploy apps with functions in Python: code execution on workers, where a setting allows it.
    APPS_PYTHON = "apps.python"
    #: See payloads: failed events, tables, windows, events as they come.
    DATA_READ = "data.read"
    #: Publish events: simulations and replays.
    DATA_WRITE = "data.write"
    #: Set the admission of workers.
    NODES_MANAGE = "nodes.manage"
    #: See nodes, the leader, statistics and metrics.
    MONITOR = "monitor"
    #: Users, tokens, secrets and the audit.
    ADMIN = "admin"


ALL: Final = frozenset(Permission)
_VIEW: Final = frozenset({Permission.APPS_VIEW, Permission.DATA_READ})
_MANAGE: Final = frozenset({Permission.APPS_MANAGE, Permission.DATA_WRITE, Permission.NODES_MANAGE})
_MONITOR: Final = frozenset({Permission.MONITOR})
_DEPLOY: Final = frozenset({Permission.APPS_MANAGE, Permission.DATA_WRITE})
_APPS: Final = frozenset({Permission.APPS_VIEW})

ROLES: Final = {
    "viewer": _VIEW | _MONITOR,
    "developer": _VIEW | _MONITOR | _DEPLOY,
    "operator": frozenset({Permission.APPS_VIEW, Permission.MONITOR, Permission.NODES_MANAGE}),
    "admin": ALL,
}
#: Words that stand for several permissions: of earlier users files, and of the system before.
SETS: Final = {
    **ROLES,
    "view": _VIEW,
    "manage": _MANAGE,
    "SAPP.siddhiApp.view": _APPS,
    "SAPP.siddhiApp.manage": _APPS | {Permission.APPS_MANAGE},
    "SIM.simulator.view": _APPS,
    "SIM.simulator.manage": _APPS | {Permission.DATA_WRITE},
    "BRM.businessrules.viewer": _APPS,
    "BRM.businessrules.manager": _APPS | {Permission.APPS_MANAGE},
    "MON.viewer": _APPS | _MONITOR,
    "MON.manager": _APPS | _MONITOR | _MANAGE,
    "MON.metrics.manager": _MONITOR,
}
_PATTERN: Final = re.compile(r"[A-Za-z0-9_*-]{1,100}\Z")


@dataclass(frozen=True, slots=True)
class Grant:
    """Permissions for the apps that a pattern names; ``*`` stands for any characters."""

    may: frozenset[Permission]
    apps: str = "*"

    def covers(self, app: str | None) -> bool:
        """Whether it is for an app; with None, for the whole cluster."""
        return self.apps == "*" or (app is not None and fnmatchcase(app, self.apps))


@dataclass(frozen=True, slots=True)
class Identity:
    """The user of a request, and how it was recognised."""

    user: str
    grants: tuple[Grant, ...]
    #: ``password``, ``token``, ``oidc``, ``setup`` or ``anonymous``.
    how: str = "password"

    @property
    def everywhere(self) -> frozenset[Permission]:
        """Its permissions for every app and the cluster."""
        return frozenset().union(*(one.may for one in self.grants if one.covers(None)))

    def may(self, permission: Permission, app: str | None) -> bool:
        """Whether it has a permission for an app; with None, for the whole cluster."""
        return any(permission in one.may and one.covers(app) for one in self.grants)

    def may_anywhere(self, permission: Permission) -> bool:
        """Whether it has a permission for any app."""
        return any(permission in one.may for one in self.grants)


ANYONE: Final = Identity("", (Grant(ALL),), "anonymous")
#: The user of the request under way; None for work of the process itself.
current: ContextVar[Identity | None] = ContextVar("mesh.identity", default=None)
#: The permission that the route of the request needs: lists hold the apps that it covers.
needed: ContextVar[Permission | None] = ContextVar("mesh.permission", default=None)


def require(permission: Permission, app: str | None) -> None:
    """Refuse the present request without a permission: MESH-A403."""
    identity = current.get()
    if identity is not None and not identity.may(permission, app):
        raise lacking(identity.user, permission, app)


def sees(permission: Permission, app: str) -> bool:
    """Whether the present request may see what a permission shows of an app."""
    identity = current.get()
    return identity is None or identity.may(permission, app)


def lacking(user: str, permission: Permission, app: str | None) -> MeshError:
    """The error for a missing permission."""
    where = f' for app "{app}"' if app is not None else ""
    return MeshError("MESH-A403", f'user "{user}" lacks the permission "{permission}"{where}')


def read_permissions(text: str) -> frozenset[Permission]:
    """The permissions of a comma-separated list of permissions, roles and sets; all without one.

    Raises:
        MeshError: MESH-A101 for an unknown word.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    return permissions_of(words) or ALL


def permissions_of(words: Iterable[str]) -> frozenset[Permission]:
    """The permissions of these words; MESH-A101 for an unknown one."""
    permissions: set[Permission] = set()
    for word in words:
        if word in SETS:
            permissions |= SETS[word]
        elif word in list(Permission):
            permissions.add(Permission(word))
        else:
            raise MeshError(
                "MESH-A101",
                f'permission "{word}" does not exist',
                detail=f"Roles: {', '.join(ROLES)}; permissions: {', '.join(Permission)}.",
                hint="view, manage and monitor stand for sets of them.",
            )
    return frozenset(permissions)


def is_pattern(apps: str) -> bool:
    """Whether a text is a pattern of names of apps."""
    return _PATTERN.match(apps) is not None


def check_pattern(apps: str) -> str:
    """The pattern of names of apps; MESH-A101 for another form."""
    if not is_pattern(apps):
        raise MeshError("MESH-A101", f'"{apps}" is no pattern of names of apps')
    return apps


def is_open_to(apps: object, app: str) -> bool:
    """Whether an entry of a node's file is for an app.

    Args:
        apps: its value ``apps``: patterns, comma-separated or as a list; None for every app.  One
            of another form fits no app.
        app: the name of the app.
    """
    if apps is None:
        return True
    entries = apps if isinstance(apps, list) else str(apps).split(",")
    patterns = (str(one).strip() for one in entries)
    return any(_PATTERN.match(one) and fnmatchcase(app, one) for one in patterns)


def grant_values(grant: Grant) -> JsonObject:
    """A grant as JSON values."""
    return {"may": sorted(grant.may), "apps": grant.apps}


def grant_of(values: JsonMapping) -> Grant:
    """The grant of JSON values; MESH-A101 for an unknown permission."""
    return Grant(permissions_of(values["may"]) & ALL, str(values["apps"]))


def within(grants: Iterable[Grant], limit: Grant) -> tuple[Grant, ...]:
    """Grants within a limit, as those of a token within its owner's rights.

    Two patterns are compared by one of them covering the other; others have nothing in common.
    """
    overlaps = []
    for grant in grants:
        may = grant.may & limit.may
        if not may:
            continue
        if _is_covered(grant.apps, limit.apps):
            overlaps.append(Grant(may, grant.apps))
        elif _is_covered(limit.apps, grant.apps):
            overlaps.append(Grant(may, limit.apps))
    return tuple(overlaps)


def _is_covered(pattern: str, by: str) -> bool:
    """Whether each name that a pattern fits is also one of the other pattern."""
    # No pattern has this character: only a `*` of the other one fits it.
    return fnmatchcase(pattern.replace("*", "\0"), by)


def streams_of_others(app: str, js_streams: Iterable[str]) -> tuple[str, ...]:
    """The JetStream streams of the mesh that are not those of an app's channels, each once."""
    # Only here: the environment's name of the mesh holds from that import on.
    from mesh.model import names

    return tuple(
        dict.fromkeys(
            name
            for name in js_streams
            if names.is_mesh_stream(name) and names.app_of_js_stream(name) != app
        )
    )


def check_stream(app: str, js_stream: str, permitted: Collection[str]) -> None:
    """Refuse a stream of the mesh that the author of an app was not allowed to read; MESH-C135."""
    for name in streams_of_others(app, (js_stream,)):
        if name not in permitted:
            raise MeshError(
                "MESH-C135",
                f'app "{app}" may not read JetStream stream "{name}"',
                detail="It holds events of another app, or records of the mesh, and the plan of "
                "the app has no permission for it.",
                hint="A user with data.read for the other app deploys the text again; records need "
                "the permission admin.",
            )


def check_inputs(group: GroupSpec) -> None:
    """Refuse a group that reads streams without permission: MESH-C135.

    Groups of earlier versions have no list of streams.  They continue to read streams of apps,
    which those versions have decided about, and no records of the mesh.
    """
    from mesh.model import names

    streams = [stream for one in group.inputs for stream in one.channel.js_streams]
    for name in streams_of_others(group.app, streams):
        if group.reads is not None or names.app_of_js_stream(name) is None:
            check_stream(group.app, name, group.reads or ())
