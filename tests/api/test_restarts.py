"""A manager that is stopped while a client waits for its answer, and started again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mesh.api.server import ApiServer, listen
from mesh.client import Client, ClientContext
from tests.support.api import OPEN, TEXT, FakeService

if TYPE_CHECKING:
    from collections.abc import Callable

STATUS = "/siddhi-apps/Shop/status?wait=running&timeout=60"


class Waited(FakeService):
    """Says when somebody waits for its app."""

    def __init__(self) -> None:
        super().__init__(texts={"Shop": TEXT})
        self.waits = asyncio.Event()

    async def wait_running(self, app: str, timeout_s: float) -> dict[str, str]:
        self.waits.set()
        return await super().wait_running(app, timeout_s)


async def _play(ask: Callable[[str], Any], *, is_back: bool) -> Any:
    """The answer to ``ask``, given a URL, whose server stops meanwhile, and is back if so told."""
    service = Waited()
    api = ApiServer(service.as_manager, OPEN, listen(OPEN))
    serving = asyncio.create_task(api.run())
    asked = asyncio.create_task(asyncio.to_thread(ask, api.url))
    await service.waits.wait()
    port = int(api.url.rpartition(":")[2])
    api.stop()
    await serving
    if is_back:
        again = Waited()
        again.runs.set()
        settings = replace(OPEN, port=port)
        api = ApiServer(again.as_manager, settings, listen(settings))
        serving = asyncio.create_task(api.run())
    answer = await asked
    api.stop()
    await serving
    return answer


@pytest.mark.slow
def test_a_request_that_a_stop_cuts_short_gets_an_answer() -> None:
    def ask(url: str) -> httpx.Response:
        return httpx.get(url + STATUS, timeout=60)

    answer = asyncio.run(_play(ask, is_back=False))
    assert answer.status_code == 503
    assert answer.json()["code"] == "MESH-A503"
    assert answer.headers["retry-after"] == "1"


@pytest.mark.slow
def test_a_command_that_waits_for_an_app_asks_the_manager_again() -> None:
    def ask(url: str) -> Any:
        with Client(ClientContext(url)) as client:
            return client.wait_running("Shop", 60)

    assert asyncio.run(_play(ask, is_back=True))["state"] == "running"


async def test_a_command_waits_for_longer_than_one_request() -> None:
    class Slow(FakeService):
        """Has an app that runs when it is asked for the fourth time."""

        asked = 0

        async def wait_running(self, app: str, timeout_s: float) -> dict[str, str]:
            self.asked += 1
            if self.asked == 4:
                self.runs.set()
            return await super().wait_running(app, timeout_s)

    api = ApiServer(Slow(texts={"Shop": TEXT}).as_manager, OPEN, listen(OPEN))
    serving = asyncio.create_task(api.run())
    with Client(ClientContext(api.url)) as client:
        client.poll_s = 0.01
        # More than the API takes in one request.
        found = await asyncio.to_thread(client.wait_running, "Shop", 600)
    api.stop()
    await serving
    assert found["state"] == "running"
