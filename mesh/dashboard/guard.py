"""Access to pages: a session for users, no request of another site's page, and the audit.

Without users the pages are for this machine only, as the API is.  The user of a request is known
to everything below the guard (``mesh.model.access.current``), so views hold the apps of its grants.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mesh.api.auth import logged
from mesh.errors import MeshError
from mesh.http.request_body import read_body
from mesh.jetstream.sessions import UserSession, is_same
from mesh.model.access import Permission, current, lacking

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mesh.api.page_access import PageAccess
    from mesh.model.access import Identity

#: Bytes of a form: an app's text is the longest.
FORM_BYTES_MAX: Final = 4_000_000
FIELDS_MAX: Final = 2000
SIGN_IN: Final = "/login"
#: With TLS the name binds the cookie to this host, without a parent domain or another path.
COOKIE_TLS: Final = "__Host-mesh"
COOKIE: Final = "mesh_session"
_REFUSALS: Final = (401, 403, 429)


class PageGuard:
    """Middleware: gives each request its session, or answers with the way to the sign-in."""

    def __init__(self, app: ASGIApp, access: PageAccess) -> None:
        self._app = app
        self._access = access
        self._everybody = UserSession("", secrets.token_urlsafe(32))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] != "http" or scope["path"].startswith("/static/"):
            await self._app(scope, receive, send)
            return
        scope["mesh.session"] = scope["mesh.identity"] = None
        answer = self._auditing(scope, send)
        refused = await self._refusal(scope, Headers(scope=scope))
        if refused is not None:
            await refused(scope, receive, answer)
            return
        token = current.set(scope["mesh.identity"])
        try:
            await self._app(scope, receive, answer)
        except Exception:
            # The outermost layer answers, beyond this one.
            self._note(scope, 500)
            raise
        finally:
            current.reset(token)

    async def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Find the user of a request, or the answer without one."""
        reason = self._access.reason_against(headers) or _cross_site(headers)
        if reason is not None:
            return _plain(reason, 403)
        if not self._access.admits(source_of(scope)):
            return _plain("too many requests from this address", 429)
        try:
            session = await self.session(scope)
        except MeshError as error:
            return _plain(f"{error.message}: {error.hint}", 503)
        identity = self._access.identity(session) if session is not None else None
        if session is None or identity is None:
            return None if scope["path"].startswith(SIGN_IN) else _to_sign_in(scope, headers)
        if identity.user and not self._access.admits(f"user {identity.user}"):
            return _plain("too many requests of this user", 429)
        scope["mesh.session"], scope["mesh.identity"] = session, identity
        return None

    async def session(self, scope: Scope) -> UserSession | None:
        """The session of a request."""
        if self._access.is_open or self._access.sessions is None:
            return self._everybody if self._access.is_open else None
        return await self._access.session(cookie_of(scope))

    def _auditing(self, scope: Scope, send: Send) -> Send:
        """Notes the request once the status of the answer is known."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(scope, message["status"])
            await send(message)

        return answer

    def _note(self, scope: Scope, status: int) -> None:
        """Audit a request, once: a change, a reading of payloads, or a refusal."""
        needed = scope.get("mesh.needed", (None, ""))
        reads = scope["method"] in ("GET", "HEAD") or scope.get("mesh.only_reads", False)
        is_audited = not reads or Permission.DATA_READ in needed or status in _REFUSALS
        if is_audited and not scope.get("mesh.answered"):
            self._access.note(
                scope["mesh.identity"],
                source_of(scope),
                scope["method"],
                scope["path"],
                status,
                needed,
                scope.get("mesh.claimed", ""),
            )
        scope["mesh.answered"] = True


def source_of(scope: Scope) -> str:
    """The address of the client."""
    return str((scope.get("client") or ("",))[0])


def cookie_name(scope: Scope) -> str:
    """The name of the cookie: with TLS one that browsers bind to this host."""
    return COOKIE_TLS if scope.get("scheme") == "https" else COOKIE


def cookie_of(scope: Scope) -> str:
    """The value of the cookie; empty without one."""
    return Request(scope).cookies.get(cookie_name(scope), "")


def session_of(request: Request) -> UserSession:
    """The session of a request that has passed the guard."""
    session: UserSession | None = request.scope.get("mesh.session")
    if session is None:
        raise MeshError("MESH-A401", "the session has ended", hint="Sign in again.")
    return session


def identity_of(request: Request) -> Identity:
    """The user of a request that has passed the guard."""
    session_of(request)
    identity: Identity = request.scope["mesh.identity"]
    return identity


def require(request: Request, permission: Permission, app: str | None = None) -> None:
    """Refuse a user without a permission: MESH-A403; without an app, for the whole cluster."""
    request.scope["mesh.needed"] = permission, app or ""
    identity = identity_of(request)
    if not identity.may(permission, app):
        raise lacking(identity.user, permission, app)


def require_anywhere(request: Request, permission: Permission) -> None:
    """Refuse a user without a permission for any app: MESH-A403."""
    request.scope["mesh.needed"] = permission, ""
    identity = identity_of(request)
    if not identity.may_anywhere(permission):
        raise lacking(identity.user, permission, None)


async def form_of(request: Request, *, has_session: bool = True) -> dict[str, list[str]]:
    """The fields of a form; MESH-A403 without the token of the session."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise MeshError("MESH-A415", "a form is sent as application/x-www-form-urlencoded")
    read = await read_body(request, FORM_BYTES_MAX)
    try:
        fields = parse_qs(read.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError as error:
        raise MeshError("MESH-A400", "the form can't be read", detail=f"{error}.") from error
    if has_session and not is_same(fields.get("token", [""])[0], session_of(request).token):
        raise MeshError(
            "MESH-A403",
            "the form is of another session",
            hint="Open the page again, and repeat what you did.",
        )
    return fields


async def fields_of(request: Request) -> dict[str, str]:
    """``form_of`` with the first value of each field."""
    return {name: values[0] for name, values in (await form_of(request)).items()}


async def sign_in(access: PageAccess, form: Mapping[str, list[str]], address: str) -> str:
    """The user of a sign-in form; MESH-A401 when name and password don't match, MESH-A429."""
    user, password = form.get("user", [""])[0], form.get("password", [""])[0]
    fits = await access.sign_in(user, password, address)
    if fits is None:
        raise MeshError("MESH-A429", "too many passwords are checked", hint="Try again.")
    if not fits:
        access.warn("login failed", address, user=logged(user))
        raise MeshError("MESH-A401", "user and password don't fit")
    return user


def local_path(path: str) -> str:
    """The path to open after a sign-in: one of this host, else the first page."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and "\n" not in path
    return path if is_local and "\r" not in path else "/"


def _plain(reason: str, status: int) -> Response:
    return Response(f"{reason}\n", status, media_type="text/plain")


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
        return _plain("sign in first", 401)
    query = scope.get("query_string", b"").decode("latin-1")
    path = scope["path"] + (f"?{query}" if query else "")
    target = SIGN_IN if path == "/" else f"{SIGN_IN}?next={quote(path, safe='/')}"
    if "hx-request" in headers:
        return Response(status_code=200, headers={"HX-Redirect": target})
    return RedirectResponse(target, 303)
