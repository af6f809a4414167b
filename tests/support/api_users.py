"""The REST API over a fake service, with users that need no bucket and no password."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from mesh.api.auth import Access
from mesh.api.routes import make_app
from mesh.api.users import Users
from mesh.jetstream.directory import DirectoryUser
from tests.support.api import TEXT, FakeService

if TYPE_CHECKING:
    from mesh.api.users import LoginCredentials
    from mesh.jetstream.audit import AuditEntry
    from mesh.model.access import Grant


def app_of(access: Access) -> Any:
    """The application, with the app ``Shop``."""
    return make_app(FakeService({"Shop": TEXT}).as_manager, access)


def client_of(
    access: Access, base: str = "http://api", address: str = "192.0.2.1"
) -> httpx.AsyncClient:
    """A client at an address that is not this machine's."""
    transport = httpx.ASGITransport(app_of(access), False, client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url=base)


class FakeDirectory:
    """Users without a bucket."""

    def __init__(self, **grants: tuple[Grant, ...]) -> None:
        self.users = {name: DirectoryUser(name, "", some) for name, some in grants.items()}
        self.tokens: dict[str, Any] = {}
        self.resources: dict[tuple[str, str], Any] = {}
        self.provisioned: dict[str, Any] = {}
        self.version = 1

    def is_setup(self, given: str) -> bool:
        return False

    def token(self, given: str) -> None:
        return None


class AnyPassword(Users):
    """Accepts every known user."""

    def is_verified(self, given: LoginCredentials) -> bool:
        self.refresh()
        return bool(self.grants(given.user))


def access_of(**grants: tuple[Grant, ...]) -> tuple[Access, list[AuditEntry]]:
    """Access of users with these grants, and what is audited."""
    noted: list[AuditEntry] = []
    directory = FakeDirectory(**grants)
    return Access(AnyPassword(None, directory), note=noted.append), noted  # type: ignore[arg-type]
