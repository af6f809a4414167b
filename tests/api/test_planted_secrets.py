"""Secrets that are planted in a manager and NATS are found nowhere that they have no business."""

from __future__ import annotations

import asyncio
import base64
import secrets
from typing import TYPE_CHECKING

import httpx
import pytest

from mesh.clock import SystemClock
from mesh.jetstream.connection import close, connect
from mesh.jetstream.watch import ClusterView
from tests.support.permissions import PASSWORDS, SHOP, write_accounts
from tests.support.planted import (
    Planted,
    RecordedAnswers,
    address,
    look_at_answers,
    look_at_command_lines,
    look_at_debug,
    look_at_streams,
    plant,
)
from tools.cluster import MeshCluster, Outside

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nats, pytest.mark.slow]


@pytest.mark.parametrize(
    "data",
    [
        b"x hunter2hunter2 y",
        b'{"data": "' + base64.b64encode(b"of hunter2hunter2 and more") + b'"}',
        base64.urlsafe_b64encode(b"hunter2hunter2"),
    ],
)
def test_a_planted_secret_is_found_in_any_form(data: bytes) -> None:
    planted = Planted({"password": "hunter2hunter2"})
    planted.look("a place", b"nothing")
    assert planted.seen == []
    planted.look("a place", data)
    assert planted.seen == ["password in a place"]


def test_a_secret_in_any_answer_of_a_recorded_time_is_found() -> None:
    planted, answers = Planted({"password": "hunter2hunter2"}), RecordedAnswers()
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=request.content))

    async def ask(text: str) -> None:
        async with httpx.AsyncClient(base_url="http://a", transport=transport) as client:
            await client.post("/one", content=text)
        with httpx.Client(base_url="http://a", transport=transport) as client:
            client.post("/two", content=text)
            with client.stream("POST", "/three", content=text) as answer:
                answer.read()

    answers.start()
    try:
        asyncio.run(ask("nothing"))
        answers.look(planted)
        assert planted.seen == []
        asyncio.run(ask("hunter2hunter2"))
    finally:
        answers.stop()
    count = len(answers.found)
    asyncio.run(ask("hunter2hunter2"))
    assert len(answers.found) == count
    answers.look(planted)
    assert set(planted.seen) == {
        f"password in answer to POST /{path}" for path in ("one", "two", "three")
    }


@pytest.mark.extended
async def test_planted_secrets_are_not_in_logs_streams_command_lines_or_answers(
    tmp_path: Path,
) -> None:
    password, value, database, client_secret = (secrets.token_urlsafe(18) for _ in range(4))
    environment = plant(tmp_path, password, database, client_secret)
    arguments = write_accounts(tmp_path / "accounts.conf")
    (tmp_path / "run").mkdir()
    cluster = MeshCluster(
        tmp_path / "run", workers=0, arguments=arguments, passwords=PASSWORDS,
        environment=environment,
    )  # fmt: skip
    planted = Planted(
        {
            "password of the API": password,
            "secret of an app": value,
            "database": database,
            "client secret": client_secret,
            "manager's login": PASSWORDS["manager"],
        }
    )

    def use(api: str) -> None:
        with httpx.Client(base_url=api, auth=("ada", password), timeout=60) as client:
            made = client.post("/tokens", json={"name": "ci", "may": ["viewer"]}).json()
            planted.values["token"] = made["token"]
            bearer = {"Authorization": f"Bearer {made['token']}"}
            assert httpx.get(f"{api}/siddhi-apps", headers=bearer).status_code == 200
            stored = client.put("/secrets/door.password", content=value.encode())
            while stored.status_code == 503:
                # On a busy machine NATS may not answer in time.
                stored = client.put("/secrets/door.password", content=value.encode())
            assert stored.is_success, stored.text
            text = SHOP.replace("'Shop'", "'Spy'").encode()
            done = client.post("/siddhi-apps", content=text, headers={"Content-Type": "text/plain"})
            assert done.status_code == 201, done.text
            # Failures are noted, too.
            assert client.get("/me", auth=("ada", "wrong")).status_code == 401

    try:
        client = await connect(cluster.settings("manager"), "test")
        view = ClusterView(client, SystemClock())
        await view.start()
        try:
            api = await address(Outside(cluster, client, view))
            await asyncio.to_thread(use, api)
            await look_at_streams(planted, client.jetstream(), 5)
            await asyncio.to_thread(look_at_command_lines, planted)
            await asyncio.to_thread(look_at_answers, planted, api, ("ada", password))
            await asyncio.to_thread(look_at_debug, planted, api, ("ada", password))
        finally:
            await view.stop()
            await close(client)
    finally:
        cluster.stop()
    for path in (*(tmp_path / "run").glob("*.log"), cluster.nats.log):
        planted.look(f"log {path.name}", path.read_bytes())
    assert planted.seen == []
