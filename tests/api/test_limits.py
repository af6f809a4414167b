"""Limits of requests: of a user from any address, and of an address behind a proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import httpx
import pytest

from mesh.api import users
from mesh.api.auth import Access, RateLimits
from mesh.api.routes import make_app
from mesh.api.server import ApiServer, listen
from mesh.model.access import Grant, Identity, Permission
from mesh.settings import ManagerSettings
from tests.support.api import FakeService

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.audit import AuditEntry

VIEW: Final = (Grant(frozenset({Permission.MONITOR})),)


async def test_a_user_who_asks_too_often_is_refused_from_every_address() -> None:
    async def bearer(token: str) -> Identity:
        return Identity(f"oidc:{token}", VIEW, "oidc")

    access = Access(users.Users(None), bearer=bearer, limits=RateLimits(rate=0.001, burst=4.0))
    app: Any = make_app(FakeService().as_manager, access)

    async def ask(address: str, user: str) -> int:
        transport = httpx.ASGITransport(app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
            headers = {"Authorization": f"Bearer {user}"}
            return (await client.get("/nodes", headers=headers)).status_code

    # Four of each: no address has asked twice for one user, and users don't share a limit.
    assert [await ask(f"192.0.2.{n}", user) for user in ("eve", "ada") for n in range(6)] == [
        200
    ] * 4 + [429] * 2 + [200] * 2 + [200] * 2 + [429] * 2


class Notes:
    """An audit in memory."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    def note(self, entry: AuditEntry) -> None:
        self.sources.append(entry.source)

    async def last(self, limit: int, wanted: Any = None) -> list[Any]:
        return []


@pytest.mark.parametrize(("proxies", "seen"), [("127.0.0.1", "192.0.2.7"), ("", "127.0.0.1")])
async def test_the_address_of_a_client_is_the_one_that_a_trusted_proxy_names(
    tmp_path: Path, proxies: str, seen: str
) -> None:
    users.add(tmp_path / "users", "ada", "pw")
    settings = ManagerSettings(port=0, users_file=str(tmp_path / "users"), trusted_proxies=proxies)
    notes: Any = Notes()
    api = ApiServer(FakeService().as_manager, settings, listen(settings), audit=notes)

    async with anyio.create_task_group() as tasks, httpx.AsyncClient() as client:
        tasks.start_soon(api.run)
        headers = {"X-Forwarded-For": "192.0.2.7"}
        assert (await client.get(f"{api.url}/nodes", headers=headers)).status_code == 401
        api.stop()
    assert notes.sources == [seen]
