"""The ASGI application of the pages, with the REST API or alone.

    GET /                         the overview
    GET /static/..                style, scripts; these and /login need no session
    GET, POST /login; POST /logout
    GET /login/oidc, /login/oidc/callback    sign-in by the identity provider
    GET, POST /apps/{app}, /apps/{app}/i/{instance}, /apps/{app}/s/{stream}, /apps/{app}/edit
    GET /apps/{app}/why/{stream}/{sequence}, /apps/{app}/compare
    GET /nats, /nats/{js_stream}  NATS: servers, streams, consumers
    GET /search                   apps, streams and errors with a text
    GET, POST /nodes, /nodes/{node}, /story, /errors, /query, /deploy
    GET, POST /users, /users/+new, /users/{user}, /audit, /account
    GET, POST /start, /start/{app}    a first app of the cookbook
    GET, POST /apps/{app}/fork, /deploy/backfill, /deploy/migrate
    POST /deploy/language         errors, completion and hover of a text that is written, as JSON
    GET /docs                     the REST API for people

``/nodes``, ``/users`` and ``/audit`` are also routes of the REST API: browsers get the page, other
clients the JSON.
A page that is asked for as ``text/event-stream`` sends its changed parts instead.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from mesh.dashboard.board import Board
from mesh.dashboard.guard import PageGuard
from mesh.dashboard.pages import (
    account,
    api,
    app,
    audit,
    backfill,
    deploy,
    errors,
    fork,
    migrate,
    nats,
    nodes,
    overview,
    past,
    query,
    search,
    sign_in,
    start,
    story,
    stream,
    users,
)
from mesh.dashboard.responses import HERE, Needs, PageFrame
from mesh.errors import MeshError
from mesh.jetstream.connection import NATS_ERRORS, unreachable
from mesh.model import names
from mesh.model.access import Permission

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mesh.api.page_access import PageAccess
    from mesh.clock import Clock
    from mesh.manager.service import ManagerService

log = logging.getLogger(__name__)

#: First parts of the paths of pages that no other API has.
_PAGES: Final = frozenset(
    {
        "",
        "account",
        "apps",
        "docs",
        "story",
        "errors",
        "nats",
        "query",
        "search",
        "start",
        "deploy",
        "login",
        "logout",
        "static",
    }
)
#: First parts of paths that are routes of the REST API, too.
_SHARED: Final = ("nodes", "users", "audit")
_BROWSER: Final = ("text/html", "text/event-stream")
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


#: What it takes to look at a page and to send a form: for the app of the path, for any app, or for
#: the cluster.
_APP: Final = Needs(Permission.APPS_VIEW)
_APPS: Final = Needs(Permission.APPS_VIEW, anywhere=True)
_CHANGE: Final = Needs(Permission.APPS_MANAGE)
_CHANGES: Final = Needs(Permission.APPS_MANAGE, anywhere=True)
_READ: Final = Needs(Permission.DATA_READ, anywhere=True)
_DATA: Final = Needs(Permission.DATA_READ)
_WRITE: Final = Needs(Permission.DATA_WRITE)
_WRITES: Final = Needs(Permission.DATA_WRITE, anywhere=True)
_NODES: Final = Needs(Permission.MONITOR)
_ORDER: Final = Needs(Permission.NODES_MANAGE)
_ADMIN: Final = Needs(Permission.ADMIN)
#: Every user, about itself.
_SELF: Final = Needs(None)


class Front:
    """Sends requests of browsers to the pages, and all others to the API."""

    def __init__(self, api: ASGIApp, pages: ASGIApp) -> None:
        self._api = api
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to one of them."""
        is_page = scope["type"] == "http" and is_for_page(scope)
        await (self._pages if is_page else self._api)(scope, receive, send)


def is_for_page(scope: Scope) -> bool:
    """Whether a request is for a page."""
    parts = scope["path"].strip("/").split("/")
    if parts[0] not in _SHARED:
        is_api = len(parts) > 1 and parts[0] in ("login", "logout") and parts[1] != "oidc"
        return parts[0] in _PAGES and not is_api
    if scope["method"] == "POST":
        return len(parts) == 2
    accept = next((value.decode() for key, value in scope["headers"] if key == b"accept"), "")
    return any(kind in accept for kind in _BROWSER)


class Headers:
    """Middleware: a page runs no code of other hosts, and is neither framed nor kept."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the headers to the answer."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                is_tls = scope.get("scheme") == "https"
                _add(message, scope["path"].startswith("/static/"), is_tls)
            await send(message)

        await self._app(scope, receive, with_headers)


def _add(message: MutableMapping[str, object], is_static: bool, is_tls: bool) -> None:
    headers = message.setdefault("headers", [])
    assert isinstance(headers, list)
    caching = "public, max-age=3600" if is_static else "no-store"
    more = {"Strict-Transport-Security": "max-age=31536000"} if is_tls else {}
    for name, value in {**HEADERS, **more, "Cache-Control": caching}.items():
        headers.append((name.lower().encode(), value.encode()))


class _AppName(StringConvertor):
    """Names of apps; a path with another name has no page."""

    regex = names.APP_NAME


register_url_convertor("page_app", _AppName())


def make_pages(service: ManagerService, access: PageAccess, clock: Clock) -> Starlette:
    """The pages of a cluster, for the users of ``access``."""
    board = Board(service, clock)
    frame = PageFrame(board, access)

    async def refuse(request: Request, error: Exception) -> Response:
        return frame.refusal(request, _refusal_of(error))

    one = "/apps/{app:page_app}"
    language = frame.page(partial(deploy.language, frame), _CHANGES, _CHANGES)

    def pair(path: str, show: Any, act: Any, look: Needs, send: Needs) -> list[Route]:
        """A page and its form."""
        return [
            Route(path, frame.page(partial(show, board), look, send), methods=["GET"]),
            Route(path, frame.page(partial(act, frame), look, send), methods=["POST"]),
        ]

    def alone(path: str, show: Any, look: Needs) -> Route:
        """A page without a form."""
        return Route(path, frame.page(partial(show, board), look, look), methods=["GET"])

    def of_users(path: str, show: Any, act: Any | None, needs: Needs) -> list[Route]:
        """A page about users, which needs no view of the cluster."""
        routes = [Route(path, frame.page(partial(show, frame), needs, needs), methods=["GET"])]
        if act is not None:
            acted = frame.page(partial(act, frame), needs, needs)
            routes.append(Route(path, acted, methods=["POST"]))
        return routes

    return Starlette(
        routes=[
            # Only files are packed: a page has the token of its session beside texts of others.
            Mount("/static", GZipMiddleware(StaticFiles(directory=HERE / "static"))),
            alone("/", overview.show, _APPS),
            *pair(one, app.show, app.act, _APP, _CHANGE),
            alone(f"{one}/i/{{instance}}", app.instance, _APP),
            *pair(f"{one}/s/{{stream}}", stream.show, stream.act, _APP, _WRITE),
            alone(f"{one}/why/{{stream}}/{{sequence}}", past.why, _DATA),
            alone(f"{one}/compare", past.compare, _DATA),
            *pair(f"{one}/fork", fork.show, fork.act, _CHANGE, _CHANGE),
            *pair(f"{one}/edit", deploy.show, deploy.act, _CHANGE, _CHANGE),
            alone("/nats", nats.show, _NODES),
            alone("/nats/{js_stream}", nats.one, _NODES),
            alone("/nodes", nodes.show, _NODES),
            *pair("/nodes/{node}", nodes.one, nodes.act, _NODES, _ORDER),
            alone("/search", search.show, _APPS),
            alone("/story", story.show, _APPS),
            *pair("/errors", errors.show, errors.act, _READ, _WRITES),
            *pair("/query", query.show, query.ask, _READ, _READ),
            *pair("/deploy", deploy.show, deploy.act, _CHANGES, _CHANGES),
            *pair("/start", start.choose, start.begin, _CHANGES, _CHANGES),
            *pair("/start/{app:page_app}", start.show, start.act, _CHANGE, _CHANGE),
            *pair("/deploy/backfill", backfill.show, backfill.act, _CHANGES, _CHANGES),
            *pair("/deploy/migrate", migrate.show, migrate.act, _CHANGES, _CHANGES),
            Route("/deploy/language", language, methods=["POST"]),
            *of_users("/users", users.show, None, _ADMIN),
            *of_users("/users/+new", users.new, users.add, _ADMIN),
            *of_users("/users/{user}", users.one, users.act, _ADMIN),
            *of_users("/audit", audit.show, None, _ADMIN),
            *of_users("/account", account.show, account.act, _SELF),
            Route("/docs", frame.page(api.show, _SELF, _SELF), methods=["GET"]),
            *_sign_in_routes(frame),
        ],
        middleware=[Middleware(Headers), Middleware(PageGuard, access=access)],
        exception_handlers=dict.fromkeys((MeshError, HTTPException, *NATS_ERRORS), refuse),
    )


def _sign_in_routes(frame: PageFrame) -> list[Route]:
    return [
        Route("/login", partial(sign_in.enter, frame), methods=["GET", "POST"]),
        Route("/login/oidc", partial(sign_in.begin, frame), methods=["GET"]),
        Route("/login/oidc/callback", partial(sign_in.arrive, frame), methods=["GET"]),
        Route("/logout", partial(sign_in.leave, frame), methods=["POST"]),
    ]


def _refusal_of(error: Exception) -> MeshError:
    match error:
        case MeshError():
            return error
        case HTTPException():
            return MeshError(f"MESH-A{error.status_code}", error.detail.lower())
        case _:
            return unreachable(error)
