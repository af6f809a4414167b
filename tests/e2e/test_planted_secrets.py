"""Secrets that apps use on a worker with Spark are found nowhere but where they are sent."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

import httpx
import orjson
import pytest

from mesh.model import names
from tests.support.connectors import Endpoint
from tests.support.permissions import PASSWORDS, write_accounts
from tests.support.planted import (
    Planted,
    address,
    look_at_answers,
    look_at_command_lines,
    look_at_debug,
    look_at_files,
    look_at_streams,
    plant,
)
from tools.cluster import MeshCluster, MeshClusterView, watching

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.extended,
    pytest.mark.timeout(300),
]  # fmt: skip

#: A query with state on Spark, and a sink on the connector host that sends the secret.
APP: Final = """@App:name('Spy')
define stream Orders (item string, price double);
@sink(type='http', publisher.url='{url}', headers="'Key:${{secret:door.password}}'",
      @map(type='json'))
define stream Dear (item string, total double);
from Orders[price > 10.0]#window.length(3) select item, sum(price) as total insert into Dear;
"""


def _deploy(api: str, url: str, password: str, value: str) -> None:
    with httpx.Client(base_url=api, auth=("ada", password), timeout=60) as client:
        assert client.put("/secrets/door.password", content=value.encode()).is_success
        text, plain = APP.format(url=url), {"Content-Type": "text/plain"}
        done = client.post("/siddhi-apps", content=text, headers=plain)
        assert done.status_code == 201, done.text


def _back_up(api: str, password: str) -> None:
    made = httpx.post(f"{api}/siddhi-apps/Spy/backup", auth=("ada", password), timeout=60)
    assert made.status_code == 201, made.text


async def _play(cluster: MeshCluster, planted: Planted, password: str, value: str) -> None:
    """Run the app, and look at everything while it runs."""
    endpoint = Endpoint()
    endpoint.statuses = [503]
    await endpoint.open()
    async with watching(cluster.settings("manager")) as (client, records):
        view = MeshClusterView(cluster, client, records)
        await view.until_ready("w1")
        api = await address(view)
        await asyncio.to_thread(_deploy, api, endpoint.url, password, value)
        await view.until_running("Spy")
        for number in range(20):
            event = {"item": "a", "price": 5.0 + number}
            await view.js.publish(names.subject("Spy", "Orders"), orjson.dumps(event))
        await view.until("every request", lambda: len(endpoint.bodies) > 13)
        await asyncio.to_thread(_back_up, api, password)
        # The sink does send it.
        assert {head["key"] for head in endpoint.heads} == {value}
        await look_at_streams(planted, client.jetstream(), 40)
        await asyncio.to_thread(look_at_command_lines, planted)
        await asyncio.to_thread(look_at_answers, planted, api, ("ada", password))
        await asyncio.to_thread(look_at_debug, planted, api, ("ada", password))
    await endpoint.close()
    # Logs, states and what Spark has written, while all of it is there.
    look_at_files(planted, cluster.directory, 10)


def test_secrets_of_a_running_app_are_not_in_logs_states_streams_or_answers(
    tmp_path: Path,
) -> None:
    password, value, database, client_secret = (secrets.token_urlsafe(18) for _ in range(4))
    environment = plant(tmp_path, password, database, client_secret)
    (tmp_path / "run").mkdir()
    cluster = MeshCluster(
        tmp_path / "run", workers=1, arguments=write_accounts(tmp_path / "accounts.conf"),
        passwords=PASSWORDS, environment=environment,
    )  # fmt: skip
    planted = Planted(
        {
            "password of the API": password,
            "secret of an app": value,
            "database": database,
            "client secret": client_secret,
            "manager's login": PASSWORDS["manager"],
            "worker's login": PASSWORDS["worker"],
        }
    )

    try:
        asyncio.run(_play(cluster, planted, password, value))
    finally:
        cluster.stop()
    assert planted.seen == []
