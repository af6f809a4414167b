"""Forks, comparisons, lineage and history through the REST API.

POST   /siddhi-apps/{app}/promote                  ?replaces=APP
GET    /siddhi-apps/{app}/compare/{other}           ?stream= and ?key=, each repeatable
GET    /siddhi-apps/{app}/why/{stream}/{sequence}   lineage of an event; ?index= in its message
POST   /siddhi-apps/{app}/fork   ?as=NAME, ?from=, ?until=, ?sinks=true; 201.  The body is the text
of the fork, or empty for that of the app.
POST   /siddhi-apps/backfill     ?stream=, ?path=, ?time=COLUMN, ?until=; 201 after the history has
been run.  The body is the text of a new app.  For several streams all are repeated in the same
order; one time or until is that of all streams, an empty until is none.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from mesh.api.paths import route
from mesh.api.responses import Json, app_text, parameter, user_of
from mesh.api.visible import require_for_text
from mesh.model import names
from mesh.model.access import Permission, require
from mesh.model.history import HistoryInput
from mesh.plan.history_streams import is_stream

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from mesh.manager.service import ManagerService


_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class TimeRoutes:
    """Routes of forks, comparisons and lineage, one method each."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """For the application."""
        return [
            route("/siddhi-apps/backfill", self.backfill, "POST"),
            route("/siddhi-apps/{app}/fork", self.fork, "POST"),
            route("/siddhi-apps/{app}/promote", self.promote, "POST"),
            route("/siddhi-apps/{app}/why/{stream}/{sequence}", self.why, "GET"),
            route("/siddhi-apps/{app}/compare/{other}", self.compare, "GET"),
        ]

    async def backfill(self, request: Request) -> Response:
        """Deploy the text of the body as a new app that begins with the states of its past."""
        inputs = _history(request)
        text = await app_text(request)
        await require_for_text(self._service, Permission.APPS_MANAGE, text)
        done = await self._service.backfills.backfill(text, inputs, by=user_of(request))
        where = {"Location": f"/siddhi-apps/{done.app}"}
        return Json(done, HTTPStatus.CREATED, headers=where)

    async def promote(self, request: Request) -> Response:
        """Give the app of a fork the fork's text, and remove the fork."""
        fork, calls = request.path_params["app"], self._service.promotions
        require(Permission.APPS_MANAGE, calls.app_of(fork))
        replaces = request.query_params.get("replaces")
        return Json(await calls.promote(fork, replaces=replaces, by=user_of(request)))

    async def compare(self, request: Request) -> Response:
        """The differences of the outputs of two apps."""
        other, asked = request.path_params["other"], request.query_params
        require(Permission.DATA_READ, other)
        streams, key = asked.getlist("stream"), asked.getlist("key")
        app = request.path_params["app"]
        return Json(await self._service.past.compare(app, other, streams, key))

    async def why(self, request: Request) -> Response:
        """The inputs of an event, back to the app's input."""
        given = request.path_params
        sequence, index = given["sequence"], request.query_params.get("index", "0")
        for name, text in (("sequence", sequence), ("index", index)):
            if not _NUMBER.fullmatch(text):
                raise parameter(name, text, "a number")
        found = await self._service.past.why(
            given["app"], given["stream"], int(sequence), int(index)
        )
        return Json(found)

    async def fork(self, request: Request) -> Response:
        """Fork an app: another one over its input, from a place in the past."""
        asked = request.query_params
        other, sinks = names.app_token(asked.get("as", "")), asked.get("sinks", "false")
        if not other:
            raise parameter("as", other, "the name of the fork")
        if sinks not in ("true", "false"):
            raise parameter("sinks", sinks, "true or false")
        require(Permission.APPS_MANAGE, other)
        done = await self._service.forks.fork(
            request.path_params["app"],
            other,
            text=await app_text(request) if "content-type" in request.headers else None,
            begin=asked.get("from", "start"),
            until=asked.get("until"),
            sinks=sinks == "true",
            by=user_of(request),
        )
        where = {"Location": f"/siddhi-apps/{other}"}
        return Json(done, HTTPStatus.CREATED, headers=where)


def _history(request: Request) -> list[HistoryInput]:
    """The past events of streams that parameters name; MESH-A400 where they don't fit together."""
    asked = request.query_params
    streams, paths = asked.getlist("stream"), asked.getlist("path")
    if not streams or len(paths) != len(streams) or not all((*streams, *paths)):
        raise parameter("path", ", ".join(paths), "the past events, for each stream")
    times = _for_each(asked.getlist("time"), streams)
    has_times = [bool(time) or is_stream(path) for time, path in zip(times, paths, strict=False)]
    if len(times) != len(streams) or not all(has_times):
        raise parameter("time", ", ".join(times), "the column of times, for each stream")
    ends = _for_each(asked.getlist("until"), streams)
    if len(ends) != len(streams):
        raise parameter("until", ", ".join(ends), "one end, or one for each stream")
    return [
        HistoryInput(stream, path, time, end or None)
        for stream, path, time, end in zip(streams, paths, times, ends, strict=True)
    ]


def _for_each(values: list[str], streams: list[str]) -> list[str]:
    """A parameter that may be given once for all streams, or not at all."""
    values = values or [""]
    return values * len(streams) if len(values) == 1 else values
