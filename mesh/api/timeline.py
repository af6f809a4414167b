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
from mesh.model.access import Permission, require
from mesh.model.history import HistoryInput

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from mesh.api.service import Service


_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class TimeRoutes:
    """Routes of forks, comparisons and lineage, one method each."""

    def __init__(self, service: Service) -> None:
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
        other, sinks = asked.get("as", ""), asked.get("sinks", "false")
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
    streams = asked.getlist("stream")
    given: dict[str, list[str]] = {"stream": streams}
    for name, wanted in (("path", "the past events"), ("time", "the column of times")):
        given[name] = asked.getlist(name)
        if name == "time" and len(given[name]) == 1:
            given[name] *= len(streams)
        if not streams or len(given[name]) != len(streams) or not all((*streams, *given[name])):
            raise parameter(name, ", ".join(given[name]), f"{wanted}, for each stream")
    ends = asked.getlist("until") or [""]
    ends = ends * len(streams) if len(ends) == 1 else ends
    if len(ends) != len(streams):
        raise parameter("until", ", ".join(ends), "one end, or one for each stream")
    return [
        HistoryInput(stream, path, time, end or None)
        for stream, path, time, end in zip(streams, given["path"], given["time"], ends, strict=True)
    ]
