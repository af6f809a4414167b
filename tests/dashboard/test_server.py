"""Every page and form with every role: who reaches it, for which app, and what is audited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import httpx
from starlette.routing import Route

from mesh.clock import SystemClock
from mesh.dashboard.guard import COOKIE
from mesh.dashboard.server import make_pages
from mesh.jetstream.sessions import UserSession
from mesh.model.access import ROLES, Grant, Identity, Permission

if TYPE_CHECKING:
    from collections.abc import Mapping

VIEW, MANAGE = Permission.APPS_VIEW, Permission.APPS_MANAGE
READ, WRITE = Permission.DATA_READ, Permission.DATA_WRITE
MONITOR, NODES, ADMIN = Permission.MONITOR, Permission.NODES_MANAGE, Permission.ADMIN
#: Permission of each page and form; None for any user, about itself.
PAGES: Final[dict[str, Permission | None]] = {
    "GET /": VIEW,
    "GET /apps/{app}": VIEW,
    "POST /apps/{app}": MANAGE,
    "GET /apps/{app}/i/{instance}": VIEW,
    "GET /apps/{app}/s/{stream}": VIEW,
    "POST /apps/{app}/s/{stream}": WRITE,
    "GET /apps/{app}/why/{stream}/{sequence}": READ,
    "GET /apps/{app}/compare": READ,
    "GET /apps/{app}/fork": MANAGE,
    "POST /apps/{app}/fork": MANAGE,
    "GET /apps/{app}/edit": MANAGE,
    "POST /apps/{app}/edit": MANAGE,
    "GET /nats": MONITOR,
    "GET /nats/{js_stream}": MONITOR,
    "GET /nodes": MONITOR,
    "GET /nodes/{node}": MONITOR,
    "POST /nodes/{node}": NODES,
    "GET /search": VIEW,
    "GET /story": VIEW,
    "GET /errors": READ,
    "POST /errors": WRITE,
    "GET /query": READ,
    "POST /query": READ,
    "GET /deploy": MANAGE,
    "POST /deploy": MANAGE,
    "GET /start": MANAGE,
    "POST /start": MANAGE,
    "GET /start/{app}": MANAGE,
    "POST /start/{app}": MANAGE,
    "GET /deploy/backfill": MANAGE,
    "POST /deploy/backfill": MANAGE,
    "GET /deploy/migrate": MANAGE,
    "POST /deploy/migrate": MANAGE,
    "POST /deploy/language": MANAGE,
    "GET /users": ADMIN,
    "GET /users/+new": ADMIN,
    "POST /users/+new": ADMIN,
    "GET /users/{user}": ADMIN,
    "POST /users/{user}": ADMIN,
    "GET /audit": ADMIN,
    "GET /account": None,
    "POST /account": None,
    "GET /docs": None,
}
#: Pages that no user is needed for: the sign-in itself.
OPEN: Final = {
    "GET /login", "POST /login", "GET /login/oidc", "GET /login/oidc/callback", "POST /logout",
}  # fmt: skip
#: Pages about the whole cluster: a grant for some apps does not reach them.
CLUSTER: Final = (MONITOR, NODES, ADMIN)
PARAMETERS: Final = {
    "app": "Shop", "instance": "i", "stream": "S", "sequence": "1", "node": "w1", "user": "ada",
    "js_stream": "mesh-Shop-S",
}  # fmt: skip
USERS: Final[dict[str, Grant]] = {
    **{role: Grant(may) for role, may in ROLES.items()},
    **{one.replace(".", "-"): Grant(frozenset({one})) for one in Permission},
    "of-shop": Grant(ROLES["admin"], "Shop*"),
    "of-bank": Grant(ROLES["admin"], "Bank*"),
}


class FakeAccess:
    """Users by the name in their cookie; every request is noted."""

    is_open, provider = False, None
    sessions: Any = True

    def __init__(self) -> None:
        self.noted: list[tuple[str, str, str, int]] = []

    async def session(self, name: str, *, is_used: bool = True) -> UserSession | None:
        return UserSession(name, f"token of {name}") if name in USERS else None

    def identity(self, session: UserSession) -> Identity:
        return Identity(session.user, (USERS[session.user],))

    def reason_against(self, headers: Mapping[str, str]) -> None:
        """No request is refused by its headers."""

    def admits(self, name: str) -> bool:
        return True

    def note(
        self, identity: Identity | None, source: str, method: str, path: str, status: int, *_: Any
    ) -> None:
        self.noted.append((identity.user if identity else "", method, path, status))


def _template(path: str) -> str:
    return path.replace(":page_app", "")


def _pages(access: Any) -> Any:
    # Nothing behind the guard answers: a request that reaches it fails there, and not with 403.
    return make_pages(None, access, SystemClock())  # type: ignore[arg-type]


def test_the_table_has_every_page() -> None:
    found = {
        f"{method} {_template(one.path)}"
        for one in _pages(FakeAccess()).routes
        if isinstance(one, Route)
        for method in (one.methods or set()) - {"HEAD"}
    }
    assert found == {*PAGES, *OPEN}


async def test_every_page_with_every_role() -> None:
    access = FakeAccess()

    wrong = []
    transport = httpx.ASGITransport(_pages(access), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://mesh") as client:
        for page, permission in PAGES.items():
            method, _, path = page.partition(" ")
            for user, grant in USERS.items():
                answer = await client.request(
                    method,
                    path.format(**PARAMETERS),
                    headers={"Cookie": f"{COOKIE}={user}"},
                    data={"token": f"token of {user}"} if method == "POST" else None,
                )
                if (answer.status_code != 403) != _may(grant, permission, path):
                    wrong.append(f"{user} {page}: {answer.status_code}")
            nobody = await client.request(method, path.format(**PARAMETERS))
            if nobody.status_code != (303 if method == "GET" else 401):
                wrong.append(f"nobody {page}: {nobody.status_code}")
    assert wrong == []
    refused = [one for one in access.noted if one[3] == 403]
    assert ("viewer", "POST", "/deploy", 403) in refused
    # Keys of an editor change nothing, and aren't audited; a refusal is.
    assert {one[3] for one in access.noted if one[2] == "/deploy/language"} <= {401, 403}
    assert ("of-bank", "GET", "/apps/Shop", 403) in refused
    assert ("operator", "GET", "/errors", 403) in refused
    # Changes and readings of payloads are noted whatever comes of them.
    assert any(one[:3] == ("developer", "POST", "/deploy") for one in access.noted)
    assert any(one[:3] == ("viewer", "GET", "/errors") for one in access.noted)


def _may(grant: Grant, permission: Permission | None, path: str) -> bool:
    if permission is None:
        return True
    if permission not in grant.may:
        return False
    if "{app}" in path:
        return grant.covers(PARAMETERS["app"])
    return permission not in CLUSTER or grant.apps == "*"
