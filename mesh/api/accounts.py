"""Users, API tokens, sessions and the audit through the REST API.

GET    /me                        the user of the request, and what it may do
GET    /users                     users of the directory, without their hashes
POST   /users                     {"name", "password"?, "may"?: [..], "apps"?, "active"?}: makes a
                                  user, or changes the given values of one
DELETE /users/{user}              with its tokens and sessions
DELETE /users/{user}/sessions     signs the user out everywhere
GET    /tokens                    one's own; those of all with the permission ``admin``
POST   /tokens                    {"name", "days", "may"?, "apps"?}: the answer has it, once
DELETE /tokens/{token}            one's own; any with the permission ``admin``
GET    /audit                     ?limit=100&user=U&app=A&method=M&result=R&q=TEXT: the last entries
                                  that fit, oldest first
GET    /.well-known/oauth-protected-resource
                                  the identity provider (RFC 9728), for any client
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from mesh.api.account_service import AUDIT_MAX, Accounts
from mesh.api.paths import route
from mesh.api.responses import Json, json_body, number
from mesh.errors import MeshError
from mesh.jetstream.audit import filter_of
from mesh.model.access import ANYONE, current, grant_values

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from mesh.api.auth import Access
    from mesh.model.access import Identity

BODY_BYTES_MAX: Final = 10_000


class AccountRoutes:
    """Routes of users and tokens, one method each."""

    def __init__(self, access: Access) -> None:
        self._accounts = Accounts(access)
        self._oidc = access.oidc

    def routes(self) -> list[Route]:
        """For the application."""
        return [
            route("/me", self.me, "GET"),
            route("/users", self.users, "GET"),
            route("/users", self.put_user, "POST"),
            route("/users/{user}", self.delete_user, "DELETE"),
            route("/users/{user}/sessions", self.end_sessions, "DELETE"),
            route("/tokens", self.tokens, "GET"),
            route("/tokens", self.make_token, "POST"),
            route("/tokens/{token}", self.delete_token, "DELETE"),
            route("/audit", self.audit, "GET"),
            route("/.well-known/oauth-protected-resource", self.provider, "GET"),
        ]

    async def me(self, request: Request) -> Response:
        """The user of the request."""
        identity = _identity()
        grants = [grant_values(one) for one in identity.grants]
        return Json({"user": identity.user, "how": identity.how, "grants": grants})

    async def users(self, request: Request) -> Response:
        """Users of the directory, by name."""
        return Json(self._accounts.users())

    async def put_user(self, request: Request) -> Response:
        """Make a user, or give it another password or other grants, or disable it."""
        made, is_new = await self._accounts.put_user(_identity(), await _object(request))
        return Json(made, HTTPStatus.CREATED if is_new else HTTPStatus.OK)

    async def delete_user(self, request: Request) -> Response:
        """Remove a user."""
        name = request.path_params["user"]
        await self._accounts.delete_user(name)
        return Json({"user": name, "message": f'user "{name}" is removed'})

    async def end_sessions(self, request: Request) -> Response:
        """Sign a user out everywhere."""
        name = request.path_params["user"]
        return Json({"user": name, "sessions": await self._accounts.end_sessions(name)})

    async def tokens(self, request: Request) -> Response:
        """Tokens, without what makes them valid."""
        return Json(self._accounts.tokens(_identity()))

    async def make_token(self, request: Request) -> Response:
        """Make a token of one's own, with no more than one's own rights."""
        identity = _identity()
        made = await self._accounts.make_token(identity, await _object(request))
        return Json(made, HTTPStatus.CREATED)

    async def delete_token(self, request: Request) -> Response:
        """Revoke a token."""
        id_ = request.path_params["token"]
        await self._accounts.delete_token(_identity(), id_)
        return Json({"token": id_, "message": "the token is revoked"})

    async def audit(self, request: Request) -> Response:
        """The last entries of the audit."""
        limit = int(number(request, "limit", 100, AUDIT_MAX))
        return Json(await self._accounts.audit(filter_of(request.query_params), limit))

    async def provider(self, request: Request) -> Response:
        """The identity provider whose tokens are accepted, and the client of `mesh login`."""
        settings = self._oidc
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


def _identity() -> Identity:
    return current.get() or ANYONE


async def _object(request: Request) -> dict[str, Any]:
    values = await json_body(request, BODY_BYTES_MAX)
    if not isinstance(values, dict):
        raise MeshError("MESH-A400", "the body is no JSON object")
    return values
