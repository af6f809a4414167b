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

Request bodies, parameters and their refusals, and JSON responses.

Apps that the user of a request may see, and texts that it may deploy.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson
from prometheus_client import Histogram
from starlette.convertors import IntegerConvertor, StringConvertor, register_url_convertor
from starlette.responses import Response
from starlette.routing import Route

from mesh.errors import MeshError
from mesh.http.request_body import read_body
from mesh.language.naming import named
from mesh.model import names
from mesh.model.access import Permission, current, needed, require
from mesh.model.operation import About

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from starlette.requests import Request

    from mesh.control.lifecycle import AppStatus
    from mesh.manager.service import ManagerService
    from mesh.model.operation import Operation
    from mesh.model.values import JsonObject

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


#: An app is a page of text; more is a mistake.
TEXT_BYTES_MAX: Final = 1_000_000


def error_type(status: int) -> str:
    """The kind of an error in the words of the system before this one."""
    kinds = {400: "validation error", 404: "not found", 409: "conflict", 500: "internal error"}
    return kinds.get(status, HTTPStatus(status).phrase.lower())


#: Headers of refusals by their status.
_HEADERS: Final = {
    401: {"WWW-Authenticate": 'Basic realm="mesh", charset="UTF-8"'},
    429: {"Retry-After": "1"},
    503: {"Retry-After": "1"},
}


def refusal_of(status: int, message: str) -> Response:
    """The answer to a request that reaches no route."""
    values = {"code": f"MESH-A{status}", "message": message, "type": error_type(status)}
    return Json(values, status, _HEADERS.get(status))


class Json(Response):
    """Any JSON values, dataclasses among them."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """As JSON, with a newline so that a terminal shows the prompt below it."""
        return orjson.dumps(content) + b"\n"


def values_of(value: Any) -> Any:
    """Dataclasses as the JSON values that they go out as."""
    return orjson.loads(orjson.dumps(value))


#: States of apps in the words of the system before this one; all others are "inactive".
STATUSES: Final = {"running": "active", "starting": "waiting", "waiting": "waiting"}


def with_status(app: Any) -> JsonObject:
    """A status with the word that the system before this one had for its state."""
    values: JsonObject = values_of(app)
    return {**values, "status": STATUSES.get(values.get("state", ""), "inactive")}


async def app_text(request: Request) -> str:
    """The text of an app in the body, with its name; MESH-A415 and MESH-A400 for another body.

    A text without ``@App:name`` gets parameter ``name``, else one from its digest.
    """
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.partition("=")[2].strip().strip('"').lower()
    if kind.strip().lower() != "text/plain" or charset not in ("", "utf-8", "utf8", "us-ascii"):
        raise MeshError(
            "MESH-A415",
            "an app is sent as text/plain in UTF-8",
            detail=f"Content-Type is {request.headers.get('content-type')!r}.",
            hint='With curl: -H "Content-Type: text/plain" --data-binary @app.siddhi',
        )
    try:
        text = (await read_body(request, TEXT_BYTES_MAX)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MeshError("MESH-A400", "the text of an app is UTF-8", detail=f"{error}.") from error
    return named(text, request.query_params.get("name", ""))


async def json_body(request: Request, most: int) -> Any:
    """The values of a JSON body; MESH-A400 for another one, MESH-A413 as ``read_body``."""
    try:
        return orjson.loads(await read_body(request, most))
    except orjson.JSONDecodeError as error:
        raise MeshError("MESH-A400", "the body is not JSON", detail=f"{error}.") from error


def user_of(request: Request) -> str:
    """The name of the user; empty for an API without users."""
    user: str = request.scope.get("mesh.user", "")
    return user


async def visible_apps(service: ManagerService) -> Sequence[AppStatus]:
    """The apps that the user has the permission of the route for, else any permission.

    Each list of the API is made from these; a test finds handlers that ask the service itself.
    """
    apps = await service.apps()
    identity, permission = current.get(), needed.get()
    if identity is None:
        return apps
    grants = [one for one in identity.grants if permission is None or permission in one.may]
    return [app for app in apps if any(one.covers(app.app) for one in grants)]


async def require_for_text(service: ManagerService, permission: object, text: str) -> None:
    """Refuse a text whose app the user has no permission for: MESH-A403.

    A user with the permission for every app needs no look at the text here.
    """
    assert isinstance(permission, Permission), "a text is deployed with a permission"
    identity = current.get()
    if identity is None or identity.may(permission, None):
        return
    require(permission, await service.name_of(text))
