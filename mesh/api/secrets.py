"""Handlers of secrets: names are listed, values are never read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.api.routing import serves
from mesh.errors import MeshError
from mesh.http.request_body import read_body
from mesh.jetstream.secret_store import VALUE_BYTES_MAX
from mesh.model import secrets
from mesh.model.access import is_pattern
from mesh.model.operation import parameter_error
from mesh.model.operations import AccountOperations

if TYPE_CHECKING:
    from starlette.requests import Request

    from mesh.api.auth import Access
    from mesh.jetstream.secret_store import SecretStore


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
