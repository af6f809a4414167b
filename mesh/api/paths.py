"""Paths of routes: every ``{app}`` matches names of apps only, every ``{id}`` numbers only.

A path is decoded once before it is matched, so ``%2A`` arrives as ``*``.  A name that reached a
NATS subject or filter with a wildcard in it would mean every app.  So no handler can receive one:
a path with another name matches no route, and its response is 404.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Final

from prometheus_client import Histogram
from starlette.convertors import IntegerConvertor, StringConvertor, register_url_convertor
from starlette.routing import Route

from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

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


def route(path: str, endpoint: Callable[[Request], Awaitable[Response]], method: str) -> Route:
    """A route whose ``{app}`` and ``{id}`` match nothing but names of apps and numbers.

    The time of its requests is counted in ``REQUEST_SECONDS``, and each has a span if traces are
    on.  ``state.service`` of the application makes the spans.
    """
    checked = path.replace("{app}", "{app:app_name}").replace("{id}", "{id:entry_id}")
    seconds = REQUEST_SECONDS.labels(method, path)

    @wraps(endpoint)
    async def timed(request: Request) -> Response:
        span = request.app.state.service.span(
            f"{method} {path}",
            request.headers,
            http_request_method=method,
            http_route=path,
            mesh_app=request.path_params.get("app"),
            enduser_id=request.scope.get("mesh.user") or None,
        )
        with seconds.time(), span:
            return await endpoint(request)

    return Route(checked, timed, methods=[method])
