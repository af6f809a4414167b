"""Sign-in and sign-out of users of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from mesh.dashboard import guard
from mesh.dashboard.rendering import View
from mesh.errors import MeshError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.responses import Frame


async def enter(frame: Frame, request: Request) -> Response:
    """The form, and the session that it begins."""
    target = guard.local_path(request.query_params.get("next", "/"))
    if frame.door.is_open:
        return RedirectResponse(target, 303)
    if request.method != "POST":
        return frame.shown(request, View("login.html", {"error": None, "name": ""}))
    form = await guard.form_of(request, has_session=False)
    address = guard.source_of(request.scope)
    request.scope["mesh.claimed"] = form.get("user", [""])[0]
    try:
        user = await guard.sign_in(frame.door, form, address)
    except MeshError as error:
        # The name is a field's value again; what was typed as a password is not sent back.
        values = {"error": error, "name": form.get("user", [""])[0][:64]}
        return frame.shown(request, View("login.html", values, int(error.code[6:])))
    done = RedirectResponse(target, 303)
    await _end(frame, request)
    assert frame.door.sessions is not None
    done.set_cookie(
        guard.cookie_name(request.scope),
        await frame.door.sessions.begin(user, source=address),
        httponly=True,
        secure=request.url.scheme == "https",
        samesite="lax",
        path="/",
    )
    return done


async def leave(frame: Frame, request: Request) -> Response:
    """End the session."""
    await guard.form_of(request)
    await _end(frame, request)
    done = RedirectResponse(guard.SIGN_IN, 303)
    name = guard.cookie_name(request.scope)
    done.delete_cookie(name, path="/", secure=request.url.scheme == "https", httponly=True)
    return done


async def _end(frame: Frame, request: Request) -> None:
    name = guard.cookie_of(request.scope)
    if name and frame.door.sessions is not None:
        await frame.door.sessions.end(name)
