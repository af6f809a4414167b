"""Tokens and passwords that users make.

Secrets at the API: names are listed, values are not.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import httpx
import pytest

from mesh.api import users
from mesh.api.account_service import AccountService
from mesh.api.auth import Access
from mesh.api.routes import make_app, status_of
from mesh.api.users import Users
from mesh.errors import MeshError
from mesh.jetstream import directory as directory_module
from mesh.jetstream.connection import close, connect
from mesh.jetstream.directory import ApiToken, DirectoryUser
from mesh.jetstream.secret_store import SecretStore
from mesh.model.access import ALL, ANYONE, ROLES, Grant
from mesh.settings import NatsSettings
from tests.support.accessed import directories
from tests.support.api import FakeService
from tests.support.api_users import access_of, client_of
from tests.support.secret_apps import VALUE, key_file

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


@pytest.mark.slow
@pytest.mark.nats
async def test_a_token_is_shown_once_has_no_more_than_its_owners_rights_and_ends(
    nats_server: NatsServer,
) -> None:
    async with directories(nats_server, 1) as (directory,):
        hashed = users.hash_of("eve", "pw")
        developer = (Grant(ROLES["developer"], "Shop*"),)
        await directory.put_user(DirectoryUser("eve", hashed, developer))
        access = Access(Users(None, directory))
        wanted = {"name": "deploys", "days": 1, "may": ["admin"], "apps": "*"}
        async with client_of(access) as client:
            made = await client.post("/tokens", json=wanted, auth=("eve", "pw"))
            assert made.status_code == 201
            token = {"Authorization": f"Bearer {made.json()['token']}"}
            listed = await client.get("/tokens", auth=("eve", "pw"))
            assert made.json()["token"] not in listed.text
            assert (await client.get("/siddhi-apps/Shop", headers=token)).status_code == 200
            assert (await client.get("/siddhi-apps/Other", headers=token)).status_code == 403
            assert (await client.get("/users", headers=token)).status_code == 403
            # A token makes no tokens.
            again = await client.post("/tokens", json=wanted, headers=token)
            assert again.status_code == 403
            # Tokens end with their owner's rights, with their time, and when revoked.
            await directory.put_user(DirectoryUser("eve", hashed, ()))
            assert (await client.get("/siddhi-apps/Shop", headers=token)).status_code == 403
            await directory.put_user(DirectoryUser("eve", hashed, developer))
            (known,) = directory.tokens.values()
            assert known.is_valid(known.expires_ms - 1)
            assert not known.is_valid(known.expires_ms)
            gone = await client.delete(f"/tokens/{known.id}", auth=("eve", "pw"))
            assert gone.status_code == 200
            assert (await client.get("/siddhi-apps/Shop", headers=token)).status_code == 401


@pytest.mark.nats
async def test_a_user_has_a_bounded_number_of_tokens_and_expired_ones_go(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_module, "TOKENS_OF_USER_MAX", 3)
    async with directories(nats_server, 1) as (directory,):

        async def make(user: str, now_ms: int) -> ApiToken:
            return (await directory.make_token(user, "t", Grant(ALL), now_ms + 10, now_ms))[1]

        found = await asyncio.gather(*(make("eve", 0) for _ in range(9)), return_exceptions=True)
        refused = [one for one in found if isinstance(one, MeshError)]
        assert len(refused) == 6
        assert {one.code for one in refused} == {"MESH-A409"}
        # Any spelling is the same user; others have tokens of their own.
        with pytest.raises(MeshError, match="has 3 tokens"):
            await make("Eve", 9)
        await make("ada", 9)
        last = await make("eve", 10)
        assert {one.id for one in directory.tokens.values() if one.user == "eve"} == {last.id}


@pytest.mark.parametrize("password", ["a", "hunter2", "11_letters_"])
async def test_a_new_password_is_long_enough(password: str) -> None:
    access, _ = access_of(ada=(Grant(ALL),))
    values = {"name": "bob", "password": password, "may": ["viewer"]}
    with pytest.raises(MeshError) as refused:
        await AccountService(access).put_user(ANYONE, values)
    assert refused.value.code == "MESH-A101"
    assert status_of(refused.value) == 422
    assert "at least 12" in (refused.value.detail or "")
    users.check_password("bob", f"{password}{'x' * 12}")


__all__ = ("key_file",)


async def test_the_api_lists_names_and_answers_no_value(
    nats_server: NatsServer, key_file: Path
) -> None:
    client = await connect(NatsSettings(nats_server.url), "test")
    store = SecretStore(client.jetstream(), str(key_file))
    transport = httpx.ASGITransport(make_app(FakeService().as_manager, Access(None, secrets=store)))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            answers = [
                await http.put("/secrets/db", content=VALUE, params={"apps": "Shop*, Till"}),
                await http.get("/secrets"),
                await http.put("/secrets/db", content=VALUE, params={"apps": "a b"}),
                await http.put("/secrets/..%2Fdb", content=VALUE),
                await http.put("/secrets/A", content=VALUE),
                await http.put("/secrets/db", content=b""),
                await http.delete("/secrets/db"),
                await http.delete("/secrets/db"),
            ]
    finally:
        await close(client)
    assert [one.status_code for one in answers] == [200, 200, 400, 404, 400, 400, 200, 404]
    assert answers[1].json() == [{"name": "db", "apps": "Shop*,Till"}]
    assert not any(VALUE in one.text for one in answers)


async def test_a_manager_without_a_key_stores_no_secret(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    client = await connect(NatsSettings(nats_server.url), "test")
    (tmp_path / "key").write_text("short")
    answers = []
    try:
        for key in ("", str(tmp_path / "none"), str(tmp_path / "key")):
            access = Access(None, secrets=SecretStore(client.jetstream(), key))
            transport = httpx.ASGITransport(make_app(FakeService().as_manager, access))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                answers.append(await http.put("/secrets/db", content=VALUE))
    finally:
        await close(client)
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (422, "MESH-C140")
        assert "openssl rand" in answer.json()["hint"]


async def test_a_server_that_does_not_answer_is_told(
    nats_server: NatsServer, key_file: Path
) -> None:
    client = await connect(NatsSettings(nats_server.url), "test")
    store = SecretStore(client.jetstream(timeout=0.2), str(key_file))
    transport = httpx.ASGITransport(make_app(FakeService().as_manager, Access(None, secrets=store)))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            nats_server.process.send_signal(signal.SIGSTOP)
            paused = await http.put("/secrets/db", content=VALUE)
            nats_server.process.send_signal(signal.SIGCONT)
    finally:
        nats_server.process.send_signal(signal.SIGCONT)
        await close(client)
    assert paused.status_code == 503
    assert paused.headers["Retry-After"] == "1"
    assert paused.json()["code"] == "MESH-A503"
