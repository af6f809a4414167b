"""Users, tokens, sessions and the audit: the rules that the REST API and the pages share.

Handlers of users, API tokens, sessions and the audit.

Handlers of secrets: names are listed, values are never read.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from mesh.api.routing import Json, json_body, serves
from mesh.api.users import check_password, hash_of
from mesh.errors import MeshError
from mesh.http.request_body import read_body
from mesh.jetstream.audit import filter_of
from mesh.jetstream.directory import DirectoryUser
from mesh.jetstream.secret_store import VALUE_BYTES_MAX
from mesh.model import secrets
from mesh.model.access import (
    ALL,
    ANYONE,
    Grant,
    Permission,
    check_pattern,
    current,
    grant_values,
    is_pattern,
    permissions_of,
)
from mesh.model.operation import parameter_error
from mesh.model.operations import AccountOperations

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.api.auth import Access
    from mesh.jetstream.audit import AuditFilter
    from mesh.jetstream.directory import ApiToken, Directory
    from mesh.jetstream.secret_store import SecretStore
    from mesh.jetstream.sessions import UserSession
    from mesh.model.access import Identity
    from mesh.model.values import JsonMapping, JsonObject

DAYS_MAX: Final = 366
TEXT_MAX: Final = 200
AUDIT_MAX: Final = 1000
_DAY_MS: Final = 86_400_000


class AccountService:
    """Calls on accounts, for the user of a request."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @property
    def directory(self) -> Directory:
        """The directory; MESH-A422 without one."""
        users = self._access.users
        if users is None or users.directory is None:
            raise MeshError(
                "MESH-A422", "the API has no directory of users", detail="Access is anonymous."
            )
        return users.directory

    def users(self) -> list[JsonObject]:
        """Users of the directory, by name."""
        entries = sorted(self.directory.users.values(), key=lambda one: one.name)
        return [_user(one) for one in entries]

    def file_users(self) -> list[JsonObject]:
        """Users of this manager's users file, by name; they are changed there."""
        users = self._access.users
        by_name = users.of_file() if users is not None else {}
        return [
            {"name": name, "grants": [grant_values(one) for one in user.all_grants]}
            for name, user in sorted(by_name.items())
        ]

    async def put_user(self, by: Identity, values: JsonMapping) -> tuple[JsonObject, bool]:
        """Make a user, or change the given values of one; True for a new one.

        Another password and ``"active": false`` end the user's sessions.

        Raises:
            MeshError: MESH-A400 and MESH-A422 for values that can't be used, MESH-A409 if no user
                could manage users any more.
        """
        name = text_of(values, "name")
        existing = self.directory.users.get(name)
        active = values.get("active", True if existing is None else existing.active)
        if not isinstance(active, bool):
            raise MeshError("MESH-A400", '"active" is true or false')
        grants = (
            existing.grants
            if existing is not None and "may" not in values
            else (_grant_of(values),)
        )
        hashed = existing.hash if existing is not None and "password" not in values else ""
        if not hashed:
            password = text_of(values, "password")
            check_password(name, password)
            hashed = await anyio.to_thread.run_sync(
                hash_of, name, password, limiter=self._access.limiter
            )
        now_ms = self._access.clock.wall_ms()
        user = DirectoryUser(name, hashed, grants, by.user, now_ms, active)
        if existing is not None:
            # What another system has noted of the user stays as it is.
            user = replace(existing, hash=hashed, grants=grants, by=by.user, at_ms=now_ms,
                           active=active)  # fmt: skip
            self._check_administrator(name, user)
        await self.directory.put_user(user)
        if existing is not None and (hashed != existing.hash or not active):
            await self.end_sessions(name)
        return _user(user), existing is None

    async def delete_user(self, name: str) -> None:
        """Remove a user with its tokens and sessions; MESH-A404, MESH-A409 as above."""
        if name not in self.directory.users:
            raise MeshError("MESH-A404", f'user "{name}" is not in the directory')
        self._check_administrator(name, None)
        await self.directory.delete_user(name)
        await self.end_sessions(name)

    def _check_administrator(self, name: str, new_user: DirectoryUser | None) -> None:
        users = {**self.directory.users}
        before = [one for one in users.values() if _administers(one)]
        if new_user is None:
            del users[name]
        else:
            users[name] = new_user
        in_file = any(
            Permission.ADMIN in grant.may
            for user in (self._access.users.of_file() if self._access.users else {}).values()
            for grant in user.all_grants
        )
        # The last user of all may go: the next start of a manager offers a token for the first.
        if before and users and not in_file and not any(map(_administers, users.values())):
            raise MeshError(
                "MESH-A409",
                f'user "{name}" is the last one who may manage users',
                hint="Give another user the role admin first.",
            )

    async def sessions(self) -> list[UserSession]:
        """Sessions at the pages, last used first; none where there are no pages."""
        store = self._access.sessions
        return await store.listed() if store is not None else []

    async def end_sessions(self, user: str) -> int:
        """Sign a user out everywhere; the number of sessions."""
        store = self._access.sessions
        return await store.end_all(user) if store is not None else 0

    async def end_provisioned(self, user: str) -> None:
        """Sign a user of the identity provider out everywhere, and revoke its tokens."""
        await self.directory.delete_tokens(user)
        store = self._access.sessions
        if store is not None:
            listed = await store.listed()
            await store.end_ids([s.id for s in listed if s.user.casefold() == user.casefold()])

    def tokens(self, identity: Identity) -> list[JsonObject]:
        """One's own tokens, with ``admin`` those of all, without what makes them valid."""
        entries = [
            token
            for token in self.directory.tokens.values()
            if token.user == identity.user or identity.may(Permission.ADMIN, None)
        ]
        return [_token(one) for one in sorted(entries, key=lambda one: (one.user, one.id))]

    async def make_token(self, identity: Identity, values: JsonMapping) -> JsonObject:
        """A token of one's own, with no more than one's own rights; ``token`` is shown once."""
        users = self._access.users
        # A provisioned user is known when a program asks, so its token ends with the user.
        is_provisioned = users is not None and users.is_provisioned(identity.user)
        if identity.how != "password" and not (identity.how == "oidc" and is_provisioned):
            raise MeshError("MESH-A403", "a token is made with a password, not with a token")
        days = values.get("days", 30)
        if isinstance(days, bool) or not isinstance(days, int) or not 0 < days <= DAYS_MAX:
            raise MeshError("MESH-A400", f"days is a whole number from 1 to {DAYS_MAX}")
        now_ms = self._access.clock.wall_ms()
        limit = _grant_of({"may": sorted(ALL), **values})
        secret, token = await self.directory.make_token(
            identity.user, text_of(values, "name"), limit, now_ms + days * _DAY_MS, now_ms
        )
        return {**_token(token), "token": secret}

    async def delete_token(self, identity: Identity, id_: str) -> None:
        """Revoke a token; MESH-A404 for one that is not there or is another's."""
        matches = [one for one in self.directory.tokens.values() if one.id == id_]
        is_owner = bool(matches) and matches[0].user == identity.user
        if not matches or not (is_owner or identity.may(Permission.ADMIN, None)):
            raise MeshError("MESH-A404", f'token "{id_}" does not exist')
        await self.directory.delete_token(id_)

    async def audit(self, criteria: AuditFilter, limit: int) -> list[JsonObject]:
        """The last entries that fit, oldest first; MESH-A422 without an audit."""
        if self._access.entries is None:
            raise MeshError("MESH-A422", "this manager keeps no audit")
        return await self._access.entries(limit, criteria)


def text_of(values: JsonMapping, name: str) -> str:
    """A text of a body; MESH-A400 for another value."""
    value = values.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_MAX or not value.isprintable():
        raise MeshError("MESH-A400", f'"{name}" is a text of 1 to {TEXT_MAX} characters')
    return value


def _administers(user: DirectoryUser) -> bool:
    return user.active and any(Permission.ADMIN in g.may and g.covers(None) for g in user.grants)


def _grant_of(values: JsonMapping) -> Grant:
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


def _user(one: DirectoryUser) -> JsonObject:
    return {
        "name": one.name,
        "grants": [grant_values(grant) for grant in one.grants],
        "active": one.active,
        "by": one.by,
        "at_ms": one.at_ms,
    }


def _token(one: ApiToken) -> JsonObject:
    return {
        "id": one.id,
        "user": one.user,
        "name": one.name,
        "grant": grant_values(one.grant),
        "expires_ms": one.expires_ms,
    }


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
