"""Users and API tokens through the REST API.

GET    /me                 the user of the request, and what it may do
GET    /users              users of the directory, without their hashes
POST   /users              {"name", "password", "may": [..], "apps"?}: makes or changes one
DELETE /users/{user}       with its tokens
GET    /tokens             one's own; those of all with the permission ``admin``
POST   /tokens             {"name", "days", "may"?, "apps"?}: the answer has it, once
DELETE /tokens/{token}     one's own; any with the permission ``admin``
GET    /audit              ?limit=100&user=U: the last entries, oldest first
GET    /.well-known/oauth-protected-resource    the identity provider (RFC 9728), for any client
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

from mesh.api.paths import route
from mesh.api.responses import Json, json_body, number
from mesh.api.users import hash_of
from mesh.errors import MeshError
from mesh.jetstream.directory import DirectoryUser
from mesh.model.access import ALL, ANYONE, Grant, Permission, check_pattern, current, permissions_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from mesh.api.auth import Access
    from mesh.jetstream.directory import Directory
    from mesh.model.access import Identity

BODY_BYTES_MAX: Final = 10_000
DAYS_MAX: Final = 366
TEXT_MAX: Final = 200
AUDIT_MAX: Final = 1000
_DAY_MS: Final = 86_400_000


class AccountRoutes:
    """Routes of users and tokens, one method each."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def routes(self) -> list[Route]:
        """For the application."""
        return [
            route("/me", self.me, "GET"),
            route("/users", self.users, "GET"),
            route("/users", self.put_user, "POST"),
            route("/users/{user}", self.delete_user, "DELETE"),
            route("/tokens", self.tokens, "GET"),
            route("/tokens", self.make_token, "POST"),
            route("/tokens/{token}", self.delete_token, "DELETE"),
            route("/audit", self.audit, "GET"),
            route("/.well-known/oauth-protected-resource", self.provider, "GET"),
        ]

    async def me(self, request: Request) -> Response:
        """The user of the request."""
        identity = _identity()
        grants = [_grant(one) for one in identity.grants]
        return Json({"user": identity.user, "how": identity.how, "grants": grants})

    async def users(self, request: Request) -> Response:
        """Users of the directory, by name."""
        found = sorted(self._directory.users.values(), key=lambda one: one.name)
        return Json([_user(one) for one in found])

    async def put_user(self, request: Request) -> Response:
        """Make a user, or give it another password or other grants."""
        values = await _object(request)
        name, password = _text(values, "name"), _text(values, "password")
        grants = (_wanted(values),)
        hashed = await anyio.to_thread.run_sync(
            hash_of, name, password, limiter=self._access.limiter
        )
        is_new = name not in self._directory.users
        now_ms = self._access.clock.wall_ms()
        made = DirectoryUser(name, hashed, grants, _identity().user, now_ms)
        await self._directory.put_user(made)
        return Json(_user(made), HTTPStatus.CREATED if is_new else HTTPStatus.OK)

    async def delete_user(self, request: Request) -> Response:
        """Remove a user."""
        name = request.path_params["user"]
        if name not in self._directory.users:
            raise MeshError("MESH-A404", f'user "{name}" is not in the directory')
        await self._directory.delete_user(name)
        return Json({"user": name, "message": f'user "{name}" is removed'})

    async def tokens(self, request: Request) -> Response:
        """Tokens, without what makes them valid."""
        identity = _identity()
        found = [
            token
            for token in self._directory.tokens.values()
            if token.user == identity.user or identity.may(Permission.ADMIN, None)
        ]
        return Json([_token(one) for one in sorted(found, key=lambda one: (one.user, one.id))])

    async def make_token(self, request: Request) -> Response:
        """Make a token of one's own, with no more than one's own rights."""
        identity = _identity()
        if identity.how != "password":
            raise MeshError("MESH-A403", "a token is made with a password, not with a token")
        values = await _object(request)
        days = values.get("days", 30)
        if isinstance(days, bool) or not isinstance(days, int) or not 0 < days <= DAYS_MAX:
            raise MeshError("MESH-A400", f"days is a whole number from 1 to {DAYS_MAX}")
        now_ms = self._access.clock.wall_ms()
        name, expires_ms = _text(values, "name"), now_ms + days * _DAY_MS
        limit = _wanted({"may": sorted(ALL), **values})
        made, token = await self._directory.make_token(
            identity.user, name, limit, expires_ms, now_ms
        )
        return Json({**_token(token), "token": made}, HTTPStatus.CREATED)

    async def delete_token(self, request: Request) -> Response:
        """Revoke a token."""
        identity, id_ = _identity(), request.path_params["token"]
        found = [one for one in self._directory.tokens.values() if one.id == id_]
        is_own = bool(found) and found[0].user == identity.user
        if not found or not (is_own or identity.may(Permission.ADMIN, None)):
            raise MeshError("MESH-A404", f'token "{id_}" does not exist')
        await self._directory.delete_token(id_)
        return Json({"token": id_, "message": "the token is revoked"})

    async def audit(self, request: Request) -> Response:
        """The last entries of the audit."""
        limit = int(number(request, "limit", 100, AUDIT_MAX))
        if self._access.entries is None:
            raise MeshError("MESH-A422", "this manager keeps no audit")
        user = request.query_params.get("user")
        found = await self._access.entries(limit)
        return Json([one for one in found if not user or one["user"] == user])

    async def provider(self, request: Request) -> Response:
        """The identity provider whose tokens are accepted, and the client of `mesh login`."""
        settings = self._access.oidc
        if settings is None:
            raise MeshError("MESH-A404", "this manager has no identity provider")
        return Json(
            {
                "resource": str(request.base_url).rstrip("/"),
                "authorization_servers": [settings.issuer],
                "bearer_methods_supported": ["header"],
                "scopes_supported": settings.scopes.split(),
                "mesh_audience": settings.audience,
                "mesh_client_id": settings.command_client_id or settings.client_id,
            }
        )

    @property
    def _directory(self) -> Directory:
        users = self._access.users
        if users is None or users.directory is None:
            raise MeshError(
                "MESH-A422", "the API has no directory of users", detail="Access is anonymous."
            )
        return users.directory


def _identity() -> Identity:
    return current.get() or ANYONE


async def _object(request: Request) -> dict[str, Any]:
    values = await json_body(request, BODY_BYTES_MAX)
    if not isinstance(values, dict):
        raise MeshError("MESH-A400", "the body is no JSON object")
    return values


def _text(values: dict[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_MAX or not value.isprintable():
        raise MeshError("MESH-A400", f'"{name}" is a text of 1 to {TEXT_MAX} characters')
    return value


def _wanted(values: dict[str, Any]) -> Grant:
    """The grant of a body; MESH-A400 for another form, MESH-A422 for an unknown permission."""
    may, apps = values.get("may"), values.get("apps", "*")
    if not isinstance(may, list) or not all(isinstance(one, str) for one in may) or not may:
        raise MeshError("MESH-A400", '"may" is a list of roles and permissions')
    if not isinstance(apps, str):
        raise MeshError("MESH-A400", '"apps" is a pattern like "Shop*"')
    try:
        return Grant(permissions_of(may), check_pattern(apps))
    except MeshError as error:
        raise MeshError("MESH-A422", error.message, detail=error.detail) from error


def _grant(one: Grant) -> dict[str, Any]:
    return {"may": sorted(one.may), "apps": one.apps}


def _user(one: DirectoryUser) -> dict[str, Any]:
    grants = [_grant(grant) for grant in one.grants]
    return {"name": one.name, "grants": grants, "by": one.by, "at_ms": one.at_ms}


def _token(one: Any) -> dict[str, Any]:
    return {
        "id": one.id,
        "user": one.user,
        "name": one.name,
        "grant": _grant(one.grant),
        "expires_ms": one.expires_ms,
    }
