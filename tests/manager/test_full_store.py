"""A store of JetStream that is full to the last byte: managers say why none leads."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from nats.js.errors import APIError

from mesh.errors import MeshError
from mesh.jetstream import connection, server
from mesh.manager.manager import running
from mesh.settings import ManagerSettings, NatsSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.manager.manager import Manager

APP = "@App:name('Full') define stream S (k long); from S select k insert into T;"


@pytest.fixture
def small_store(tmp_path: Path) -> Iterator[NatsServer]:
    path = tmp_path / "small.conf"
    path.write_text("jetstream { max_file_store: 100MB }", "utf-8")
    made = server.start(tmp_path / "nats", arguments=["-c", str(path)])
    yield made
    made.stop()


async def _until(manager: Manager, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await manager.view.changed(manager.view.version, 0.1)


@pytest.mark.slow
@pytest.mark.nats
async def test_a_full_store_is_named_as_the_reason_and_managers_lead_again_after_it(
    small_store: NatsServer,
) -> None:
    settings = Settings(
        nats=NatsSettings(url=small_store.url),
        manager=ManagerSettings(id="m1", audit_bytes=1_000_000),
    )
    async with running(settings) as (manager, service):
        await _until(manager, lambda: manager.leads)
        js = manager.client.jetstream()
        await js.add_stream(name="filler", subjects=["filler"])
        for size in (1_000_000, 1_000, 1):
            with contextlib.suppress(APIError):
                while True:
                    await js.publish("filler", bytes(size))
        await _until(manager, lambda: not manager.leads)
        reason = "JetStream has no room: insufficient resources"
        assert reason in service.unready_reasons()
        assert reason in [problem.cause for problem in (await service.overview()).problems]
        with pytest.raises(MeshError, match=reason) as refused:
            await service.deploy(APP)
        assert refused.value.code == "MESH-A503"
        assert "max_file_store" in (refused.value.hint or "")
        await js.delete_stream("filler")
        await _until(manager, lambda: manager.leads)
        assert service.unready_reasons() == ()


def test_other_refusals_are_not_for_want_of_room() -> None:
    assert not connection.no_room(TimeoutError())
    assert not connection.no_room(APIError(code=503, err_code=10008, description="no leader"))
