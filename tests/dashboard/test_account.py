"""The page of one's own account: tokens that are shown once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.dashboard import site
from tests.support.forms import send
from tests.support.page_users import browser, user

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


@pytest.mark.slow
async def test_a_token_is_shown_once_and_obeys_its_owners_state(nats_server: NatsServer) -> None:
    async with site(nats_server, anonymous=False, requests_per_s=0.0) as at:
        await user(at, "ada", "admin")
        await user(at, "eve", "viewer")
        async with browser(at, "eve") as eve, browser(at, "ada") as ada:
            values = {"name": "deploys", "days": "30", "role": "admin", "apps": "*"}
            made = await send(eve, "/account", do="token", **values)
            (token,) = set(re.findall(r"mesh_[\w-]{20,}", made.text))
            assert made.headers["cache-control"] == "no-store"
            assert token not in (await eve.get("/account")).text
            assert "deploys" in (await ada.get("/users/eve")).text
            program = {"Authorization": f"Bearer {token}"}

            async def status(path: str) -> int:
                async with httpx.AsyncClient(base_url=at.url, headers=program) as client:
                    return (await client.get(path)).status_code

            assert [await status("/nodes"), await status("/users")] == [200, 403]
            await send(ada, "/users/eve", do="disable")
            assert await status("/nodes") == 401
            await send(ada, "/users/eve", do="enable")
            assert await status("/nodes") == 200
            (kept,) = at.directory.tokens.values()
            await send(ada, "/users/eve", do="revoke", id=kept.id)
            assert await status("/nodes") == 401
            wrong = await send(ada, "/account", do="token", **{**values, "days": "x"})
            assert wrong.status_code == 400
