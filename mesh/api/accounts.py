"""Handlers of users, API tokens, sessions and the audit.

Handlers of secrets: names are listed, values are never read.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from mesh.api.account_service import AccountService
from mesh.api.responses import Json, json_body
from mesh.api.routing import serves
from mesh.errors import MeshError
from mesh.http.request_body import read_body
from mesh.jetstream.audit import filter_of
from mesh.jetstream.secret_store import VALUE_BYTES_MAX
from mesh.model import secrets
from mesh.model.access import ANYONE, current, grant_values, is_pattern
from mesh.model.operation import parameter_error
from mesh.model.operations import AccountOperations

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.api.auth import Access
    from mesh.jetstream.secret_store import SecretStore
    from mesh.model.access import Identity
    from mesh.model.values import JsonObject


BODY_BYTES_MAX: Final = 10_000


class SecretRoutes:
    """Handlers of secrets."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @serves(AccountOperations.secrets)
    async def names(self, request: Request) -> object:
        by_name = await self._store.apps()
        return [{"name": name, "apps": apps or "*"} for name, apps in by_name.items()]

    @serves(AccountOperations.put_secret)
    async def put(self, request: Request, secret: str, apps: str) -> object:
        name = _checked(secret)
        patterns = [one.strip() for one in apps.split(",") if one.strip()]
        if not all(map(is_pattern, patterns)):
            raise parameter_error("apps", apps, "patterns of names of apps")
        try:
            value = (await read_body(request, VALUE_BYTES_MAX)).decode()
        except UnicodeDecodeError as error:
            raise MeshError("MESH-A400", "the value of a secret is text in UTF-8") from error
        if not value:
            raise MeshError("MESH-A400", "the value of a secret is not empty")
        await self._store.put(name, value, ",".join(patterns))
        return {"name": name}

    @serves(AccountOperations.delete_secret)
    async def delete(self, request: Request, secret: str) -> object:
        name = _checked(secret)
        if not await self._store.delete(name):
            raise MeshError("MESH-A404", f'secret "{name}" does not exist')
        return {"name": name}

    @property
    def _store(self) -> SecretStore:
        if self._access.secrets is None:
            raise MeshError("MESH-A422", "this manager keeps no secrets")
        return self._access.secrets


def _checked(name: str) -> str:
    if not secrets.is_name(name):
        raise MeshError(
            "MESH-A400",
            "a secret has another form of name",
            hint="Small letters, digits, '.', '_' and '-', 64 at most.",
        )
    return name


class AccountRoutes:
    """Handlers of users, tokens and the audit."""

    def __init__(self, access: Access) -> None:
        self._accounts = AccountService(access)
        self._oidc = access.oidc

    @serves(AccountOperations.me)
    async def me(self, request: Request) -> object:
        identity = _identity()
        grants = [grant_values(one) for one in identity.grants]
        return {"user": identity.user, "how": identity.how, "grants": grants}

    @serves(AccountOperations.users)
    async def users(self, request: Request) -> object:
        return self._accounts.users()

    @serves(AccountOperations.put_user)
    async def put_user(self, request: Request) -> object:
        user, is_new = await self._accounts.put_user(_identity(), await _object(request))
        return Json(user, HTTPStatus.CREATED if is_new else HTTPStatus.OK)

    @serves(AccountOperations.delete_user)
    async def delete_user(self, request: Request, user: str) -> object:
        await self._accounts.delete_user(user)
        return {"user": user, "message": f'user "{user}" is removed'}

    @serves(AccountOperations.end_sessions)
    async def end_sessions(self, request: Request, user: str) -> object:
        return {"user": user, "sessions": await self._accounts.end_sessions(user)}

    @serves(AccountOperations.tokens)
    async def tokens(self, request: Request) -> object:
        return self._accounts.tokens(_identity())

    @serves(AccountOperations.make_token)
    async def make_token(self, request: Request) -> object:
        identity = _identity()
        token = await self._accounts.make_token(identity, await _object(request))
        return Json(token, HTTPStatus.CREATED)

    @serves(AccountOperations.delete_token)
    async def delete_token(self, request: Request, token: str) -> object:
        await self._accounts.delete_token(_identity(), token)
        return {"token": token, "message": "the token is revoked"}

    @serves(AccountOperations.audit)
    async def audit(self, request: Request, limit: int, **criteria: str) -> object:
        return await self._accounts.audit(filter_of(criteria), limit)

    @serves(AccountOperations.provider)
    async def provider(self, request: Request) -> object:
        settings = self._oidc
        if settings is None:
            raise MeshError("MESH-A404", "this manager has no identity provider")
        return {
            "resource": str(request.base_url).rstrip("/"),
            "authorization_servers": [settings.issuer],
            "bearer_methods_supported": ["header"],
            "scopes_supported": settings.scopes.split(),
            "mesh_audience": settings.audience,
            "mesh_client_id": settings.command_client_id or settings.client_id,
        }


def _identity() -> Identity:
    return current.get() or ANYONE


async def _object(request: Request) -> JsonObject:
    values = await json_body(request, BODY_BYTES_MAX)
    if not isinstance(values, dict):
        raise MeshError("MESH-A400", "the body is no JSON object")
    return values
