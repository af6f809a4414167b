"""Handlers of routes of the system before this one that no other module has, with its words.

Roles are fixed here, so permissions are neither made, removed, granted nor revoked.

Keys may be added to an answer, none may be dropped: ``tests/cases/rest.yml`` has them.
"""

from __future__ import annotations

import hashlib
import platform
import uuid
from typing import TYPE_CHECKING, Final

import mesh
from mesh.api.responses import json_body, user_of, values_of
from mesh.api.routing import serves
from mesh.api.visible import visible_apps
from mesh.errors import MeshError
from mesh.model.access import ANYONE, ROLES, SETS, Permission, current
from mesh.model.cluster import StatisticsLevel
from mesh.model.foreign_operations import OriginalOperations

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.manager.service import ManagerService
    from mesh.model.values import JsonObject

BODY_BYTES_MAX: Final = 10_000
#: Kind of an element by the last part of its route.
_ELEMENTS: Final = {
    "queries": "query",
    "tables": "table",
    "windows": "window",
    "aggregations": "aggregation",
}


class OriginalRoutes:
    """Handlers of routes of the system before this one."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    @serves(OriginalOperations.count)
    async def count(self, request: Request) -> object:
        return len(await visible_apps(self._service))

    @serves(OriginalOperations.exists)
    async def exists(self, request: Request, app: str) -> object:
        return any(one.app == app for one in await visible_apps(self._service))

    @serves(OriginalOperations.is_active_node)
    async def is_active_node(self, request: Request) -> object:
        return (await self._service.leadership()).leads

    @serves(OriginalOperations.all_elements)
    async def elements(self, request: Request) -> object:
        kind = _ELEMENTS[request.url.path.rpartition("/")[2]]
        entries = []
        for one in await visible_apps(self._service):
            values = await self._service.plan_view(one.app, "elements")
            entries += [
                {"appName": one.app, **element}
                for element in values["elements"]
                if element["type"] == kind
            ]
        return entries

    @serves(OriginalOperations.sources)
    async def connectors(self, request: Request) -> object:
        is_source = request.url.path.endswith("sources")
        entries = []
        for one in await visible_apps(self._service):
            spec = await self._service.app(one.app)
            for group in spec.groups:
                entries += [
                    {
                        "appName": spec.name,
                        "streamName": stream,
                        "groupName": group.name,
                        "types": list(group.connectors),
                    }
                    for stream in (group.sources if is_source else group.sinks)
                ]
        return entries

    @serves(OriginalOperations.subjects)
    async def subjects(self, request: Request, app: str) -> object:
        spec = await self._service.app(app)
        return [
            {
                "appName": instance,
                "sourceList": sorted({one.channel.subject() for one in group.inputs}),
                "sinkList": sorted({channel.subject() for channel in group.outputs}),
            }
            for group in spec.groups
            for instance in group.instances
        ]

    @serves(OriginalOperations.has_role)
    async def has_role(self, request: Request, suffix: str) -> object:
        # It may be any permission or role of this system, too.
        identity = current.get() or ANYONE
        return any(some <= identity.everywhere for some in named(suffix))

    @serves(OriginalOperations.permissions)
    async def permissions(self, request: Request, product: str) -> object:
        names = [name for name in SETS if name.startswith(f"{product}.")]
        return [{"permissionID": permission_id(n), "permissionString": n} for n in names]

    @serves(OriginalOperations.roles_of)
    async def roles_of(self, request: Request, permission: str) -> object:
        may = SETS[_permission(permission)]
        return [
            {"id": name, "name": name} for name, permissions in ROLES.items() if may <= permissions
        ]

    @serves(OriginalOperations.role_has)
    async def role_has(self, request: Request, permission: str, role: str) -> object:
        name = _permission(permission)
        if role not in ROLES:
            raise MeshError("MESH-A404", f'role "{role}" does not exist')
        message = f"Checking permission for app:{permission_id(name)} role: {role} successful"
        has = SETS[name] <= ROLES[role]
        return {"code": 4, "type": "ok", "message": message, "hasPermission": has}

    @serves(OriginalOperations.set_statistics, OriginalOperations.set_all_statistics)
    async def set_statistics(self, request: Request, app: str = "") -> object:
        body = await json_body(request, BODY_BYTES_MAX)
        level = level_of(body)
        names = [app] if app else [one.app for one in await visible_apps(self._service)]
        by = user_of(request)
        for name in names:
            await self._service.set_statistics(name, level, by=by)
        return {
            "type": "success",
            "message": f"statistics of {len(names)} apps are {level}",
            "statsEnable": level is not StatisticsLevel.OFF,
            "enabledSiddhiStatLevel": level,
            "apps": names,
        }

    @serves(OriginalOperations.delete_revisions)
    async def delete_revisions(self, request: Request) -> object:
        by, deleted = user_of(request), {}
        for one in await visible_apps(self._service):
            deleted[one.app] = await self._service.backups.delete(one.app, None, by=by)
        return {
            "type": "success",
            "message": f"{sum(deleted.values())} revisions deleted",
            "deleted": deleted,
        }

    @serves(OriginalOperations.load)
    async def load(self, request: Request) -> object:
        leadership = await self._service.leadership()
        nodes: list[JsonObject] = values_of(await self._service.nodes())
        manager = next(
            (n for n in nodes if (n["role"], n["id"]) == ("manager", leadership.manager)), {}
        )
        return {
            "workerMetrics": {
                "processCPU": manager.get("process_cpu_percent", 0.0) / 100,
                "systemCPU": manager.get("cpu_percent", 0.0) / 100,
                "loadAverage": manager.get("load_1m", 0.0),
                "memoryUsage": manager.get("memory_percent", 0.0) / 100,
            },
            "haStatus": "Active" if leadership.leads else "Passive",
            "clusterID": "mesh",
            "isInSync": not self._service.unready_reasons(),
            "runningStatus": "Reachable",
        }

    @serves(OriginalOperations.system_details)
    async def system_details(self, request: Request) -> object:
        return {
            "osName": platform.system(),
            "osVersion": platform.release(),
            "javaVersion": "",
            "pythonVersion": platform.python_version(),
            "meshVersion": mesh.__version__,
        }


def permission_id(name: str) -> str:
    """The id of a permission, which is the one that the system before gave it."""
    text = f"Permission[appName={name.partition('.')[0]}, permissionString={name}]"
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return str(uuid.UUID(bytes=digest, version=3))


def _permission(identifier: str) -> str:
    """The name of the permission with an id; MESH-A404 for an id of none."""
    name = next((n for n in SETS if "." in n and permission_id(n) == identifier), None)
    if name is None:
        raise MeshError("MESH-A404", f'permission "{identifier}" does not exist')
    return name


def named(suffix: str) -> list[frozenset[Permission]]:
    """The sets of permissions whose name is a suffix, with or without its dot; none for others."""
    name = suffix.removeprefix(".")
    if not name:
        return []
    sets = [may for key, may in SETS.items() if name in (key, key.partition(".")[2])]
    return sets or [frozenset({Permission(name)}) for one in Permission if one == name]


def level_of(body: object) -> StatisticsLevel:
    """The level that a request names; MESH-A400 for another one."""
    match body:
        case {"enabledSiddhiStatLevel": str(name)} | {"enabledStatLevel": str(name)}:
            if name in StatisticsLevel.__members__:
                return StatisticsLevel(name)
        case {"statsEnable": True | "true"}:
            return StatisticsLevel.BASIC
        case {"statsEnable": False | "false"}:
            return StatisticsLevel.OFF
        case _:
            pass
    levels = ", ".join(StatisticsLevel)
    raise MeshError(
        "MESH-A400",
        f'the body has "statsEnable", true or false, or "enabledSiddhiStatLevel": {levels}',
    )
