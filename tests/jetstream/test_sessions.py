"""Sessions at the pages: shared by managers, limited, ended everywhere, and nothing to steal."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.jetstream import kv, sessions
from mesh.jetstream.connection import close, connect
from mesh.jetstream.sessions import (
    AGE_MS,
    FRESH_S,
    IDLE_MS,
    STALE_S,
    UserSessions,
    refresh_token,
)
from mesh.model import names
from mesh.model.access import ROLES, Grant
from mesh.model.sign_in import SignedIn
from mesh.settings import NatsSettings
from tests.support.clocks import MovedClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


async def test_one_manager_of_all_renews_a_session(nats_server: NatsServer) -> None:
    async with stores(nats_server) as (clock, (one, other)):
        name = await one.begin("oidc:ada", how="oidc", by=SignedIn("oidc:ada", (), 60.0, "r1"))
        assert await one.find(name) is not None
        assert await other.find(name) is not None
        assert [await one.claim(name), await other.claim(name)] == [True, False]
        given = (Grant(ROLES["viewer"]),)
        renewed = await one.renew(name, SignedIn("oidc:ada", given, 60.0, "r2"))
        clock.wait(FRESH_S)
        found = await other.find(name)
        assert found is not None
        assert renewed is not None
        assert (found.grants, refresh_token(found, name)) == (given, "r2")
        # One that was ended meanwhile stays ended.
        await other.end(name)
        assert await one.renew(name, SignedIn("oidc:ada", (), 60.0, "r3")) is None
        clock.wait(FRESH_S)
        assert await other.find(name) is None


@asynccontextmanager
async def stores(
    nats_server: NatsServer, count: int = 2
) -> AsyncIterator[tuple[MovedClock, list[UserSessions]]]:
    """The sessions as several managers see them."""
    client = await connect(NatsSettings(nats_server.url), "test")
    clock = MovedClock()
    try:
        yield clock, [UserSessions(client.jetstream(), clock) for _ in range(count)]
    finally:
        await close(client)


async def test_a_session_is_known_to_every_manager_and_ends_at_all(nats_server: NatsServer) -> None:
    async with stores(nats_server) as (clock, (one, other)):
        assert await other.find("guess") is None
        name = await one.begin("ada", source="192.0.2.1")
        here, there = await one.find(name), await other.find(name)
        assert here is not None
        assert here == there
        assert (here.user, here.how, here.source) == ("ada", "password", "192.0.2.1")
        assert len(here.token) == 64
        await one.end(name)
        assert await one.find(name) is None
        clock.wait(FRESH_S)
        assert await other.find(name) is None


async def test_a_session_ends_when_it_is_idle_or_old(nats_server: NatsServer) -> None:
    async with stores(nats_server) as (clock, (one, other)):
        name = await one.begin("ada")
        clock.wait(IDLE_MS / 1000 - 1)
        # Its use at one manager counts at the other.
        assert await one.find(name) is not None
        clock.wait(IDLE_MS / 1000 - 1)
        assert await other.find(name) is not None
        # An open page that renews itself is no use.
        clock.wait(IDLE_MS / 1000 - 1)
        assert await other.find(name, is_used=False) is not None
        clock.wait(2)
        assert await other.find(name) is None
        old = await one.begin("ada")
        for _ in range(0, AGE_MS, IDLE_MS):
            assert await other.find(old) is not None
            clock.wait(IDLE_MS / 1000 - 10)
        clock.wait(IDLE_MS / 1000 - 10)
        assert await other.find(old) is None
        assert await other.listed() == []


async def test_a_user_is_signed_out_everywhere_and_a_late_use_revives_nothing(
    nats_server: NatsServer,
) -> None:
    async with stores(nats_server) as (clock, (one, other)):
        names_ = [await one.begin("ada"), await other.begin("ada"), await one.begin("eve")]
        assert [s.user for s in await other.listed()].count("ada") == 2
        clock.wait(100)
        # The other manager has read it before it is ended, and would note its use after.
        known = await other._look(sessions.digest(names_[0]))
        assert await one.end_all("ada") == 2
        assert known.session is not None
        await other._write(sessions.digest(names_[0]), known.session, known)
        clock.wait(FRESH_S)
        assert [await other.find(name) for name in names_[:2]] == [None, None]
        assert await other.find(names_[2]) is not None
        assert [s.user for s in await one.listed()] == ["eve"]


async def test_the_bucket_opens_no_session_and_keeps_grants_of_a_provider(
    nats_server: NatsServer,
) -> None:
    async with stores(nats_server, 1) as (_, (one,)):
        given = (Grant(ROLES["developer"], "Shop*"),)
        by = SignedIn("oidc:ada", given, 60.0, "of the provider")
        name = await one.begin("oidc:ada", how="oidc", by=by)
        found = await one.find(name)
        assert found is not None
        assert found.grants == given
        bucket = await one._js.key_value(names.SESSIONS_BUCKET)
        (key,) = await kv.entries(one._js, names.SESSIONS_BUCKET)
        stored = key.encode() + ((await bucket.get(key)).value or b"")
        assert name.encode() not in stored
        assert found.token.encode() not in stored
        assert b"of the provider" not in stored
        assert refresh_token(found, name) == "of the provider"
        with pytest.raises(MeshError, match="C141"):
            refresh_token(found, key)
        # What was stored is no cookie.
        assert await one.find(key) is None


async def test_the_number_of_sessions_is_bounded(nats_server: NatsServer) -> None:
    async with stores(nats_server, 1) as (clock, (one,)):
        one.count_max = 3
        made = []
        for _ in range(5):
            made.append(await one.begin("ada"))
            clock.wait(1)
        assert [await one.find(name) is not None for name in made] == [False] * 2 + [True] * 3


async def test_without_nats_a_session_lasts_for_a_moment_and_nobody_signs_in(
    nats_server: NatsServer,
) -> None:
    async with stores(nats_server, 1) as (clock, (one,)):
        name = await one.begin("ada")
        assert await one.find(name) is not None
        await close(one._js._nc)
        clock.wait(FRESH_S)
        assert await one.find(name) is not None
        with pytest.raises(MeshError, match="NATS did not answer"):
            await one.begin("eve")
        clock.wait(STALE_S)
        with pytest.raises(MeshError, match="NATS did not answer"):
            await one.find(name)
