"""Handlers of routes of the system before this one that no other module has, with its words.

Roles are fixed here, so permissions are neither made, removed, granted nor revoked.

Keys may be added to an answer, none may be dropped: ``tests/cases/rest.yml`` has them.

Handlers of failed events in the words of the original's error handler.

Ids count within an app here.  So a route of one entry needs ``siddhiApp`` where several apps have
an entry of that id.  As in the original, replayed events go to all readers of the stream.
"""

from __future__ import annotations

import hashlib
import platform
import uuid
from typing import TYPE_CHECKING, Final

import orjson

import mesh
from mesh.api.routing import json_body, serves, user_of, values_of, visible_apps
from mesh.errors import MeshError
from mesh.model import names
from mesh.model.access import ANYONE, ROLES, SETS, Permission, current, require
from mesh.model.cluster import StatisticsLevel
from mesh.model.foreign_operations import OriginalOperations
from mesh.model.operation import parameter_error

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

_BODY_BYTES_MAX: Final = 16_000_000
_DAY_S: Final = 86_400.0


class ErrorEntryRoutes:
    """Handlers of routes of the original's error handler."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    @serves(OriginalOperations.entries_count)
    async def count(self, request: Request, app: str) -> object:
        apps = await self._apps(app, Permission.DATA_READ)
        counts = [await self._service.events.failed_count(one) for one in apps]
        return {"entriesCount": sum(counts)}

    @serves(OriginalOperations.entries)
    async def some(
        self, request: Request, app: str, limit: int, offset: int, descriptive: bool
    ) -> object:
        _check_app(app)
        require(Permission.DATA_READ, app)
        entries = await self._service.events.failed(app, limit + offset)
        page = entries[: len(entries) - offset] if offset else entries
        return [described(app, entry, is_whole=descriptive) for entry in page]

    @serves(OriginalOperations.entry)
    async def one(self, request: Request, id: int, app: str) -> object:
        name, entry = await self._find_entry(id, app, Permission.DATA_READ)
        return described(name, entry, is_whole=True)

    @serves(OriginalOperations.discard_entry)
    async def discard(self, request: Request, id: int, app: str) -> object:
        name, entry = await self._find_entry(id, app, Permission.DATA_WRITE)
        await self._service.events.discard(name, [entry["id"]], by=user_of(request))
        return {"message": f"entry {entry['id']} is deleted"}

    @serves(OriginalOperations.discard_entries)
    async def discard_many(self, request: Request, app: str, days: float | None) -> object:
        apps = await self._apps(app, Permission.DATA_WRITE, is_required=days is None)
        events, age_s = self._service.events, (days or 0) * _DAY_S
        counts = [await events.discard_older(one, age_s, by=user_of(request)) for one in apps]
        return {"message": f"{sum(counts)} entries are deleted"}

    @serves(OriginalOperations.replay_entries)
    async def replay(self, request: Request) -> object:
        body = await json_body(request, _BODY_BYTES_MAX)
        entries = body if isinstance(body, list) else [body]
        for entry in entries:
            match entry:
                case {"id": int(id_), "siddhiAppName": str(app)} if names.is_app_name(app):
                    require(Permission.DATA_WRITE, app)
                    await self._replay(app, id_, entry.get("event"), user_of(request))
                case _:
                    raise MeshError(
                        "MESH-A400", 'the body is invalid: a list of {"id", "siddhiAppName", ..}'
                    )
        return {"success": True}

    async def _replay(self, app: str, id_: int, event: object, by: str) -> None:
        stored = await self._service.events.failed_one(app, id_)
        shown = described(app, stored, is_whole=True).get("event")
        data = None
        if event is not None and event != shown:
            data = event.encode() if isinstance(event, str) else orjson.dumps(event)
        # A payload that a source could not map is for its mapper; an event is for the stream.
        is_payload = str(stored.get("connector", "")).startswith("source")
        await self._service.events.replay(app, [id_], data, by=by, to_stream=not is_payload)

    async def _apps(
        self, app: str, permission: Permission, *, is_required: bool = False
    ) -> list[str]:
        """The app that is named, or all for which the user has the permission."""
        if app or is_required:
            _check_app(app)
            require(permission, app)
            return [app]
        identity = current.get()
        apps = [status.app for status in await visible_apps(self._service)]
        return [name for name in apps if identity is None or identity.may(permission, name)]

    async def _find_entry(
        self, id_: int, app: str, permission: Permission
    ) -> tuple[str, JsonObject]:
        apps = await self._apps(app, permission)
        if app:
            return apps[0], await self._service.events.failed_one(apps[0], id_)
        matches = []
        for app in apps:
            try:
                matches.append((app, await self._service.events.failed_one(app, id_)))
            except MeshError as error:
                if error.code != "MESH-A404":
                    raise
        if len(matches) != 1:
            several = ", ".join(app for app, _ in matches)
            raise MeshError(
                "MESH-A404",
                f"{'several apps have' if matches else 'no app has'} a failed event {id_}",
                detail=f"They are: {several}." if matches else None,
                hint="Name the app: ?siddhiApp=NAME.",
            )
        return matches[0]


def described(app: str, entry: JsonObject, *, is_whole: bool) -> JsonObject:
    """An entry in the words of the original; ``is_whole``: with event and payload."""
    connector = str(entry.get("connector", ""))
    is_payload = bool(connector) or "data" in entry
    where = "STORE_ON_STREAM_ERROR"
    if connector.startswith("source"):
        where = "BEFORE_SOURCE_MAPPING"
    elif connector:
        where = "STORE_ON_SINK_ERROR"
    values = {
        "id": entry["id"],
        "timestamp": entry.get("recorded_at_ms", 0),
        "siddhiAppName": app,
        "streamName": entry.get("stream", ""),
        "cause": str(entry.get("reason", ""))[:1000],
        "errorOccurrence": where,
        "eventType": "PAYLOAD_STRING" if is_payload else "EVENT",
        "errorType": "TRANSPORT" if where == "STORE_ON_SINK_ERROR" else "MAPPING",
    }
    if is_whole:
        payload = entry.get("data", entry.get("data_base64", ""))
        values |= {
            "event": entry.get("event", payload),
            "originalPayload": payload,
            "stackTrace": "",
        }
    return values


def _check_app(app: str) -> None:
    # A wildcard would mean other apps.
    if not names.is_app_name(app):
        raise parameter_error("siddhiApp", app, "the name of an app")


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
