"""Handlers of on-demand queries.

A query that changes a table needs the permission ``data.write``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.api.responses import json_body
from mesh.api.routing import serves
from mesh.errors import MeshError
from mesh.model import names
from mesh.model.access import Permission, current, require
from mesh.model.foreign_operations import OriginalOperations
from mesh.model.operations import QueryOperations
from mesh.model.question import request_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.manager.service import ManagerService

BODY_BYTES_MAX: Final = 500_000


class QueryRoutes:
    """Handlers of on-demand queries."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    @serves(OriginalOperations.init_aggregation)
    async def init_aggregation(self, request: Request) -> object:
        # In the system before this one the call loads the values again from a database.
        values = await json_body(request, BODY_BYTES_MAX)
        body = values if isinstance(values, dict) else {}
        app, aggregation = body.get("appName"), body.get("aggName")
        if not isinstance(app, str) or not isinstance(aggregation, str):
            raise MeshError("MESH-A400", "appName and aggName are names")
        require(Permission.DATA_READ, app)
        await self._service.queries.check_aggregation(app, aggregation)
        return {"status": "success"}

    @serves(QueryOperations.query)
    async def query(self, request: Request) -> object:
        values = await json_body(request, BODY_BYTES_MAX)
        spec = request_of(values)
        app = values.get("appName")
        if not isinstance(app, str) or not names.is_app_name(app):
            raise MeshError("MESH-A400", "appName is no name of an app")
        require(Permission.DATA_READ, app)
        # An API without users serves this machine alone, and allows all.
        identity = current.get()
        answer = await self._service.queries.ask(
            app,
            spec.query,
            at_least=spec.at_least,
            partial=spec.partial,
            may_change=identity is None or identity.may(Permission.DATA_WRITE, app),
            id_=spec.id,
        )
        return answer.to_values(details=spec.details)
