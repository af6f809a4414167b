"""Users of the API: the first one, and one who asks too often."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from mesh.api import auth
from mesh.api.auth import ROUTES, Access, RateLimits
from mesh.api.users import Users
from mesh.model.access import ALL, Grant
from tests.support.accessed import directories, routes
from tests.support.api_users import access_of, client_of

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


def test_an_address_that_asks_too_often_is_refused() -> None:
    access, _ = access_of(ada=(Grant(ALL),))
    slow = Access(access.users, limits=RateLimits(rate=0.001, burst=6.0))

    async def run() -> list[int]:
        async with client_of(slow) as client:
            return [
                (await client.get("/siddhi-apps", auth=("ada", "x"))).status_code for _ in range(8)
            ]

    assert anyio.run(run) == [200] * 6 + [429] * 2


def test_a_user_that_asks_too_often_is_refused_wherever_it_asks() -> None:
    access, _ = access_of(ada=(Grant(ALL),), eve=(Grant(ALL),))
    slow = Access(access.users, limits=RateLimits(rate=0.001, burst=6.0))

    async def status(user: str, address: str) -> int:
        async with client_of(slow, address=address) as client:
            return (await client.get("/siddhi-apps", auth=(user, "x"))).status_code

    async def run() -> list[int]:
        return [await status("ada", f"192.0.2.{number}") for number in range(8)]

    assert anyio.run(run) == [200] * 6 + [429] * 2
    assert anyio.run(status, "eve", "192.0.2.8") == 200


@pytest.mark.nats
async def test_the_first_user_is_made_with_the_logged_token_and_known_to_every_manager(
    nats_server: NatsServer,
) -> None:
    async with directories(nats_server, 2) as (one, other):
        token = await one.offer_setup()
        assert token is not None
        access, elsewhere = Access(Users(None, one)), Access(Users(None, other))
        setup = {"Authorization": f"Bearer {token}"}
        ada = {"name": "ada", "password": "twelve letters", "may": ["admin"]}
        async with client_of(access) as client, client_of(elsewhere) as second:
            with anyio.fail_after(20):
                while (await client.get("/me", headers=setup)).status_code == 401:
                    await anyio.lowlevel.checkpoint()
            assert (await client.get("/siddhi-apps", headers=setup)).status_code == 403
            assert (await client.post("/users", json=ada, headers=setup)).status_code == 201
            assert (
                await client.get("/siddhi-apps", auth=("ada", "twelve letters"))
            ).status_code == 200
            # The token was for the first user only.
            answer = await client.post("/users", json=ada, headers=setup)
            assert answer.status_code == 401
            with anyio.fail_after(20):
                while "ada" not in other.users:
                    await anyio.lowlevel.checkpoint()
            assert (
                await second.get("/siddhi-apps", auth=("ada", "twelve letters"))
            ).status_code == 200
            assert await other.offer_setup() is None
            listed = await client.get("/users", auth=("ada", "twelve letters"))
            assert "argon2" not in listed.text
            assert [user["name"] for user in listed.json()] == ["ada"]


@pytest.mark.nats
async def test_managers_that_start_together_log_tokens_that_are_all_valid(
    nats_server: NatsServer,
) -> None:
    async with directories(nats_server, 2) as (one, other):
        offered = await asyncio.gather(*(each.offer_setup() for each in (one, other) * 3))
        tokens = [token for token in offered if token is not None]
        assert len(set(tokens)) == 6
        with anyio.fail_after(20):
            while not all(each.is_setup(token) for each in (one, other) for token in tokens):
                await anyio.lowlevel.checkpoint()
        assert not one.is_setup(f"{tokens[0]}x")
        # Of a manager that starts over and over, the last ones are.
        for _ in range(16):
            last = await one.offer_setup()
        assert last is not None
        assert one.is_setup(last)
        assert not any(map(one.is_setup, tokens))


def test_every_route_has_a_permission() -> None:
    missing = set(routes()) - set(ROUTES)
    assert not missing, f"give these a permission in mesh/model/operations.py: {missing}"


def test_a_route_without_a_permission_is_reached_by_no_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = [one for one in auth._PATTERNS if one[0] != "GET /nodes"]
    monkeypatch.setattr(auth, "_PATTERNS", others)

    async def run() -> int:
        async with client_of(Access(None), base="http://localhost") as client:
            return (await client.get("/nodes")).status_code

    assert anyio.run(run) == 404


def test_no_handler_lists_apps_without_the_filter_of_grants() -> None:
    api = Path(auth.__file__).parent
    found = {path.name for path in api.glob("*.py") if "service.apps()" in path.read_text("utf-8")}
    assert found == {"routing.py"}


def test_rates_are_of_each_name_and_fill_with_time() -> None:
    limits = RateLimits(rate=2.0, burst=3.0)
    assert [limits.admit("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert limits.admit("b", 0.0)
    assert not limits.admit("a", 0.4)
    assert limits.admit("a", 0.6)
    for number in range(10_000):
        limits.admit(str(number), 1.0)
    assert len(limits._left) <= 4096
