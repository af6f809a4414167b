"""Handlers of failed events in the words of the original's error handler.

Ids count within an app here.  So a route of one entry needs ``siddhiApp`` where several apps have
an entry of that id.  As in the original, replayed events go to all readers of the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from mesh.api.responses import json_body, user_of
from mesh.api.routing import serves
from mesh.api.visible import visible_apps
from mesh.errors import MeshError
from mesh.model import names
from mesh.model.access import Permission, current, require
from mesh.model.foreign_operations import OriginalOperations
from mesh.model.operation import parameter_error

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.manager.service import ManagerService
    from mesh.model.values import JsonObject

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
