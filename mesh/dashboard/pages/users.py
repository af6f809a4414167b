"""Users: the list, one user with roles, sessions and tokens, and the form for a new one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from mesh.dashboard.guard import form_of, identity_of, session_of
from mesh.dashboard.responses import PageView
from mesh.errors import MeshError
from mesh.jetstream.audit import AuditFilter
from mesh.model.access import ALL, ROLES, permissions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from mesh.dashboard.responses import PageFrame
    from mesh.model.values import JsonMapping, JsonObject

#: Of each role, one line for the form.
ABOUT: Final = {
    "viewer": "sees apps, payloads, nodes and metrics; changes nothing",
    "developer": "a viewer who deploys, tests and corrects events: deploying is code execution",
    "operator": "sees apps without payloads, drains and cordons nodes",
    "admin": "may do everything, users and the audit among it",
}
#: Last requests of a user on its page.
REQUESTS: Final = 15
OTHER: Final = "other"


def role_of(may: Iterable[str]) -> str:
    """The role with exactly these permissions; empty if there is none."""
    permissions = permissions_of(may)
    return next((name for name, some in ROLES.items() if some == permissions), "")


def grant_words(grant: JsonMapping) -> str:
    """A grant in short: ``developer for Shop*``."""
    what = role_of(grant["may"]) or ", ".join(grant["may"])
    return what if grant["apps"] == "*" else f"{what} for {grant['apps']}"


def form_values(grants: list[JsonMapping]) -> JsonObject:
    """Values of the fields for roles and apps."""
    first = grants[0] if grants else {"may": sorted(ROLES["viewer"]), "apps": "*"}
    role = role_of(first["may"])
    return {
        "role": role or OTHER,
        "may": "" if role else " ".join(first["may"]),
        "apps": first["apps"],
        "roles": ABOUT,
        "permissions": sorted(ALL),
    }


def grant_of(form: Mapping[str, list[str]]) -> JsonObject:
    """Roles and apps of a form, as the body of REST has them."""
    role, apps = form.get("role", [""])[0], form.get("apps", ["*"])[0].strip() or "*"
    words = form.get("may", [""])[0].replace(",", " ").split() if role == OTHER else [role]
    if not words or words == [""]:
        raise MeshError("MESH-A400", "no role and no permission is chosen")
    return {"may": words, "apps": apps}


async def show(frame: PageFrame, request: Request) -> PageView:
    """All users."""
    if frame.access.is_open:
        return PageView("users.html", {"rows": (), "is_open": True, "text": "", "done": ""})
    accounts = frame.access.accounts
    sessions = Counter(one.user for one in await accounts.sessions())
    tokens = Counter(one["user"] for one in accounts.tokens(identity_of(request)))
    text = request.query_params.get("q", "")[:64]
    of_file = accounts.file_users()
    hidden = {one["name"] for one in of_file}
    rows = [
        {
            **one,
            "words": [grant_words(grant) for grant in one["grants"]],
            "sessions": sessions[one["name"]],
            "tokens": tokens[one["name"]],
            "where": where,
        }
        for where, some in (("directory", accounts.users()), ("users file", of_file))
        for one in some
        if where != "directory" or one["name"] not in hidden
    ]
    chosen = [row for row in rows if text.lower() in row["name"].lower()]
    done = request.query_params.get("done", "")[:200]
    values = {"rows": chosen, "count": len(rows), "is_open": False, "text": text, "done": done}
    return PageView("users.html", values)


async def new(_: PageFrame, request: Request) -> PageView:
    """The form for a new user."""
    return PageView("user_new.html", {"error": None, "name": "", **form_values([])})


async def add(frame: PageFrame, request: Request) -> Response:
    """Make a user."""
    form = await form_of(request)
    name = form.get("name", [""])[0].strip()
    try:
        if any(one["name"] == name for one in frame.access.accounts.users()):
            raise MeshError(
                "MESH-A409", f'user "{name}" exists', hint="Open its page to change it."
            )
        values = {"name": name, "password": form.get("password", [""])[0], **grant_of(form)}
        await frame.access.accounts.put_user(identity_of(request), values)
    except MeshError as error:
        fields = {**form_values([]), "role": form.get("role", [""])[0]}
        fields |= {key: form.get(key, [""])[0][:200] for key in ("may", "apps")}
        # What was typed as a password is not sent back.
        view = PageView("user_new.html", {"error": error, "name": name[:64], **fields}, 400)
        return frame.shown(request, view)
    return frame.done(f"/users/{quote(name)}?done=added")


async def one(frame: PageFrame, request: Request) -> PageView:
    """One user."""
    return PageView("user.html", await _values(frame, request))


async def _values(frame: PageFrame, request: Request) -> JsonObject:
    name, accounts = request.path_params["user"], frame.access.accounts
    users = {user["name"]: user for user in accounts.users()}
    of_file = {user["name"]: user for user in accounts.file_users()}
    user = of_file.get(name) or users.get(name)
    if user is None:
        raise MeshError("MESH-A404", f'user "{name}" is not in the directory')
    tokens = [one for one in accounts.tokens(identity_of(request)) if one["user"] == name]
    return {
        "user_of_page": {"active": True, "by": "", "at_ms": 0, **user},
        "is_of_file": name in of_file,
        "words": [grant_words(grant) for grant in user["grants"]],
        "sessions": [one for one in await accounts.sessions() if one.user == name],
        "own_session": session_of(request).id,
        "tokens": [{**one, "words": grant_words(one["grant"])} for one in tokens],
        "requests": (await accounts.audit(AuditFilter(user=name), REQUESTS))[::-1],
        "done": request.query_params.get("done", "")[:200],
        "error": None,
        **form_values(user["grants"]),
    }


async def act(frame: PageFrame, request: Request) -> Response:
    """Change, disable, sign out or remove a user."""
    form = await form_of(request)
    name, accounts = request.path_params["user"], frame.access.accounts
    by, back = identity_of(request), f"/users/{quote(name)}"
    try:
        match form.get("do", [""])[0]:
            case "roles":
                await accounts.put_user(by, {"name": name, **grant_of(form)})
                return frame.done(f"{back}?done=roles")
            case "password":
                password = form.get("password", [""])[0]
                await accounts.put_user(by, {"name": name, "password": password})
                return frame.done(f"{back}?done=password")
            case "disable" | "enable" as what:
                await accounts.put_user(by, {"name": name, "active": what == "enable"})
                return frame.done(f"{back}?done={what}d")
            case "sign-out":
                count = await accounts.end_sessions(name)
                return frame.done(f"{back}?done=sessions&count={count}")
            case "revoke":
                await accounts.delete_token(by, form.get("id", [""])[0])
                return frame.done(f"{back}?done=revoked")
            case "remove":
                if form.get("name", [""])[0] != name:
                    raise MeshError(
                        "MESH-A400",
                        "the name does not match",
                        hint="Removing a user removes its tokens: type its name.",
                    )
                await accounts.delete_user(name)
                return frame.done(f"/users?done={quote(name)}")
            case _:
                raise MeshError("MESH-A400", "the form asks for nothing that is known")
    except MeshError as error:
        values = {**await _values(frame, request), "error": error}
        return frame.shown(request, PageView("user.html", values, 400))
