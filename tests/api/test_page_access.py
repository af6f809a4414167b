"""Sessions of an identity provider's users, as a manager has them confirmed."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from mesh.api.auth import Access
from mesh.api.oidc import Provider
from mesh.api.page_access import PageAccess
from mesh.api.sign_in import SignIn
from mesh.errors import MeshError
from mesh.jetstream.connection import close, connect
from mesh.jetstream.sessions import FRESH_S, UserSessions
from mesh.model.access import ROLES, Grant
from mesh.model.sign_in import SignedIn
from mesh.settings import NatsSettings, OidcSettings
from tests.support.clocks import MovedClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

RECHECK_S = 300.0


class Scripted(SignIn):
    """A provider that answers as the test says, or not at all."""

    answer: SignedIn | MeshError | None
    asked: int

    async def renew(self, known: SignedIn) -> SignedIn | None:
        self.asked += 1
        if isinstance(self.answer, MeshError):
            raise self.answer
        return self.answer


@asynccontextmanager
async def page_access(server: NatsServer) -> AsyncIterator[tuple[MovedClock, PageAccess, Scripted]]:
    client = await connect(NatsSettings(server.url), "test")
    try:
        clock = MovedClock()
        provider = Provider(OidcSettings(recheck_s=RECHECK_S), clock)
        made = Scripted(provider, "pages", "", "openid")
        made.answer, made.asked = None, 0
        kept = UserSessions(client.jetstream(), clock)
        access = Access(None, sessions=kept, sign_in_by=made, clock=clock)
        yield clock, PageAccess(access), made
    finally:
        await close(client)


def _begin(access: PageAccess, refresh_token: str = "r") -> Awaitable[str]:
    by = SignedIn("oidc:ada", (Grant(ROLES["admin"]),), 60.0, refresh_token)
    return cast("Any", access.sessions).begin("oidc:ada", how="oidc", by=by)  # type: ignore[no-any-return]


AWAY = MeshError("MESH-A108", "away")
WRONG = MeshError("MESH-A401", "the token is not valid")


async def test_a_session_is_confirmed_after_the_setting_with_what_the_provider_grants_then(
    nats_server: NatsServer,
) -> None:
    async with page_access(nats_server) as (clock, access, provider):
        name = await _begin(access)
        fewer = (Grant(ROLES["viewer"]),)
        provider.answer = SignedIn("oidc:ada", fewer, 60.0, "r2")
        clock.wait(RECHECK_S - 1)
        assert await access.session(name) is not None
        assert provider.asked == 0
        clock.wait(1)
        found = await access.session(name)
        assert found is not None
        assert (found.grants, provider.asked) == (fewer, 1)
        assert await access.session(name) is not None
        assert provider.asked == 1


async def test_while_the_provider_is_away_a_session_holds_for_three_times_the_setting(
    nats_server: NatsServer,
) -> None:
    async with page_access(nats_server) as (clock, access, provider):
        name = await _begin(access)
        provider.answer = AWAY
        for _ in range(3):
            clock.wait(RECHECK_S)
            assert await access.session(name) is not None
        assert provider.asked == 3
        clock.wait(1)
        assert await access.session(name) is None
        # It answers again, and the user is still one of its own.
        provider.answer = SignedIn("oidc:ada", (), 60.0, "r2")
        clock.wait(RECHECK_S)
        assert await access.session(name) is not None


@pytest.mark.parametrize("answer", [None, WRONG], ids=["refused", "a token that is not valid"])
async def test_a_session_ends_if_the_provider_does_not_confirm_it(
    nats_server: NatsServer, answer: MeshError | None
) -> None:
    async with page_access(nats_server) as (clock, access, provider):
        name = await _begin(access)
        provider.answer = answer
        clock.wait(RECHECK_S)
        assert await access.session(name) is None
        provider.answer = SignedIn("oidc:ada", (), 60.0, "r2")
        clock.wait(RECHECK_S + FRESH_S)
        assert await access.session(name) is None
        assert provider.asked == 1


async def test_without_a_refresh_token_a_session_ends_with_the_providers_answer(
    nats_server: NatsServer,
) -> None:
    async with page_access(nats_server) as (clock, access, provider):
        name = await _begin(access, "")
        clock.wait(60)
        assert await access.session(name) is not None
        clock.wait(1)
        assert await access.session(name) is None
        assert provider.asked == 0


async def test_a_session_of_a_provider_ends_with_the_setting(nats_server: NatsServer) -> None:
    async with page_access(nats_server) as (clock, access, _):
        name = await _begin(access)
        without = PageAccess(Access(None, sessions=access.sessions, clock=clock))
        assert await without.session(name) is None
        assert await access.session(name) is not None
