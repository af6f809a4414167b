"""One's own account: rights, tokens and sessions; a new token is shown once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from mesh.dashboard.guard import SIGN_IN, form_of, identity_of, session_of
from mesh.dashboard.pages.users import form_values, grant_of, grant_words
from mesh.dashboard.responses import PageView
from mesh.errors import MeshError
from mesh.model.access import grant_values

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.responses import PageFrame
    from mesh.model.values import JsonObject


async def show(frame: PageFrame, request: Request) -> PageView:
    """The account of the user."""
    return PageView("account.html", await _values(frame, request))


async def _values(frame: PageFrame, request: Request) -> JsonObject:
    if frame.access.is_open:
        raise MeshError("MESH-A404", "there are no users", detail="Access is anonymous.")
    identity, accounts = identity_of(request), frame.access.accounts
    grants = [grant_values(one) for one in identity.grants]
    tokens = [one for one in accounts.tokens(identity) if one["user"] == identity.user]
    return {
        "identity": identity,
        "words": [grant_words(grant) for grant in grants],
        "grants": grants,
        "sessions": [one for one in await accounts.sessions() if one.user == identity.user],
        "own_session": session_of(request).id,
        "tokens": [{**one, "words": grant_words(one["grant"])} for one in tokens],
        "made": None,
        "error": None,
        "done": request.query_params.get("done", "")[:200],
        # Programs get the role with the fewest rights, unless another is chosen.
        **form_values([]),
        "apps": grants[0]["apps"] if grants else "*",
    }


async def act(frame: PageFrame, request: Request) -> Response:
    """Make or revoke a token, or sign out everywhere."""
    form = await form_of(request)
    identity, accounts = identity_of(request), frame.access.accounts
    token = None
    try:
        match form.get("do", [""])[0]:
            case "token":
                days = form.get("days", [""])[0]
                is_number = days.isascii() and days.isdigit() and len(days) < 6
                values = {
                    "name": form.get("name", [""])[0].strip(),
                    "days": int(days) if is_number else 0,
                    **grant_of(form),
                }
                token = await accounts.make_token(identity, values)
            case "revoke":
                await accounts.delete_token(identity, form.get("id", [""])[0])
                return frame.done("/account?done=revoked")
            case "sign-out":
                await accounts.end_sessions(identity.user)
                return RedirectResponse(SIGN_IN, 303)
            case _:
                raise MeshError("MESH-A400", "the form asks for nothing that is known")
    except MeshError as error:
        values = {**await _values(frame, request), "error": error}
        return frame.shown(request, PageView("account.html", values, 400))
    # The answer itself has the token, so that it is in no URL and in no history.
    values = {**await _values(frame, request), "made": token}
    return frame.shown(request, PageView("account.html", values))
