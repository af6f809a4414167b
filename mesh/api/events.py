"""Events through the REST API: failed events and their replay, and events for tests.

    GET    /error-handler               [{"app", "count"}]
    GET    /error-handler/{app}         ?limit=100&before=ID, the last ones, oldest first
    GET    /error-handler/{app}/{id}    one
    POST   /error-handler/{app}/replay  {"ids": [..]}, {"all": true}, {"id": .., "event": {..}}
                                        or {"id": .., "payload": ".."}; "to": "stream" sends what
                                        a sink has refused to all readers of its stream
    DELETE /error-handler/{app}/{id}    200, 404
    DELETE /error-handler/{app}         ?all=true, or ?olderThan=SECONDS
    POST   /simulation/single           {"siddhiAppName", "streamName", "data", "timestamp"}
    POST   /simulation/feed             a list of these, sent in order; or a simulation to store

A replayed event is published to its stream like an event from outside: all readers get it.  What a
source or sink has refused goes to that alone.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.api.feeds import FeedRoutes
from mesh.api.paths import route
from mesh.api.responses import Json, json_body, number, parameter, user_of
from mesh.errors import MeshError
from mesh.model.access import Permission, require
from mesh.model.events import SimulatedEvent

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from mesh.manager.service import ManagerService

#: Of one feed; longer ones are for ``mesh publish``.
BODY_BYTES_MAX: Final = 16_000_000
LIST_MAX: Final = 1000
FEED_MAX: Final = 10_000
#: The end of the year 9999.
TIME_MAX_MS: Final = 253_402_300_799_999
#: Sequences of JetStream are below this.
ID_MAX: Final = 2**63


class EventRoutes:
    """Routes of events, one method each."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service
        self._simulations = FeedRoutes(service)

    def routes(self) -> list[Route]:
        """For the application."""
        one, app = "/error-handler/{app}/{id}", "/error-handler/{app}"
        return [
            route("/error-handler", self.counts, "GET"),
            route(f"{app}/replay", self.replay, "POST"),
            route(one, self.one, "GET"),
            route(one, self.discard, "DELETE"),
            route(app, self.some, "GET"),
            route(app, self.discard_many, "DELETE"),
            route("/simulation/single", self.single, "POST"),
            route("/simulation/feed", self.feed, "POST"),
            *self._simulations.routes(),
        ]

    async def counts(self, request: Request) -> Response:
        """Number of failed events of each app."""
        apps = [status.app for status in await self._service.apps()]
        count = self._service.events.failed_count
        return Json([{"app": app, "count": await count(app)} for app in apps])

    async def some(self, request: Request) -> Response:
        """The last failed events of an app, oldest first."""
        limit = int(number(request, "limit", 100, LIST_MAX))
        before = int(number(request, "before", 0, 2**63)) or None
        return Json(await self._service.events.failed(request.path_params["app"], limit, before))

    async def one(self, request: Request) -> Response:
        """One failed event."""
        path = request.path_params
        return Json(await self._service.events.failed_one(path["app"], path["id"]))

    async def replay(self, request: Request) -> Response:
        """Send failed events again: some, all, or one as it should have been."""
        values = await json_body(request, BODY_BYTES_MAX)
        ids, data = _chosen(values)
        to = values.get("to", "door")
        if to not in ("door", "stream"):
            raise _not_a_request('"to" is "door" or "stream"')
        app, is_to_stream = request.path_params["app"], to == "stream"
        return Json(
            await self._service.events.replay(
                app, ids, data, by=user_of(request), to_stream=is_to_stream
            )
        )

    async def discard(self, request: Request) -> Response:
        """Discard one failed event."""
        path = request.path_params
        await self._service.events.failed_one(path["app"], path["id"])
        return Json(
            await self._service.events.discard(path["app"], [path["id"]], by=user_of(request))
        )

    async def discard_many(self, request: Request) -> Response:
        """Discard all failed events of an app, or the old ones."""
        app = request.path_params["app"]
        if "olderThan" in request.query_params:
            age_s = number(request, "olderThan", 0.0, 1e9)
            count = await self._service.events.discard_older(app, age_s, by=user_of(request))
            left = await self._service.events.failed_count(app)
            return Json({"app": app, "count": count, "left": left})
        if request.query_params.get("all") != "true":
            given = request.query_params.get("all", "")
            raise parameter("all", given, "true, unless olderThan says how old they must be")
        return Json(await self._service.events.discard(app, None, by=user_of(request)))

    async def single(self, request: Request) -> Response:
        """Send one event."""
        return await self._send([_event(await json_body(request, BODY_BYTES_MAX))])

    async def feed(self, request: Request) -> Response:
        """Send several events, in order, or store a simulation.

        Events of an app that comes later are sent after those of the first.
        """
        values = await json_body(request, BODY_BYTES_MAX)
        if "action" in request.query_params:
            raise MeshError(
                "MESH-A400",
                "an action is of one simulation",
                hint="POST /simulation/feed/NAME?action=run",
            )
        if not isinstance(values, list):
            return await self._simulations.create(request, values)
        if len(values) > FEED_MAX:
            raise MeshError(
                "MESH-A413",
                f"a feed has {FEED_MAX} events at most",
                hint="'mesh publish' sends the events of a file.",
            )
        return await self._send([_event(value) for value in values])

    async def _send(self, events: list[tuple[str, SimulatedEvent]]) -> Response:
        for app in {app for app, _ in events}:
            require(Permission.DATA_WRITE, app)
        sent = 0
        for app, run in groupby(events, key=_app_of):
            sent += await self._service.events.send(app, [event for _, event in run])
        return Json({"status": "OK", "message": f"events sent: {sent}", "events": sent})


def _app_of(given: tuple[str, SimulatedEvent]) -> str:
    return given[0]


def _chosen(values: Any) -> tuple[list[int] | None, bytes | None]:
    """The body of a replay: entries, None for all; and an event in place of one."""
    match values:
        case {"all": True}:
            return None, None
        case {"ids": [*ids]} if all(map(_is_id, ids)):
            return ids, None
        case {"id": id_, "event": dict(event)} if _is_id(id_):
            return [id_], orjson.dumps(event)
        case {"id": id_, "payload": str(payload)} if _is_id(id_):
            return [id_], payload.encode()
        case {"id": id_} if _is_id(id_):
            return [id_], None
        case _:
            raise _not_a_request('{"ids": [..]}, {"all": true} or {"id": .., "event": {..}}')


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < ID_MAX


def _event(values: Any) -> tuple[str, SimulatedEvent]:
    """An app and an event for it, in the words of the system before this one or in ours."""
    match values:
        case {"siddhiAppName": str(app), "streamName": str(stream), "data": data}:
            time_ms = values.get("timestamp")
        case {"app": str(app), "stream": str(stream), "data": data}:
            time_ms = values.get("time_ms")
        case _:
            data = None
    if not isinstance(data, list | dict):
        raise _not_a_request('{"siddhiAppName", "streamName", "data": [..], "timestamp"}')
    is_time = isinstance(time_ms, int) and not isinstance(time_ms, bool)
    if time_ms is not None and not (is_time and 0 <= time_ms <= TIME_MAX_MS):
        raise _not_a_request("a timestamp in milliseconds since 1970")
    return app, SimulatedEvent(stream, data, time_ms)


def _not_a_request(wanted: str) -> MeshError:
    return MeshError("MESH-A400", f"the body is invalid: {wanted}")
