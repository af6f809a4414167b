"""Handlers of events: failed events and their replay, and events for tests.

A replayed event is published to its stream like an event from outside: all readers get it.  What a
source or sink has refused goes to that alone.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.api.feeds import FeedRoutes
from mesh.api.routing import json_body, serves, user_of, visible_apps
from mesh.errors import MeshError
from mesh.model.access import Permission, require
from mesh.model.error_entry import SimulatedEvent
from mesh.model.foreign_operations import SimulationOperations
from mesh.model.operation import parameter_error
from mesh.model.operations import EventOperations

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.manager.service import ManagerService

#: Of one feed; longer ones are for ``mesh publish``.
BODY_BYTES_MAX: Final = 16_000_000
FEED_MAX: Final = 10_000
#: The end of the year 9999.
TIME_MAX_MS: Final = 253_402_300_799_999
#: Sequences of JetStream are below this.
ID_MAX: Final = 2**63


class EventRoutes:
    """Handlers of events."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service
        self._feeds = FeedRoutes(service)

    @serves(EventOperations.failed_counts)
    async def counts(self, request: Request) -> object:
        apps = [status.app for status in await visible_apps(self._service)]
        count = self._service.events.failed_count
        return [{"app": app, "count": await count(app)} for app in apps]

    @serves(EventOperations.failed, EventOperations.errors)
    async def failed(
        self, request: Request, app: str, limit: int, before: int | None = None
    ) -> object:
        return await self._service.events.failed(app, limit, before or None)

    @serves(EventOperations.failed_one)
    async def one(self, request: Request, app: str, id: int) -> object:
        return await self._service.events.failed_one(app, id)

    @serves(EventOperations.replay)
    async def replay(self, request: Request, app: str) -> object:
        values = await json_body(request, BODY_BYTES_MAX)
        ids, data = _chosen(values)
        to = values.get("to", "connector")
        if to not in ("connector", "stream"):
            raise _not_a_request('"to" is "connector" or "stream"')
        return await self._service.events.replay(
            app, ids, data, by=user_of(request), to_stream=to == "stream"
        )

    @serves(EventOperations.discard)
    async def discard(self, request: Request, app: str, id: int) -> object:
        await self._service.events.failed_one(app, id)
        return await self._service.events.discard(app, [id], by=user_of(request))

    @serves(EventOperations.discard_many)
    async def discard_many(
        self, request: Request, app: str, all: bool | None, older_than_s: float | None
    ) -> object:
        events = self._service.events
        if older_than_s is not None:
            count = await events.discard_older(app, older_than_s, by=user_of(request))
            return {"app": app, "count": count, "left": await events.failed_count(app)}
        if not all:
            expected = "true, unless olderThan says how old they must be"
            raise parameter_error("all", "" if all is None else "false", expected)
        return await events.discard(app, None, by=user_of(request))

    @serves(EventOperations.simulate)
    async def single(self, request: Request) -> object:
        return await self._send([_event(await json_body(request, BODY_BYTES_MAX))])

    @serves(SimulationOperations.feed)
    async def feed(self, request: Request) -> object:
        values = await json_body(request, BODY_BYTES_MAX)
        if "action" in request.query_params:
            raise MeshError(
                "MESH-A400",
                "an action is of one simulation",
                hint="POST /simulation/feed/NAME?action=run",
            )
        if not isinstance(values, list):
            return await self._feeds.create(request, values)
        if len(values) > FEED_MAX:
            raise MeshError(
                "MESH-A413",
                f"a feed has {FEED_MAX} events at most",
                hint="'mesh publish' sends the events of a file.",
            )
        return await self._send([_event(value) for value in values])

    async def _send(self, events: list[tuple[str, SimulatedEvent]]) -> object:
        for app in {app for app, _ in events}:
            require(Permission.DATA_WRITE, app)
        sent = 0
        # Events of an app that comes later are sent after those of the first.
        for app, run in groupby(events, key=_app_of):
            sent += await self._service.events.send(app, [event for _, event in run])
        return {"status": "OK", "message": f"events sent: {sent}", "events": sent}


def _app_of(pair: tuple[str, SimulatedEvent]) -> str:
    return pair[0]


def _chosen(values: object) -> tuple[list[int] | None, bytes | None]:
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


def _is_id(value: object) -> bool:
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


def _not_a_request(expected: str) -> MeshError:
    return MeshError("MESH-A400", f"the body is invalid: {expected}")
