"""Access to pages: a session for users, and no request of another site's page.

Without users the pages are for this machine only, as the API is.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mesh.dashboard.sessions import COOKIE, COOKIE_TLS, Session, Sessions, is_same
from mesh.errors import MeshError
from mesh.logs import fields

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from mesh.clock import Clock

log = logging.getLogger(__name__)

#: Bytes of a form: an app's text is the longest.
FORM_BYTES_MAX: Final = 4_000_000
FIELDS_MAX: Final = 2000
ALL: Final = frozenset({"view", "manage", "monitor"})
SIGN_IN: Final = "/login"
_NAME_MAX: Final = 64


class Door(Protocol):
    """The users of the API."""

    @property
    def is_open(self) -> bool:
        """Whether there are no users: every client on this machine has all permissions."""
        ...

    def reason_against(self, headers: Mapping[str, str]) -> str | None:
        """The reason to refuse a request by its headers; None if there is none."""
        ...

    async def sign_in(self, user: str, password: str, address: str) -> bool | None:
        """Whether name and password match; None if too many are being checked."""
        ...

    def permissions(self, user: str) -> Collection[str]:
        """The permissions of a user now; none for one that was removed."""
        ...


class Guard:
    """Middleware: gives each request its session, or answers with the way to the sign-in."""

    def __init__(self, app: ASGIApp, door: Door, sessions: Sessions, clock: Clock) -> None:
        self._app = app
        self._door, self._sessions, self._clock = door, sessions, clock
        self._everybody = Session("", secrets.token_urlsafe(32))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] != "http" or scope["path"].startswith("/static/"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        reason = self._door.reason_against(headers) or _cross_site(headers)
        if reason is not None:
            refused = Response(f"{reason}\n", 403, media_type="text/plain")
            await refused(scope, receive, send)
            return
        session = self.session(scope)
        scope["mesh.session"] = session
        scope["mesh.may"] = frozenset() if session is None else self._may(session)
        if session is None and scope["path"] != SIGN_IN:
            await _to_sign_in(scope, headers)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def session(self, scope: Scope) -> Session | None:
        """The session of a request."""
        if self._door.is_open:
            return self._everybody
        name = Request(scope).cookies.get(cookie_name(scope), "")
        return self._sessions.find(name, self._clock.monotonic_s()) if name else None

    def _may(self, session: Session) -> Collection[str]:
        return ALL if self._door.is_open else self._door.permissions(session.user)


def cookie_name(scope: Scope) -> str:
    """The name of the cookie: with TLS one that browsers bind to this host."""
    return COOKIE_TLS if scope.get("scheme") == "https" else COOKIE


def session_of(request: Request) -> Session:
    """The session of a request that has passed the guard."""
    found: Session | None = request.scope.get("mesh.session")
    if found is None:
        raise MeshError("MESH-A401", "the session has ended", hint="Sign in again.")
    return found


def require(request: Request, permission: str) -> None:
    """Refuse a user without a permission: MESH-A403."""
    if permission not in request.scope.get("mesh.may", ()):
        user = session_of(request).user
        raise MeshError("MESH-A403", f'user "{user}" lacks the permission "{permission}"')


async def form_of(request: Request, *, has_session: bool = True) -> dict[str, list[str]]:
    """The fields of a form; MESH-A403 without the token of the session."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise MeshError("MESH-A415", "a form is sent as application/x-www-form-urlencoded")
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > FORM_BYTES_MAX:
            raise MeshError("MESH-A413", f"a form has {FORM_BYTES_MAX} bytes at most")
    try:
        found = parse_qs(read.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError as error:
        raise MeshError("MESH-A400", "the form can't be read", detail=f"{error}.") from error
    if has_session and not is_same(found.get("token", [""])[0], session_of(request).token):
        raise MeshError(
            "MESH-A403",
            "the form is of another session",
            hint="Open the page again, and repeat what you did.",
        )
    return found


async def sign_in(door: Door, form: Mapping[str, list[str]], address: str) -> str:
    """The user of a sign-in form; MESH-A401 when name and password don't match, MESH-A429."""
    user, password = form.get("user", [""])[0], form.get("password", [""])[0]
    fits = await door.sign_in(user, password, address)
    if fits is None:
        raise MeshError("MESH-A429", "too many passwords are checked", hint="Try again.")
    if not fits:
        shown = user[:_NAME_MAX].encode("unicode_escape").decode()
        log.warning("login failed", extra=fields(user=shown, address=address))
        raise MeshError("MESH-A401", "user and password don't fit")
    return user


def local_path(path: str) -> str:
    """The path to open after a sign-in: one of this host, else the first page."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and "\n" not in path
    return path if is_local and "\r" not in path else "/"


def _cross_site(headers: Headers) -> str | None:
    site = headers.get("sec-fetch-site", "none")
    if site in ("same-origin", "none"):
        return None
    # A link of another page may lead here; it can't do anything but look.
    if headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document":
        return None if headers.get("origin") is None else "the form is of another site's page"
    return "the request is of another site's page"


def _to_sign_in(scope: Scope, headers: Headers) -> Response:
    if scope["method"] != "GET" or "text/event-stream" in headers.get("accept", ""):
        return Response("sign in first\n", 401, media_type="text/plain")
    query = scope.get("query_string", b"").decode("latin-1")
    path = scope["path"] + (f"?{query}" if query else "")
    target = SIGN_IN if path == "/" else f"{SIGN_IN}?next={quote(path, safe='/')}"
    if "hx-request" in headers:
        return Response(status_code=200, headers={"HX-Redirect": target})
    return RedirectResponse(target, 303)
