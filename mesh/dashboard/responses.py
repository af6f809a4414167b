"""Views to responses: a whole page, its stream of changes, or a refusal.

Templates to HTML: whole pages, and the parts of a page that change while it is open.

A part is a block whose name begins with ``live_``, inside an element with the same id.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

import mesh
from mesh.dashboard import shown
from mesh.dashboard.guard import cookie_of, identity_of, require, require_anywhere, session_of
from mesh.dashboard.shown import WORDS, badge_kind
from mesh.errors import MeshError, text_lines
from mesh.http.bounds import Bound
from mesh.model.access import Permission
from mesh.model.names import app_of_token
from mesh.model.values import JsonMapping

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from starlette.datastructures import QueryParams
    from starlette.requests import Request

    from mesh.api.page_access import PageAccess
    from mesh.dashboard.board import Board
    from mesh.jetstream.sessions import UserSession
    from mesh.model.access import Identity

    Handler = Callable[[Request], Awaitable["PageView | Response"]]

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Time between two looks of an open page.
TICK_S: Final = 1.0
#: Open pages that are kept up to date, at most half of them for one user; others show what they
#: showed first.
FOLLOWERS_MAX: Final = 100
#: A line that shows a proxy that the stream is alive, after so many ticks without a change.
QUIET_TICKS: Final = 15
#: The last message of a page that is not kept up to date any more.
_END: Final = b"event: end\ndata: {}\n\n"
#: Paths of the API by which an error gets its HTTP status.
_STATUS_OF_TEXT: Final = 400


@dataclass(frozen=True, slots=True)
class Needs:
    """The permission that a page or its form needs: for the app of the path, if it names one."""

    permission: Permission | None
    #: Of a path without an app: whether the permission for any app is enough, and the page holds
    #: the apps of the user's grants.
    anywhere: bool = False

    def check(self, request: Request) -> None:
        """Refuse a user without it: MESH-A403; MESH-A401 without a session."""
        app = request.path_params.get("app")
        if self.permission is None:
            session_of(request)
        elif app is None and self.anywhere:
            require_anywhere(request, self.permission)
        else:
            require(request, self.permission, app)


class PageFrame:
    """Everything that all pages share: the board, the users, the frame around the content."""

    def __init__(self, board: Board, access: PageAccess) -> None:
        self.board = board
        self.access = access
        self._live = Bound(FOLLOWERS_MAX, "pages are kept up to date")
        #: By page and session: when it was rendered, and its parts.
        self._parts: dict[object, tuple[float, dict[str, str]]] = {}

    def page(self, handler: Handler, look: Needs, send: Needs) -> Callable[[Request], Any]:
        """The endpoint of a page: what it takes to look, and to send its form."""

        async def endpoint(request: Request) -> Response:
            (look if request.method in ("GET", "HEAD") else send).check(request)
            if request.method == "GET" and "text/event-stream" in request.headers.get("accept", ""):
                return self._stream(request, handler)
            result = await handler(request)
            return result if isinstance(result, Response) else self.shown(request, result)

        return endpoint

    def shown(self, request: Request, view: PageView) -> Response:
        """A whole page."""
        return HTMLResponse(page_of(view, self.common(request)), view.status)

    def done(self, path: str) -> Response:
        """The answer to a form that was obeyed: the page that shows it."""
        self.board.forget()
        self._parts.clear()
        return RedirectResponse(path, 303)

    def refusal(self, request: Request, error: MeshError) -> Response:
        """An error as a page."""
        view = PageView("error.html", {"error": error}, status_of(error))
        return self.shown(request, view)

    def common(self, request: Request) -> JsonMapping:
        """Values for the frame around the content."""
        session: UserSession | None = request.scope.get("mesh.session")
        identity: Identity | None = request.scope.get("mesh.identity")
        return {
            "path": request.url.path,
            "is_get": request.method == "GET",
            "query": request.query_params,
            "user": session.user if session is not None else "",
            "token": session.token if session is not None else "",
            "can": lambda permission, app=None: may(identity, permission, app),
            "can_some": lambda permission: (
                identity is not None and identity.may_anywhere(Permission(permission))
            ),
            "has_users": not self.access.is_open,
            "has_provider": self.access.provider is not None,
            "is_signed_in": session is not None,
            "now_ms": self.board.clock.wall_ms(),
        }

    def _stream(self, request: Request, handler: Handler) -> Response:
        if not self._live.has_room():
            # Browsers don't ask again after this status.
            return Response(status_code=204)
        return StreamingResponse(
            self._changes(request, handler),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    async def _changes(self, request: Request, handler: Handler) -> AsyncIterator[bytes]:
        """The parts that have changed, about once a second, until the client leaves."""
        sent: dict[str, str] = {}
        quiet = 0
        if not self._live.has_room():
            yield _END
            return
        with self._live.turn():
            yield b"retry: 3000\n\n"
            while True:
                parts = await self._parts_now(request, handler)
                if parts is None:
                    yield _END
                    return
                changed = {name: html for name, html in parts.items() if sent.get(name) != html}
                sent = parts
                quiet = 0 if changed else quiet + 1
                if changed:
                    yield b"data: " + orjson.dumps(changed) + b"\n\n"
                elif quiet % QUIET_TICKS == 0:
                    yield b": alive\n\n"
                await asyncio.sleep(TICK_S)

    async def _parts_now(self, request: Request, handler: Handler) -> dict[str, str] | None:
        """The parts now, as another reader of the same page may have got them; None at its end."""
        if not await self._is_valid(request):
            return None
        key = str(request.url), session_of(request).token
        now_s = self.board.clock.monotonic_s()
        entry = self._parts.get(key)
        if entry is not None and now_s - entry[0] < TICK_S / 2:
            return entry[1]
        try:
            view = await handler(request)
        except MeshError as error:
            # The app may be gone; the page shows the last that was known, until it is loaded again.
            log.debug("page not renewed: %s", error)
            return None
        if isinstance(view, Response):
            return None
        parts = parts_of(view, self.common(request))
        self._parts = {k: v for k, v in self._parts.items() if now_s - v[0] < TICK_S}
        self._parts[key] = now_s, parts
        return parts

    async def _is_valid(self, request: Request) -> bool:
        """Whether the user of an open page is signed in, with the rights that it was opened with.

        The page is loaded again otherwise, with what the user may see now.
        """
        if self.access.is_open or self.access.sessions is None:
            return self.access.is_open
        try:
            session = await self.access.session(cookie_of(request.scope), is_used=False)
        except MeshError:
            return False
        return session is not None and self.access.identity(session) == identity_of(request)


def paged(rows: Sequence[T], query: QueryParams, size: int) -> tuple[Sequence[T], dict[str, int]]:
    """The rows of the page that a query names from 1, and the values of the page's footer."""
    text = query.get("page", "1")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 1
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, number), pages)
    values = {"count": len(rows), "page_number": page, "page_count": pages}
    return rows[(page - 1) * size : page * size], values


def may(identity: Identity | None, permission: str, app: str | None) -> bool:
    """Whether a user has a permission for an app; with None, for the whole cluster."""
    return identity is not None and identity.may(Permission(permission), app)


def status_of(error: MeshError) -> int:
    """The HTTP status of an error, by its code."""
    kind, number = error.code[5:6], error.code[6:]
    if kind == "A" and number.startswith(("4", "5")):
        return int(number)
    return 503 if kind == "N" else _STATUS_OF_TEXT


HERE: Final = Path(__file__).parent
LIVE: Final = "live_"


@dataclass(frozen=True, slots=True)
class PageView:
    """The content of a page: its template and the values for it."""

    template: str
    values: JsonMapping = field(default_factory=dict)
    #: HTTP status.
    status: int = 200


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": shown.number,
        "rate": shown.rate,
        "size": shown.size,
        "duration": shown.duration,
        "clock": partial(shown.time_element, has_date=False),
        "moment": partial(shown.time_element, has_date=True),
        "payload": shown.payload,
        "lines": text_lines,
        "badge": badge_kind,
        "own_name": app_of_token,
    }
    environment.globals |= {"version": mesh.__version__, "words": WORDS}
    environment.globals["ui"] = environment.get_template("macros.html").module
    return environment


_ENVIRONMENT: Final = _environment()


def page_of(view: PageView, common: JsonMapping) -> str:
    """A whole page; ``common`` are the values of the frame around it."""
    template = _ENVIRONMENT.get_template(view.template)
    # The address of a page that answers a form shows something else: it is not kept up to date.
    is_live = common["is_get"] and any(name.startswith(LIVE) for name in template.blocks)
    return template.render({**common, **view.values, "is_live": is_live})


def parts_of(view: PageView, common: JsonMapping) -> dict[str, str]:
    """The parts that change, by id."""
    template = _ENVIRONMENT.get_template(view.template)
    context = template.new_context({**common, **view.values})
    return {
        name: "".join(render(context))
        for name, render in template.blocks.items()
        if name.startswith(LIVE)
    }
