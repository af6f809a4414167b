"""Deploys that fail or are overtaken leave no streams; plans that NATS can't store are refused."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from nats.js.api import StreamConfig

from mesh.control.lifecycle import AppState
from mesh.errors import MeshError
from mesh.jetstream import channels
from mesh.manager import deployments
from mesh.manager.manager import running
from mesh.model import names
from mesh.model.cluster import AppRecord
from mesh.plan.build import plan
from mesh.settings import ManagerSettings, NatsSettings, Settings
from tests.support.load import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mesh.jetstream.server import NatsServer
    from mesh.manager.manager import Manager
    from mesh.manager.service import ManagerService
    from mesh.model.app import AppSpec


def text(*streams: str) -> str:
    """App A with a query into each of these streams."""
    queries = " ".join(
        f"@dist(execGroup='{one}') from S select a insert into {one};" for one in streams
    )
    return f"@App:name('A') define stream S (a int); {queries}"


@asynccontextmanager
async def manager_on(
    nats_server: NatsServer, name: str = "m1"
) -> AsyncIterator[tuple[Manager, ManagerService]]:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id=name))
    async with running(settings) as (manager, service):
        yield manager, service


async def streams_of_a(manager: Manager) -> list[str]:
    found = await manager.client.jetstream().streams_info()
    names = (str(one.config.name) for one in found)
    return sorted(name.removeprefix("mesh-A-") for name in names if name.startswith("mesh-A-"))


def records_of(service: ManagerService) -> list[AppRecord]:
    """The records that it writes from now on; the leader changes them as soon as they are there."""
    real, written = service.desired.write, []

    async def write(key: str, record: Any, revision: int | None = None) -> int:
        written.append(record)
        return await real(key, record, revision)

    service.desired.write = write  # type: ignore[method-assign]
    return written


async def until_removed(manager: Manager, service: ManagerService) -> None:
    while service.record("A") is not None:
        await manager.view.changed(manager.view.version, 5.0)


@pytest.mark.parametrize("is_edit", [False, True])
async def test_a_plan_that_nats_can_not_store_is_refused_and_makes_no_stream(
    nats_server: NatsServer, is_edit: bool
) -> None:
    async with manager_on(nats_server) as (manager, service):
        if is_edit:
            await service.deploy(text("T"))
        before = await streams_of_a(manager)
        # As if the server had announced so in its greeting.
        manager.client._max_payload = 6000
        names = ("T", *(f"T{n}" for n in range(40)))
        with pytest.raises(MeshError, match="MESH-A413"):
            await service.update(text(*names))
        assert await streams_of_a(manager) == before
        assert (service.record("A") is None) is not is_edit


async def test_a_deploy_whose_channels_can_not_be_made_leaves_none(nats_server: NatsServer) -> None:
    async with manager_on(nats_server) as (manager, service):
        js = manager.client.jetstream()
        await js.add_stream(StreamConfig("other", subjects=["mesh.A.U"]))
        with pytest.raises(MeshError, match="MESH-N120"):
            await service.deploy(text("T", "U"))
        await until_removed(manager, service)
        assert await streams_of_a(manager) == []
        await js.delete_stream("other")
        assert (await service.deploy(text("T", "U"))).is_new
        assert await streams_of_a(manager) == ["S", "T", "U", "errors-"]


async def test_a_record_that_can_not_be_read_says_so_and_a_deleted_one_frees_its_name(
    nats_server: NatsServer,
) -> None:
    async with manager_on(nats_server) as (manager, service):
        bucket = await manager.client.jetstream().key_value(names.APPS_BUCKET)
        key = names.app_key("A")
        await bucket.put(key, b'{"spec": 1}')

        async def is_seen() -> bool:
            return bool(manager.view.unreadable)

        async def is_gone() -> bool:
            return not manager.view.unreadable

        await until(is_seen)
        for attempt in (service.deploy(text("T")), service.undeploy("A")):
            with pytest.raises(MeshError, match="is unreadable") as raised:
                await attempt
            assert raised.value.code == "MESH-A409"
            assert f"nats kv del {names.APPS_BUCKET} {key}" in (raised.value.hint or "")
        await bucket.delete(key)
        await until(is_gone)
        await service.deploy(text("T"))


def test_a_stream_that_can_not_be_made_has_the_hint_of_its_reason() -> None:
    assert "reserves" in (channels.hint_of(10047) or "")
    assert "nats stream ls" in (channels.hint_of(10065) or "")
    assert channels.hint_of(10025) is None


async def test_a_deploy_that_waits_overtakes_no_other(nats_server: NatsServer) -> None:
    async with (
        manager_on(nats_server) as (manager, one),
        manager_on(nats_server, "m2") as (slow, two),
    ):

        async def other_is_deployed(_: AppSpec) -> None:
            await one.deploy(text("T"))
            while two.record("A") is None:
                await slow.view.changed(slow.view.version, 5.0)

        two.deployments.history_of = other_is_deployed
        with pytest.raises(MeshError, match="MESH-A409"):
            await two.deploy(text("U"))
        assert await streams_of_a(manager) == ["S", "T", "errors-"]


async def test_one_of_two_deploys_makes_channels(nats_server: NatsServer) -> None:
    async with manager_on(nats_server) as (manager, one), manager_on(nats_server, "m2") as (_, two):
        done = await asyncio.gather(
            one.deploy(text("T")), two.deploy(text("U")), return_exceptions=True
        )
        refused = [error for error in done if isinstance(error, MeshError)]
        assert [error.code for error in refused] == ["MESH-A409"]
        stream = "U" if isinstance(done[0], MeshError) else "T"
        assert await streams_of_a(manager) == ["S", stream, "errors-"]


async def test_an_app_that_is_undeployed_while_its_channels_are_made_leaves_none(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with manager_on(nats_server) as (manager, service):
        real = channels.ensure_channels

        async def interrupted(*arguments: Any) -> None:
            status = await service.status("A")
            assert (status.state, status.reason) == (AppState.STARTING, deployments.MAKING)
            await service.undeploy("A", by="bob")
            await until_removed(manager, service)
            await real(*arguments)

        monkeypatch.setattr(channels, "ensure_channels", interrupted)
        with pytest.raises(MeshError, match="MESH-A409"):
            await service.deploy(text("T"))
        await until_removed(manager, service)
        assert await streams_of_a(manager) == []


async def test_an_edit_that_is_overtaken_retires_the_channels_it_has_made(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with manager_on(nats_server) as (_, service):
        await service.deploy(text("T"))
        real, calls = channels.ensure_channels, []

        async def overtaken(*arguments: Any) -> None:
            calls.append(arguments)
            await real(*arguments)
            if len(calls) == 1:
                await service.update(text("T", "V"))

        monkeypatch.setattr(channels, "ensure_channels", overtaken)
        written = records_of(service)
        with pytest.raises(MeshError, match="MESH-A409"):
            await service.update(text("T", "U"))
        record = written[-1]
        assert {c.stream.name for c in record.spec.channels} == {"S", "T", "V"}
        assert record.retired is not None
        assert [c.stream.name for c in record.retired.channels] == ["U"]


async def test_a_deploy_completes_one_whose_manager_died(nats_server: NatsServer) -> None:
    async with manager_on(nats_server) as (_, service):
        service.deployments.undeploy_s = 0.0
        left = AppRecord(plan(text("T")).spec, "i1", 0, held="made", making=True)
        await service.desired.write_app(left)
        written = records_of(service)
        assert (await service.update(text("U"))).is_new
        record = written[-1]
        assert (record.making, record.held) == (False, "")
        assert record.incarnation != "i1"
        assert record.retired is not None
        assert [c.stream.name for c in record.retired.channels] == ["T"]
        assert record.retired.groups == ("T",)
