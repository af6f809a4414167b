"""Sign-in with a password for a short-lived token, as the system before this one had it.

    {"authUser": "ada", "pID": "mesh_login_..", "lID": "mesh_login_..", "validityPeriod": 1800}

The token is a session like those of the pages: the bucket has its digest, every manager knows it,
and it ends after half an hour without use, after twelve hours, with the user's password and with
the log-out.  The system before divided its tokens between the answer and a cookie; here ``pID`` is
the whole token, so no cookie has any rights.  It is sent as ``Authorization: Bearer``.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from mesh.api.auth import LOGIN, LOGIN_PREFIX, logged
from mesh.api.routing import Json, error_type, serves
from mesh.errors import MeshError
from mesh.http.request_body import read_body
from mesh.jetstream.sessions import AGE_MS, IDLE_MS
from mesh.model.access import ANYONE, current
from mesh.model.foreign_operations import OriginalOperations

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.api.auth import Access
    from mesh.jetstream.sessions import UserSessions
    from mesh.model.values import JsonObject

BODY_BYTES_MAX: Final = 10_000
_FIELDS_MAX: Final = 20
_FORM: Final = "application/x-www-form-urlencoded"


class LoginRoutes:
    """Handlers of logins."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @serves(OriginalOperations.login)
    async def login(self, request: Request, product: str) -> Response:
        form = await _form(request)
        match form.get("grantType"):
            case "password":
                return await self._by_password(request, form)
            case "refresh_token":
                return await self._renewed(request)
            case other:
                # The keys are those of the system before, as its clients show them.
                message = f"Grant type '{other or ''}' is not supported."
                return _refused(HTTPStatus.BAD_REQUEST, "grantType_not_supported", message)

    @serves(OriginalOperations.logout)
    async def logout(self, request: Request, product: str) -> object:
        name = _name(request)
        if (current.get() or ANYONE).how != LOGIN or name is None:
            raise MeshError(
                "MESH-A400",
                "the request has no token of a login",
                detail="A password has no session, and an API token ends with `mesh token rm`.",
                hint="Send the token of POST /login/{product} as Authorization: Bearer.",
            )
        await self._sessions.end(name)
        return {"type": "success", "message": "the login has ended"}

    @property
    def _sessions(self) -> UserSessions:
        if self._access.sessions is None or self._access.users is None:
            raise MeshError("MESH-A422", "this manager keeps no sessions")
        return self._access.sessions

    async def _by_password(self, request: Request, form: dict[str, str]) -> Response:
        access, sessions = self._access, self._sessions
        user, source = form.get("username", ""), request.client.host if request.client else ""
        request.scope["mesh.claimed"] = user
        mark = access.users.mark(user) if access.users is not None else ""
        fits = await access.sign_in(user, form.get("password", ""), source)
        if fits is None or not access.limits.admit(f"user {user}", access.clock.monotonic_s()):
            raise MeshError("MESH-A429", "too many passwords are checked", hint="Try again.")
        if not fits:
            access.warn("login failed", source, user=logged(user))
            return _refused(
                HTTPStatus.UNAUTHORIZED, "invalid_credentials", "user and password don't fit"
            )
        now_ms = access.clock.wall_ms()
        name = await sessions.begin(user, how=LOGIN, source=source, mark=mark)
        return _login_answer(user, name, now_ms, now_ms)

    async def _renewed(self, request: Request) -> Response:
        """Another token for the same sign-in; the earlier one ends."""
        access, sessions, name = self._access, self._sessions, _name(request)
        session = await sessions.find(name) if name is not None else None
        identity = await access.by_login(f"{LOGIN_PREFIX}{name}") if name is not None else None
        if session is None or identity is None or name is None:
            return _refused(HTTPStatus.UNAUTHORIZED, "invalid_credentials", "the login has ended")
        request.scope["mesh.claimed"] = session.user
        new_name = await sessions.begin(
            session.user,
            how=LOGIN,
            source=session.source,
            began_ms=session.began_ms,
            mark=session.mark,
        )
        await sessions.end(name)
        return _login_answer(session.user, new_name, session.began_ms, access.clock.wall_ms())


def _login_answer(user: str, name: str, began_ms: int, now_ms: int) -> Response:
    token = f"{LOGIN_PREFIX}{name}"
    valid_ms = min(IDLE_MS, began_ms + AGE_MS - now_ms)
    return Json(
        {"authUser": user, "pID": token, "lID": token, "validityPeriod": max(0, valid_ms // 1000)}
    )


def _name(request: Request) -> str | None:
    """The name of the session whose token the request has; None for another token."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    is_login = scheme.lower() == "bearer" and token.startswith(LOGIN_PREFIX)
    return token.removeprefix(LOGIN_PREFIX) if is_login else None


async def _form(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise MeshError("MESH-A415", f"a login is sent as {_FORM}")
    try:
        text = (await read_body(request, BODY_BYTES_MAX)).decode()
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        # The reason may quote the body, which has a password.
        raise MeshError("MESH-A400", "the form can't be read") from error
    return {name: values[0] for name, values in fields.items()}


def _refused(status: HTTPStatus, error: str, message: str) -> Response:
    values: JsonObject = {"code": f"MESH-A{status.value}", "type": error_type(status)}
    return Json({**values, "message": message, "error": error, "description": message}, status)
