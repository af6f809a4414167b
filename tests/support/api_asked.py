"""Requests to an API of a test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from mesh.api import users
from mesh.clock import SystemClock
from mesh.http import certificate as certificates
from mesh.settings import ManagerSettings
from tests.support.api import OPEN, FakeService, served

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def secured(tmp_path: Path) -> ManagerSettings:
    """HTTPS with one user, ada, whose password is 'pass:word'."""
    users.add(tmp_path / "users", "ada", "pass:word")
    certificate, key = certificates.self_signed(tmp_path, SystemClock().wall_ms())
    return ManagerSettings(
        port=0,
        tls_cert=str(certificate),
        tls_key=str(key),
        users_file=str(tmp_path / "users"),
    )


async def open_request(service: FakeService, *arguments: Any, **more: Any) -> httpx.Response:
    async with served(service, OPEN) as api, httpx.AsyncClient(base_url=api.url) as client:
        return await client.request(*arguments, **more)


def ask(service: FakeService, *arguments: Any, **more: Any) -> httpx.Response:
    """Send one request to an anonymous API."""

    async def run() -> httpx.Response:
        return await open_request(service, *arguments, **more)

    return anyio.run(run)
