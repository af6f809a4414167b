"""Routes of the system before this one that no other module has, with its words for keys.

GET    /siddhi-apps/count, /siddhi-apps/{app}/isExists      a number; true or false
GET    /siddhi-apps/sources, sinks, queries, tables, windows, aggregations     of all apps
GET    /siddhi-apps/ha/is-active-node                       whether this manager leads
PUT    /siddhi-apps/statistics, /siddhi-apps/{app}/statistics
       {"statsEnable": true} or {"enabledSiddhiStatLevel": "OFF", "BASIC" or "DETAIL"}
DELETE /siddhi-apps/revisions                               the backups of all apps
GET    /managers/kafkaDetails/{app}                         subjects that its groups read and write
GET    /managers/roles?permissionSuffix=viewer              whether the user has that permission
GET    /statistics, /system-details                         of this manager
GET    /permissions/app/{product}                           ids of permissions by name: of MON
GET    /permissions/{permission}/roles                      roles that have a permission
GET    /permissions/auth/{permission}/{role}                whether a role has it

Roles are fixed here, so permissions are neither made, removed, granted nor revoked.

Keys may be added to an answer, none may be dropped: ``tests/cases/rest.yml`` has them.
"""

from __future__ import annotations

import hashlib
import platform
import uuid
from typing import TYPE_CHECKING, Any, Final

import mesh
from mesh.api.paths import route
from mesh.api.responses import Json, json_body, user_of, values_of
from mesh.errors import MeshError
from mesh.model.access import ANYONE, ROLES, SETS, Permission, current
from mesh.model.cluster import StatisticsLevel

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from mesh.manager.service import ManagerService

BODY_BYTES_MAX: Final = 10_000
#: Kind of an element by the last part of its route.
_ELEMENTS: Final = {
    "queries": "query",
    "tables": "table",
    "windows": "window",
    "aggregations": "aggregation",
}


class Originals:
    """Routes of the system before this one, one method each."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """The routes; they must precede those with ``{app}``."""
        return [
            route("/siddhi-apps/count", self.count, "GET"),
            route("/siddhi-apps/ha/is-active-node", self.is_active_node, "GET"),
            route("/siddhi-apps/sources", self.doors, "GET"),
            route("/siddhi-apps/sinks", self.doors, "GET"),
            *(route(f"/siddhi-apps/{kind}", self.elements, "GET") for kind in _ELEMENTS),
            route("/siddhi-apps/statistics", self.set_statistics, "PUT"),
            route("/siddhi-apps/revisions", self.delete_revisions, "DELETE"),
            route("/siddhi-apps/{app}/isExists", self.exists, "GET"),
            route("/siddhi-apps/{app}/statistics", self.set_statistics, "PUT"),
            route("/managers/kafkaDetails/{app}", self.subjects, "GET"),
            route("/managers/roles", self.has_role, "GET"),
            route("/statistics", self.statistics, "GET"),
            route("/system-details", self.system_details, "GET"),
            route("/permissions/app/{product}", self.permissions, "GET"),
            route("/permissions/{permission}/roles", self.roles_of, "GET"),
            route("/permissions/auth/{permission}/{role}", self.role_has, "GET"),
        ]

    async def count(self, request: Request) -> Response:
        """The number of apps."""
        return Json(len(await self._service.apps()))

    async def exists(self, request: Request) -> Response:
        """Whether an app is deployed."""
        name = request.path_params["app"]
        return Json(any(one.app == name for one in await self._service.apps()))

    async def is_active_node(self, request: Request) -> Response:
        """Whether this manager leads."""
        return Json((await self._service.leadership()).leads)

    async def elements(self, request: Request) -> Response:
        """Queries, tables, windows or aggregations of all apps."""
        kind = _ELEMENTS[request.url.path.rpartition("/")[2]]
        found = []
        for one in await self._service.apps():
            values = await self._service.plan_view(one.app, "elements")
            found += [
                {"appName": one.app, **element}
                for element in values["elements"]
                if element["type"] == kind
            ]
        return Json(found)

    async def doors(self, request: Request) -> Response:
        """Sources or sinks of all apps."""
        is_source = request.url.path.endswith("sources")
        found = []
        for one in await self._service.apps():
            spec = await self._service.app(one.app)
            for group in spec.groups:
                found += [
                    {
                        "appName": spec.name,
                        "streamName": stream,
                        "groupName": group.name,
                        "types": list(group.connectors),
                    }
                    for stream in (group.sources if is_source else group.sinks)
                ]
        return Json(found)

    async def subjects(self, request: Request) -> Response:
        """Subjects that each instance of an app reads and writes, in the place of topics."""
        spec = await self._service.app(request.path_params["app"])
        return Json(
            [
                {
                    "appName": instance,
                    "sourceList": sorted({one.channel.subject() for one in group.inputs}),
                    "sinkList": sorted({channel.subject() for channel in group.outputs}),
                }
                for group in spec.groups
                for instance in group.instances
            ]
        )

    async def has_role(self, request: Request) -> Response:
        """Whether the user has a permission, for every app: ``.viewer`` is that of ``MON.viewer``.

        It may be any permission or role of this system, too.
        """
        suffix = request.query_params.get("permissionSuffix", "")
        identity = current.get() or ANYONE
        return Json(any(some <= identity.everywhere for some in named(suffix)))

    async def permissions(self, request: Request) -> Response:
        """The permissions of a product of the system before, like MON, with their ids."""
        head = f"{request.path_params['product']}."
        names = [name for name in SETS if name.startswith(head)]
        found = [{"permissionID": permission_id(n), "permissionString": n} for n in names]
        return Json(found)

    async def roles_of(self, request: Request) -> Response:
        """The roles that have a permission for every app."""
        may = SETS[_permission(request)]
        return Json([{"id": name, "name": name} for name, own in ROLES.items() if may <= own])

    async def role_has(self, request: Request) -> Response:
        """Whether a role has a permission for every app."""
        name, role = _permission(request), request.path_params["role"]
        if role not in ROLES:
            raise MeshError("MESH-A404", f'role "{role}" does not exist')
        message = f"Checking permission for app:{permission_id(name)} role: {role} successful"
        has = SETS[name] <= ROLES[role]
        return Json({"code": 4, "type": "ok", "message": message, "hasPermission": has})

    async def set_statistics(self, request: Request) -> Response:
        """Switch the metrics of an app, or of all."""
        asked = await json_body(request, BODY_BYTES_MAX)
        level = level_of(asked)
        app = request.path_params.get("app")
        names = [app] if app else [one.app for one in await self._service.apps()]
        by = user_of(request)
        for name in names:
            await self._service.set_statistics(name, level, by=by)
        return Json(
            {
                "type": "success",
                "message": f"statistics of {len(names)} apps are {level}",
                "statsEnable": level is not StatisticsLevel.OFF,
                "enabledSiddhiStatLevel": level,
                "apps": names,
            }
        )

    async def delete_revisions(self, request: Request) -> Response:
        """Delete the backups of all apps that are deployed."""
        by, deleted = user_of(request), {}
        for one in await self._service.apps():
            deleted[one.app] = await self._service.backups.delete(one.app, None, by=by)
        return Json(
            {
                "type": "success",
                "message": f"{sum(deleted.values())} revisions deleted",
                "deleted": deleted,
            }
        )

    async def statistics(self, request: Request) -> Response:
        """The load of this manager's machine and its part in the cluster."""
        found = await self._service.leadership()
        nodes: list[dict[str, Any]] = values_of(await self._service.nodes())
        own = next((n for n in nodes if (n["role"], n["id"]) == ("manager", found.manager)), {})
        return Json(
            {
                "workerMetrics": {
                    "processCPU": own.get("process_cpu_percent", 0.0) / 100,
                    "systemCPU": own.get("cpu_percent", 0.0) / 100,
                    "loadAverage": own.get("load_1m", 0.0),
                    "memoryUsage": own.get("memory_percent", 0.0) / 100,
                },
                "haStatus": "Active" if found.leads else "Passive",
                "clusterID": "mesh",
                "isInSync": not self._service.unready_reasons(),
                "runningStatus": "Reachable",
            }
        )

    async def system_details(self, request: Request) -> Response:
        """Versions and the operating system of this manager."""
        return Json(
            {
                "osName": platform.system(),
                "osVersion": platform.release(),
                "javaVersion": "",
                "pythonVersion": platform.python_version(),
                "meshVersion": mesh.__version__,
            }
        )


def permission_id(name: str) -> str:
    """The id of a permission, which is the one that the system before gave it."""
    text = f"Permission[appName={name.partition('.')[0]}, permissionString={name}]"
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return str(uuid.UUID(bytes=digest, version=3))


def _permission(request: Request) -> str:
    """The name of a path's permission; MESH-A404 for an id of none."""
    asked = request.path_params["permission"]
    found = next((n for n in SETS if "." in n and permission_id(n) == asked), None)
    if found is None:
        raise MeshError("MESH-A404", f'permission "{asked}" does not exist')
    return found


def named(suffix: str) -> list[frozenset[Permission]]:
    """The sets of permissions whose name is a suffix, with or without its dot; none for others."""
    name = suffix.removeprefix(".")
    if not name:
        return []
    sets = [may for known, may in SETS.items() if name in (known, known.partition(".")[2])]
    return sets or [frozenset({Permission(name)}) for one in Permission if one == name]


def level_of(asked: Any) -> StatisticsLevel:
    """The level that a request names; MESH-A400 for another one."""
    match asked:
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
