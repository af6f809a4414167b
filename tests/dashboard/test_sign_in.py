"""Sign-in to the pages by an identity provider: sessions, their renewal and their end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from mesh.jetstream.directory import DirectoryUser
from mesh.jetstream.sessions import refresh_token
from mesh.settings import OidcSettings
from tests.support.dashboard import site
from tests.support.idp import AUDIENCE, CLIENT, CLIENT_SECRET

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer
    from tests.support.idp import IdentityProvider

pytestmark = pytest.mark.nats

USERS: Final[dict[str, Any]] = {"anonymous": False}
COOKIE: Final = "mesh_session"


def settings(idp: IdentityProvider, **more: Any) -> OidcSettings:
    return OidcSettings(
        issuer=idp.url, audience=AUDIENCE, client_id=CLIENT, client_secret=CLIENT_SECRET,
        roles="ADMIN=admin, SHOP=developer:Shop*", **more,
    )  # fmt: skip


def browser(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, follow_redirects=False)


async def arrive(client: httpx.AsyncClient, idp: IdentityProvider, user: str) -> httpx.Response:
    """Sign in as a person does; the answer of the callback."""
    begun = await client.get("/login/oidc?next=/story")
    assert begun.status_code == 303
    back = await asyncio.to_thread(idp.sign_in, begun.headers["location"], user)
    parts = urlsplit(back)
    return await client.get(f"{parts.path}?{parts.query}")


@pytest.mark.slow
async def test_a_person_signs_in_sees_what_the_roles_allow_and_signs_out_everywhere(
    nats_server: NatsServer, idp: IdentityProvider
) -> None:
    async with (
        site(nats_server, settings(idp), **USERS) as at,
        browser(at.url) as one,
        browser(at.url) as two,
    ):
        assert "/login/oidc?next=" in (await one.get("/login")).text
        done = await arrive(one, idp, "eve")
        assert (done.status_code, done.headers["location"]) == (303, "/story")
        set_cookie = done.headers.get_list("set-cookie")
        assert all("HttpOnly" in cookie and "SameSite=lax" in cookie for cookie in set_cookie)
        assert "oidc:eve" in (await one.get("/")).text
        # A developer of Shop*: neither nodes nor other apps.
        assert (await one.get("/nodes")).headers["content-type"].startswith("application/json")
        page = {"Accept": "text/html"}
        assert (await one.get("/nodes", headers=page)).status_code == 403
        assert (await one.get("/apps/Other")).status_code == 403
        assert (await one.get("/apps/ShopNorth")).status_code == 404
        await arrive(two, idp, "eve")
        assert (await two.get("/")).status_code == 200
        assert await at.sessions.end_all("oidc:eve") == 2
        for client in (one, two):
            assert (await client.get("/")).headers["location"] == "/login"


async def _session(at: Any, client: httpx.AsyncClient) -> Any:
    found = await at.sessions.find(client.cookies[COOKIE])
    assert found is not None
    return found


async def test_an_answer_to_another_browser_is_refused_and_noted(
    nats_server: NatsServer, idp: IdentityProvider
) -> None:
    async with (
        site(nats_server, settings(idp), **USERS) as at,
        browser(at.url) as one,
        browser(at.url) as two,
    ):
        begun = await one.get("/login/oidc")
        back = await asyncio.to_thread(idp.sign_in, begun.headers["location"], "ada")
        query = urlsplit(back).query
        # A page that has a victim's browser open the attacker's answer.
        for headers in ({}, {"Cookie": f"{COOKIE}-oidc=W10"}):
            refused = await two.get(f"/login/oidc/callback?{query}", headers=headers)
            assert refused.status_code == 401
            assert COOKIE not in two.cookies
        changed = query.replace(f"state={parse_qs(query)['state'][0]}", "state=x")
        assert (await one.get(f"/login/oidc/callback?{changed}")).status_code == 401
        assert (await one.get(f"/login/oidc/callback?{query}")).status_code == 303
        # The code holds once, and the attempt is over.
        assert (await one.get(f"/login/oidc/callback?{query}")).status_code == 401


@pytest.mark.slow
async def test_a_user_whom_the_provider_refuses_loses_the_session(
    nats_server: NatsServer, idp: IdentityProvider
) -> None:
    """Each request asks the provider, and each refresh token holds once."""

    # Any time: this test asks the provider for each request.
    often = settings(idp, recheck_s=0.001)
    async with site(nats_server, often, **USERS) as at, browser(at.url) as one:
        await arrive(one, idp, "ada")
        name = one.cookies[COOKIE]
        tokens = set()
        for _ in range(3):
            assert (await one.get("/")).status_code == 200
            tokens.add(refresh_token(await _session(at, one), name))
        assert len(tokens) == 3
        await asyncio.to_thread(idp.rotate)
        assert (await one.get("/")).status_code == 200
        idp.revoke(refresh_token(await _session(at, one), name))
        assert (await one.get("/")).headers["location"] == "/login"
        assert await at.sessions.find(name) is None


@pytest.mark.slow
async def test_a_sign_in_holds_at_every_manager_and_a_disabled_user_has_none(
    nats_server: NatsServer, idp: IdentityProvider
) -> None:
    given: dict[str, Any] = {**USERS, "public_url": "http://127.0.0.1:1"}

    async with (
        site(nats_server, settings(idp), **given) as at,
        site(nats_server, settings(idp), **given, id="m2") as other,
        browser(at.url) as one,
    ):
        begun = await one.get("/login/oidc")
        back = await asyncio.to_thread(idp.sign_in, begun.headers["location"], "ada")
        # The answer arrives at another manager than the question left.
        done = await one.get(f"{other.url}/login/oidc/callback?{urlsplit(back).query}")
        assert done.status_code == 303
        assert (await one.get("/")).status_code == 200
        assert (await one.get(f"{other.url}/")).status_code == 200
        await at.directory.put_user(DirectoryUser("oidc:ada", "", (), active=False))
        assert (await one.get("/")).headers["location"] == "/login"
        assert (await arrive(one, idp, "ada")).status_code == 403


async def test_cookies_are_bound_to_the_host_where_browsers_use_tls(
    nats_server: NatsServer, idp: IdentityProvider
) -> None:
    public = "https://mesh.example"

    async with (
        site(nats_server, settings(idp), **USERS, public_url=public) as at,
        browser(at.url) as one,
    ):
        begun = await one.get("/login/oidc", headers={"Origin": public})
        asked = parse_qs(urlsplit(begun.headers["location"]).query)
        assert asked["redirect_uri"] == [f"{public}/login/oidc/callback"]
        assert "max-age" in begun.headers["strict-transport-security"]
        cookie = begun.headers["set-cookie"]
        assert cookie.startswith("__Host-mesh-oidc=")
        assert "Secure" in cookie
        assert "Path=/" in cookie
        assert "Domain" not in cookie
        evil = await one.get("/login/oidc", headers={"Origin": "https://evil.example"})
        assert evil.status_code == 403
