"""Requests that remove something are in the journal with their user; names hold no wildcard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.jetstream import journal
from mesh.jetstream.journal import Journal
from mesh.jetstream.watch import ClusterView
from mesh.manager.manager import running
from mesh.manager.service import ManagerService
from mesh.settings import ManagerSettings, NatsSettings, Settings, StateSettings
from tests.manager.test_backups import until_backed_up
from tests.support.backups import mesh

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

TEXT = "@App:name('A') define stream S (a int); from S[a > 1] select a insert into T;"


async def test_an_undeploy_is_journalled_with_its_user(nats_server: NatsServer) -> None:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    async with running(settings) as (manager, service):
        await service.deploy(TEXT, by="ada")
        await service.undeploy("A", by="bob")
        await manager.journal.stored()
        by = {one.text: one.by for one in await service.story("A")}
        assert by["asked for app A to be undeployed"] == "user bob"


async def test_deleted_backups_are_journalled_with_their_user_or_their_cause(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with mesh(nats_server, tmp_path, "jetstream") as have:
        notes = Journal(have.client, "manager m1", SystemClock())
        notes.start()
        settings = Settings(
            nats=NatsSettings(url=nats_server.url), state=StateSettings(backups_kept=2)
        )
        view = ClusterView(have.client, SystemClock())
        await view.start()
        service = ManagerService(have.client, view, settings, SystemClock(), notes=notes)
        made = [await until_backed_up(have)]
        made += [await service.backups.make("Pair", by="ada") for _ in range(2)]
        await service.backups.delete("Pair", made[1].revision, by="bob")
        await notes.stored()
        told = await journal.read(have.client.jetstream(), "Pair")
        found = [(one.text, one.by, one.cause) for one in told if "deleted" in one.text]
        assert found == [
            (f"deleted backup {made[0].revision} of app Pair", "manager m1",
             "state.backups_kept is 2"),
            (f"deleted backup {made[1].revision} of app Pair", "user bob", ""),
        ]  # fmt: skip
        await view.stop()
        await notes.stop()


async def test_a_wildcard_lists_and_deletes_no_backup(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with mesh(nats_server, tmp_path, "jetstream") as have:
        made = await until_backed_up(have)
        for name in ("*", ">", "Pair.>"):
            with pytest.raises(MeshError, match="A404"):
                await have.service.backups.list_all(name)
            with pytest.raises(MeshError, match="A404"):
                await have.service.backups.delete(name, None)
            with pytest.raises(MeshError, match="A404"):
                await have.service.story(name)
        assert await have.service.backups.list_all("Pair") == [made]
