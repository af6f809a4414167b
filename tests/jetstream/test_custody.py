"""Buckets of the mesh that are deleted while it runs: named, made again, and filled again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from mesh.jetstream import custody, journal, kv
from mesh.manager.manager import running
from mesh.model import names
from mesh.settings import ManagerSettings, NatsSettings, Settings
from tests.support.agents import APP, looking

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer
    from mesh.manager.manager import Manager
    from mesh.manager.service import ManagerService
    from tests.support.agents import Cluster


async def _named(service: ManagerService) -> tuple[set[str], tuple[str, ...]]:
    found = await service.verification.verify("Two")
    return {one.where for one in found if one.kind == "bucket-missing"}, service.unready_reasons()


async def _leading(manager: Manager) -> None:
    async with asyncio.timeout(20):
        while not manager.leads:
            await manager.view.changed(manager.view.version, 0.1)


@pytest.mark.nats
@pytest.mark.parametrize("stream", custody.STREAMS)
async def test_a_deleted_bucket_is_named_and_made_again(
    nats_server: NatsServer, stream: str
) -> None:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    async with running(settings) as (manager, service):
        await _leading(manager)
        await service.deploy(APP)
        kept = service.record("Two")
        look = service.custody
        assert kept is not None
        assert look is not None
        js = manager.client.jetstream()
        await js.delete_stream(stream)
        assert (await _named(service))[0] == {stream}
        look._leads = lambda: False
        await look.look()
        if stream != custody.STREAMS[0]:
            assert any(stream in reason for reason in service.unready_reasons())
            look._leads = lambda: True
            await look.look()
        assert not await custody.missing(js)
        assert not any(stream in reason for reason in service.unready_reasons())
        await _leading(manager)
        async with asyncio.timeout(20):
            while not (await kv.last(js, names.APPS_BUCKET, names.app_key("Two")))[0]:
                await manager.view.changed(manager.view.version, 0.1)
            # Of a journal that was deleted nothing else is left.
            while not any(e.text == f"made {stream} again" for e in await journal.read(js, "Two")):
                await manager.journal.stored()
        assert service.record("Two") == kept
        assert (await _named(service))[0] == set()


@pytest.mark.nats
async def test_apps_and_reports_come_back_while_their_buckets_are_made_again(
    cluster: Cluster,
) -> None:
    cluster.manager("m1")
    cluster.worker("w1")
    async with looking(cluster) as eye:
        await eye.deploy_on("w1")
        before, js = eye.epochs(), eye.client.jetstream()
        for bucket in (names.APPS_BUCKET, names.STATUS_BUCKET):
            known = len(await kv.entries(js, bucket))
            await js.delete_stream(f"KV_{bucket}")
            # By somebody else than a manager: a worker that starts makes it as well.
            await kv.ensure_bucket(js, bucket, 1)
            async with asyncio.timeout(20):
                while len(await kv.entries(js, bucket)) < known:
                    await eye.view.changed(eye.view.version, 0.1)
        assert eye.epochs() == before
        assert (await eye.service.wait_running("Two", 20)).state == "running"
