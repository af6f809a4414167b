"""Handlers of on-demand queries, and of previews: a text with its events in one JSON object.

A query that changes a table needs the permission ``data.write``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.api.routing import json_body, require_for_text, serves
from mesh.errors import MeshError
from mesh.language.naming import named
from mesh.manager.previews import EVENTS_MAX, LAST
from mesh.model import names
from mesh.model.access import Permission, current, require
from mesh.model.foreign_operations import OriginalOperations
from mesh.model.operations import AppOperations, QueryOperations
from mesh.model.question import request_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.manager.service import ManagerService
    from mesh.model.values import JsonObject


BODY_BYTES_MAX: Final = 500_000

#: A text and its events.
PREVIEW_BYTES_MAX: Final = 5_000_000
_TEXTS: Final = ("text", "name", "events", "since", "until", "against")


class PreviewRoutes:
    """Handler of previews."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    @serves(AppOperations.preview)
    async def preview(self, request: Request) -> object:
        arguments = preview_request(await json_body(request, PREVIEW_BYTES_MAX))
        text = named(arguments.pop("text"), arguments.pop("name"))
        await require_for_text(self._service, Permission.APPS_MANAGE, text)
        return await self._service.previews.preview(text, **arguments)


def preview_request(values: object) -> JsonObject:
    """The arguments of ``Previews.preview`` from JSON values, with ``name``; MESH-A400."""
    if not isinstance(values, dict):
        raise MeshError("MESH-A400", "a preview is a JSON object")
    texts = {name: values.get(name) or "" for name in _TEXTS}
    if not texts["text"] or not all(isinstance(one, str) for one in texts.values()):
        raise MeshError("MESH-A400", f"{', '.join(_TEXTS)} are texts, and text is required")
    streams = values.get("from") or []
    if not isinstance(streams, list) or not all(isinstance(one, str) for one in streams):
        raise MeshError("MESH-A400", '"from" is a list of streams')
    last = LAST if values.get("last") is None else values["last"]
    if not isinstance(last, int) or isinstance(last, bool) or not 1 <= last <= EVENTS_MAX:
        raise MeshError("MESH-A400", f'"last" is a whole number from 1 to {EVENTS_MAX}')
    keep = values.get("keep") or False
    if not isinstance(keep, bool):
        raise MeshError("MESH-A400", '"keep" is true or false')
    return {**texts, "streams": streams, "last": last, "keep": keep}


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
