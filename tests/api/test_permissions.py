"""Permissions of routes: each has one, and lists are filtered by them."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from mesh.api import permissions
from mesh.api.auth import Access
from mesh.api.permissions import ROUTES
from tests.support.accessed import routes
from tests.support.api_users import client_of


def test_every_route_has_a_permission() -> None:
    missing = set(routes()) - set(ROUTES)
    assert not missing, f"give these a permission in mesh/model/operations.py: {missing}"


def test_a_route_without_a_permission_is_reached_by_no_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = [one for one in permissions._PATTERNS if one[0] != "GET /nodes"]
    monkeypatch.setattr(permissions, "_PATTERNS", others)

    async def run() -> int:
        async with client_of(Access(None), base="http://localhost") as client:
            return (await client.get("/nodes")).status_code

    assert anyio.run(run) == 404


def test_no_handler_lists_apps_without_the_filter_of_grants() -> None:
    api = Path(permissions.__file__).parent
    found = {path.name for path in api.glob("*.py") if "service.apps()" in path.read_text("utf-8")}
    assert found == {"visible.py"}
