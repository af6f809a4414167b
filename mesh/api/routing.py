"""Routes from the table of operations: parameters of requests to arguments, results to JSON.

A handler is a method that names its row:

    @serves(EventOperations.errors)
    async def errors(self, request, app, limit):
        return await self._service.events.failed(app, limit)

It gets the parameters of path and query as values of their types, and the text of an app as
``text``, if the user has the permission for the app that it names.  What it returns is answered as
JSON, unless it is a response.

Every ``{app}`` matches names of apps only, every ``{id}`` numbers only.  A path is decoded once
before it is matched, so ``%2A`` arrives as ``*``.  A name that reached a NATS subject or filter
with a wildcard in it would mean every app.  So no handler can receive one: a path with another name
matches no route, and its response is 404.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from prometheus_client import Histogram
from starlette.convertors import IntegerConvertor, StringConvertor, register_url_convertor
from starlette.responses import Response
from starlette.routing import Route

from mesh.api.responses import Json, app_text, require_for_text
from mesh.model import names
from mesh.model.operation import About

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from starlette.requests import Request

    from mesh.manager.service import ManagerService
    from mesh.model.operation import Operation

    Handler = Callable[..., Awaitable[object]]

H = TypeVar("H", bound="Handler")

#: Of this process: one manager.
REQUEST_SECONDS: Final = Histogram(
    "mesh_api_request_seconds",
    "Time of a request to the REST API.",
    ("method", "route"),
    buckets=(0.01, 0.1, 1.0, 10.0),
    registry=None,
)


class AppName(StringConvertor):
    """The name of an app, see ``names.is_app_name``."""

    regex = names.APP_NAME


class EntryId(IntegerConvertor):
    """The number of a failed event; 18 digits at most, so that every value is a JSON integer."""

    regex = "[0-9]{1,18}"


register_url_convertor("app_name", AppName())
register_url_convertor("entry_id", EntryId())


def serves(*operations: Operation[..., Any]) -> Callable[[H], H]:
    """Make a method the handler of operations."""

    def mark(handler: H) -> H:
        handler.__dict__["operations"] = operations
        return handler

    return mark


def routes_of(service: ManagerService, parts: Iterable[object]) -> list[Route]:
    """The routes of all handlers of ``parts``, those with words before those with parameters."""
    routes = [
        _route(service, operation, path, handler)
        for part in parts
        for operation, handler in _handlers(part)
        for path in operation.paths
    ]
    return sorted(routes, key=_parameters_of)


def _handlers(part: object) -> Iterator[tuple[Operation[..., Any], Handler]]:
    for name, member in vars(type(part)).items():
        for operation in getattr(member, "operations", ()):
            yield operation, getattr(part, name)


def _parameters_of(route: Route) -> int:
    return route.path.count("{")


def _route(
    service: ManagerService, operation: Operation[..., Any], path: str, handler: Handler
) -> Route:
    """A route whose requests are timed in ``REQUEST_SECONDS``; with a span if traces are on."""
    method, text = operation.method, operation.app_text
    seconds = REQUEST_SECONDS.labels(method, path)

    async def answer(request: Request) -> Response:
        values = operation.parsed(request.path_params, request.query_params)
        if text is not None:
            values.pop("name")
            # Without a body, a text that is not required is left out.
            if text.is_required or "content-type" in request.headers:
                values["text"] = await app_text(request)
            if operation.about is About.TEXT:
                await require_for_text(service, operation.permission, values["text"])
        result = await handler(request, **values)
        return result if isinstance(result, Response) else Json(result)

    async def timed(request: Request) -> Response:
        span = service.tracer.span(
            f"{method} {path}",
            request.headers,
            http_request_method=method,
            http_route=path,
            mesh_app=request.path_params.get("app"),
            enduser_id=request.scope.get("mesh.user") or None,
        )
        with seconds.time(), span:
            return await answer(request)

    checked = path.replace("{app}", "{app:app_name}").replace("{id}", "{id:entry_id}")
    route = Route(checked, timed, methods=[method])
    route.name = operation.name
    return route
