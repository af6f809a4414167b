"""Sign-in and sign-out: with a password, or by the identity provider.

The provider's answer belongs to the browser that began: the attempt is in a cookie of ten minutes,
which scripts and other sites' forms don't get.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse

from mesh.dashboard import guard
from mesh.dashboard.responses import PageView
from mesh.errors import MeshError
from mesh.model.sign_in import Attempt

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.responses import PageFrame

log = logging.getLogger(__name__)

#: Time for a person to sign in at the provider, seconds.
_ATTEMPT_S: Final = 600


async def enter(frame: PageFrame, request: Request) -> Response:
    """The form, and the session that it begins."""
    target = guard.local_path(request.query_params.get("next", "/"))
    if frame.access.is_open:
        return RedirectResponse(target, 303)
    if request.method != "POST":
        return frame.shown(request, PageView("login.html", {"error": None, "name": ""}))
    form = await guard.form_of(request, has_session=False)
    address = guard.source_of(request.scope)
    request.scope["mesh.claimed"] = form.get("user", [""])[0]
    # Of the hash that the password is compared with, not of one that is written meanwhile.
    mark = frame.access.mark(form.get("user", [""])[0])
    try:
        user = await guard.sign_in(frame.access, form, address)
    except MeshError as error:
        # The name is a field's value again; what was typed as a password is not sent back.
        values = {"error": error, "name": form.get("user", [""])[0][:64]}
        return frame.shown(request, PageView("login.html", values, int(error.code[6:])))
    await _end(frame, request)
    assert frame.access.sessions is not None
    done = RedirectResponse(target, 303)
    name = await frame.access.sessions.begin(user, source=address, mark=mark)
    _set(done, request, guard.cookie_name(request.scope), name)
    return done


async def begin(frame: PageFrame, request: Request) -> Response:
    """Lead the browser to the identity provider."""
    provider = frame.access.provider
    if provider is None or frame.access.is_open:
        raise MeshError("MESH-A404", "this manager has no identity provider")
    target = guard.local_path(request.query_params.get("next", "/"))
    try:
        page, attempt = await provider.begin(str(request.url), target)
    except MeshError as error:
        return _failed(frame, request, error)
    done = RedirectResponse(page, 303)
    _set(done, request, _attempt_name(request), attempt.to_text(), _ATTEMPT_S)
    return done


async def arrive(frame: PageFrame, request: Request) -> Response:
    """Begin the session of the user whom the identity provider names."""
    provider, sessions = frame.access.provider, frame.access.sessions
    if provider is None or sessions is None:
        raise MeshError("MESH-A404", "this manager has no identity provider")
    attempt = Attempt.from_text(request.cookies.get(_attempt_name(request), ""))
    try:
        by = await provider.complete(attempt, dict(request.query_params), str(request.url))
    except MeshError as error:
        return _failed(frame, request, error)
    assert attempt is not None
    source = guard.source_of(request.scope)
    await _end(frame, request)
    name = await sessions.begin(by.user, how="oidc", source=source, by=by)
    session = await frame.access.session(name)
    identity = frame.access.identity(session) if session is not None else None
    frame.access.note(identity, source, "GET", request.url.path, 303, (None, ""), by.user)
    if identity is None:
        await sessions.end(name)
        disabled = MeshError("MESH-A403", f'user "{by.user}" is disabled')
        return _failed(frame, request, disabled)
    done = RedirectResponse(guard.local_path(attempt.target), 303)
    _set(done, request, guard.cookie_name(request.scope), name)
    _drop(done, request, _attempt_name(request))
    return done


async def leave(frame: PageFrame, request: Request) -> Response:
    """End the session."""
    await guard.form_of(request)
    await _end(frame, request)
    done = RedirectResponse(guard.SIGN_IN, 303)
    _drop(done, request, guard.cookie_name(request.scope))
    return done


def _failed(frame: PageFrame, request: Request, error: MeshError) -> Response:
    status = 503 if error.code == "MESH-A108" else int(error.code[6:])
    source = guard.source_of(request.scope)
    frame.access.warn("login failed", source, reason=error.detail or error.message)
    return frame.shown(request, PageView("login.html", {"error": error, "name": ""}, status))


def _attempt_name(request: Request) -> str:
    return f"{guard.cookie_name(request.scope)}-oidc"


def _set(done: Response, request: Request, name: str, value: str, age_s: int | None = None) -> None:
    """Set a cookie that scripts can't read and that other sites' forms don't send."""
    is_tls = request.url.scheme == "https"
    done.set_cookie(
        name, value, max_age=age_s, httponly=True, secure=is_tls, samesite="lax", path="/"
    )


def _drop(done: Response, request: Request, name: str) -> None:
    done.delete_cookie(name, path="/", secure=request.url.scheme == "https", httponly=True)


async def _end(frame: PageFrame, request: Request) -> None:
    name = guard.cookie_of(request.scope)
    if name and frame.access.sessions is not None:
        await frame.access.sessions.end(name)
