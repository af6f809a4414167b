"""Secrets through the REST API: names are listed, values are never read.

GET    /secrets             the names, and the apps that may use each
PUT    /secrets/{secret}    the body is the value, as text/plain; ?apps=Shop*,Till
DELETE /secrets/{secret}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.api.paths import route
from mesh.api.responses import Json, parameter
from mesh.errors import MeshError
from mesh.jetstream.secret_store import VALUE_BYTES_MAX
from mesh.model import secrets
from mesh.model.access import is_pattern
from mesh.request_body import read_body

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from mesh.api.auth import Access
    from mesh.jetstream.secret_store import SecretStore


class SecretRoutes:
    """Routes of secrets, one method each."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def routes(self) -> list[Route]:
        """For the application."""
        return [
            route("/secrets", self.names, "GET"),
            route("/secrets/{secret}", self.put, "PUT"),
            route("/secrets/{secret}", self.delete, "DELETE"),
        ]

    async def names(self, request: Request) -> Response:
        """The names of secrets, and the patterns of the apps that may use them."""
        found = await self._store.apps()
        return Json([{"name": name, "apps": apps or "*"} for name, apps in found.items()])

    async def put(self, request: Request) -> Response:
        """Store a value, for every app or for some."""
        name = _name(request)
        given = request.query_params.get("apps", "")
        apps = [one.strip() for one in given.split(",") if one.strip()]
        if not all(map(is_pattern, apps)):
            raise parameter("apps", given, "patterns of names of apps")
        try:
            value = (await read_body(request, VALUE_BYTES_MAX)).decode()
        except UnicodeDecodeError as error:
            raise MeshError("MESH-A400", "the value of a secret is text in UTF-8") from error
        if not value:
            raise MeshError("MESH-A400", "the value of a secret is not empty")
        await self._store.put(name, value, ",".join(apps))
        return Json({"name": name})

    async def delete(self, request: Request) -> Response:
        """Delete a value; instances that run keep theirs until they start again."""
        name = _name(request)
        if not await self._store.delete(name):
            raise MeshError("MESH-A404", f'secret "{name}" does not exist')
        return Json({"name": name})

    @property
    def _store(self) -> SecretStore:
        if self._access.secrets is None:
            raise MeshError("MESH-A422", "this manager keeps no secrets")
        return self._access.secrets


def _name(request: Request) -> str:
    name: str = request.path_params["secret"]
    if not secrets.is_name(name):
        raise MeshError(
            "MESH-A400",
            "a secret has another form of name",
            hint="Small letters, digits, '.', '_' and '-', 64 at most.",
        )
    return name
