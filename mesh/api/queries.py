"""On-demand queries through the REST API.

    POST /stores/initAgg  {"appName", "aggName"}
    POST /stores/query    {"appName", "query", "details"?, "partial"?, "min_position"?, "id"?}

The answer is ``{"records": [[..], ..], "positions": {stream: sequence}}``, with ``details`` also
names and types of the columns, and with ``partial`` the instances that are ``missing``, if any.
A query that changes a table needs the permission ``data.write``; the answer to it has ``changed``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.api.paths import route
from mesh.api.responses import Json, json_body
from mesh.errors import MeshError
from mesh.model import names
from mesh.model.access import Permission, current, require
from mesh.model.question import request_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from mesh.manager.service import ManagerService

BODY_BYTES_MAX: Final = 500_000


class QueryRoutes:
    """Routes of on-demand queries."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """For the application."""
        return [
            route("/stores/query", self.query, "POST"),
            route("/stores/initAgg", self.init_aggregation, "POST"),
        ]

    async def init_aggregation(self, request: Request) -> Response:
        """Success for an aggregation that exists: its values are in its state, and always there.

        In the system before this one the call loads them again from a database.
        """
        values = await json_body(request, BODY_BYTES_MAX)
        asked = values if isinstance(values, dict) else {}
        app, aggregation = asked.get("appName"), asked.get("aggName")
        if not isinstance(app, str) or not isinstance(aggregation, str):
            raise MeshError("MESH-A400", "appName and aggName are names")
        require(Permission.DATA_READ, app)
        await self._service.queries.check_aggregation(app, aggregation)
        return Json({"status": "success"})

    async def query(self, request: Request) -> Response:
        """The answer to an on-demand query."""
        values = await json_body(request, BODY_BYTES_MAX)
        asked = request_of(values)
        app = values.get("appName")
        if not isinstance(app, str) or not names.is_app_name(app):
            raise MeshError("MESH-A400", "appName is no name of an app")
        require(Permission.DATA_READ, app)
        # An API without users serves this machine alone, and allows all.
        identity = current.get()
        answer = await self._service.queries.ask(
            app,
            asked.query,
            at_least=asked.at_least,
            partial=asked.partial,
            may_change=identity is None or identity.may(Permission.DATA_WRITE, app),
            id_=asked.id,
        )
        return Json(answer.to_values(details=asked.details))
