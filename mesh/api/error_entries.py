"""Failed events by the routes of the original's error handler.

    GET    /error-handler/error-entries/count  ?siddhiApp=A; {"entriesCount"}
    GET    /error-handler/error-entries        ?siddhiApp=A&limit=20&offset=0&descriptive=true
    GET    /error-handler/error-entries/{id}   ?siddhiApp=A
    DELETE /error-handler/error-entries/{id}   ?siddhiApp=A
    POST   /error-handler/error-entries        entries as they were listed: replays them
    DELETE /error-handler/error-entries        ?siddhiApp=A, all or with retentionDays=N

Ids count within an app here.  So a route of one entry needs ``siddhiApp`` where several apps have
an entry of that id.  As in the original, replayed events go to all readers of the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.api.paths import route
from mesh.api.responses import Json, json_body, number, parameter, user_of
from mesh.errors import MeshError
from mesh.model import names
from mesh.model.access import Permission, current, require

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from mesh.manager.service import ManagerService

_PATH: Final = "/error-handler/error-entries"
_BODY_BYTES_MAX: Final = 16_000_000
_LIST_MAX: Final = 1000
_DAY_S: Final = 86_400.0
_DAYS_MAX: Final = 36_500.0


class ErrorEntryRoutes:
    """Routes of the original's error handler, one method each."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """For the application; they precede those with an app in the same place."""
        return [
            route(f"{_PATH}/count", self.count, "GET"),
            route(_PATH, self.some, "GET"),
            route(_PATH, self.replay, "POST"),
            route(_PATH, self.discard_many, "DELETE"),
            route(f"{_PATH}/{{id}}", self.one, "GET"),
            route(f"{_PATH}/{{id}}", self.discard, "DELETE"),
        ]

    async def count(self, request: Request) -> Response:
        """Number of entries of an app, or of all."""
        apps = await self._apps(request, Permission.DATA_READ)
        counts = [await self._service.events.failed_count(one) for one in apps]
        return Json({"entriesCount": sum(counts)})

    async def some(self, request: Request) -> Response:
        """The last entries of an app, oldest first."""
        app = _app_of(request)
        require(Permission.DATA_READ, app)
        limit = int(number(request, "limit", 100, _LIST_MAX))
        offset = int(number(request, "offset", 0, _LIST_MAX))
        is_whole = request.query_params.get("descriptive", "false").lower() == "true"
        found = await self._service.events.failed(app, limit + offset)
        kept = found[: len(found) - offset] if offset else found
        return Json([described(app, entry, is_whole=is_whole) for entry in kept])

    async def one(self, request: Request) -> Response:
        """One entry with all its fields."""
        app, entry = await self._found(request, Permission.DATA_READ)
        return Json(described(app, entry, is_whole=True))

    async def discard(self, request: Request) -> Response:
        """Delete one entry."""
        app, entry = await self._found(request, Permission.DATA_WRITE)
        await self._service.events.discard(app, [entry["id"]], by=user_of(request))
        return Json({"message": f"entry {entry['id']} is deleted"})

    async def discard_many(self, request: Request) -> Response:
        """Delete the entries of an app, or those that are older than some days."""
        is_aged = "retentionDays" in request.query_params
        age_s = number(request, "retentionDays", 0, _DAYS_MAX) * _DAY_S
        apps = await self._apps(request, Permission.DATA_WRITE, is_required=not is_aged)
        events = self._service.events
        counts = [await events.discard_older(one, age_s, by=user_of(request)) for one in apps]
        return Json({"message": f"{sum(counts)} entries are deleted"})

    async def replay(self, request: Request) -> Response:
        """Send the events of entries again; an ``event`` that differs goes in its place."""
        given = await json_body(request, _BODY_BYTES_MAX)
        entries = given if isinstance(given, list) else [given]
        for entry in entries:
            match entry:
                case {"id": int(id_), "siddhiAppName": str(app)} if names.is_app_name(app):
                    require(Permission.DATA_WRITE, app)
                    await self._replay(app, id_, entry.get("event"), user_of(request))
                case _:
                    raise MeshError(
                        "MESH-A400", 'the body is invalid: a list of {"id", "siddhiAppName", ..}'
                    )
        return Json({"success": True})

    async def _replay(self, app: str, id_: int, event: Any, by: str) -> None:
        stored = await self._service.events.failed_one(app, id_)
        shown = described(app, stored, is_whole=True).get("event")
        data = None
        if event is not None and event != shown:
            data = event.encode() if isinstance(event, str) else orjson.dumps(event)
        # A payload that a source could not map is for its mapper; an event is for the stream.
        is_payload = str(stored.get("door", "")).startswith("source")
        await self._service.events.replay(app, [id_], data, by=by, to_stream=not is_payload)

    async def _apps(
        self, request: Request, permission: Permission, *, is_required: bool = False
    ) -> list[str]:
        """The app that is named, or all for which the user has the permission."""
        app = _app_of(request, is_required=is_required)
        if app:
            require(permission, app)
            return [app]
        identity = current.get()
        known = [status.app for status in await self._service.apps()]
        return [name for name in known if identity is None or identity.may(permission, name)]

    async def _found(self, request: Request, permission: Permission) -> tuple[str, dict[str, Any]]:
        id_ = request.path_params["id"]
        apps = await self._apps(request, permission)
        if "siddhiApp" in request.query_params:
            return apps[0], await self._service.events.failed_one(apps[0], id_)
        found = []
        for app in apps:
            try:
                found.append((app, await self._service.events.failed_one(app, id_)))
            except MeshError as error:
                if error.code != "MESH-A404":
                    raise
        if len(found) != 1:
            several = ", ".join(app for app, _ in found)
            raise MeshError(
                "MESH-A404",
                f"{'several apps have' if found else 'no app has'} a failed event {id_}",
                detail=f"They are: {several}." if found else None,
                hint="Name the app: ?siddhiApp=NAME.",
            )
        return found[0]


def described(app: str, entry: dict[str, Any], *, is_whole: bool) -> dict[str, Any]:
    """An entry in the words of the original; ``is_whole``: with event and payload."""
    door = str(entry.get("door", ""))
    is_payload = bool(door) or "data" in entry
    where = "STORE_ON_STREAM_ERROR"
    if door.startswith("source"):
        where = "BEFORE_SOURCE_MAPPING"
    elif door:
        where = "STORE_ON_SINK_ERROR"
    found = {
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
        found |= {
            "event": entry.get("event", payload),
            "originalPayload": payload,
            "stackTrace": "",
        }
    return found


def _app_of(request: Request, *, is_required: bool = True) -> str:
    app = str(request.query_params.get("siddhiApp", ""))
    # A wildcard would mean other apps.
    if (app or is_required) and not names.is_app_name(app):
        raise parameter("siddhiApp", app, "the name of an app")
    return app
