"""Simulations at the API: permissions of their apps, and bodies."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from mesh.model.access import ALL, Grant
from tests.support.api_feeds import feed
from tests.support.api_users import access_of, client_of


async def test_simulations_need_the_permission_for_each_of_their_apps() -> None:
    access, _ = access_of(eve=(Grant(ALL, "Shop*"),), bob=(Grant(ALL, "Other"),))
    path = "/simulation/feed/Idle"
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/simulation/feed", {"json": feed("New")}),
        ("POST", f"{path}?action=run", {}),
        ("GET", path, {}),
        ("GET", f"{path}/status", {}),
        ("PUT", path, {"json": feed("Idle")}),
        ("DELETE", path, {}),
    ]

    async with client_of(access) as client:
        for method, where, more in requests:
            refused = await client.request(method, where, auth=("bob", "x"), **more)
            # Of a simulation of other apps a user does not hear.
            assert refused.status_code == (403 if where == "/simulation/feed" else 404)
            allowed = await client.request(method, where, auth=("eve", "x"), **more)
            assert allowed.status_code < 300, (method, where, allowed.text)
        # A simulation can't be turned into one of other apps.
        where, values = "/simulation/feed/Busy", feed("Busy", "Other")
        changed = await client.put(where, auth=("eve", "x"), json=values)
        assert changed.status_code == 403
        found = await client.get("/simulation/feed", auth=("bob", "x"))
        assert "Shop" not in found.text
        # Files are of all simulations.
        for who in ("eve", "bob"):
            gone = await client.delete("/simulation/files/events.csv", auth=(who, "x"))
            assert gone.status_code == 403


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"files": {"file": ("b.csv", b"x" * 100)}}, 201),
        ({"files": {"file": ("../b.csv", b"x")}}, 400),
        ({"files": {"other": ("b.csv", b"x")}}, 400),
        ({"data": {"file": "x"}}, 400),
        ({"content": b"x"}, 400),
        ({"content": b"--x", "headers": {"Content-Type": "multipart/form-data; boundary=x"}}, 400),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, 400),
        ({"files": {"file": ("b.csv", b"x" * (9 << 20))}}, 413),
    ],
)
def test_a_file_is_a_field_of_a_form(more: dict[str, Any], status: int) -> None:
    access, _ = access_of(ada=(Grant(ALL),))

    async def run() -> int:
        async with client_of(access) as client:
            auth = ("ada", "x")
            return (await client.post("/simulation/files", auth=auth, **more)).status_code

    assert anyio.run(run) == status
