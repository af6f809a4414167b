"""Restores beside other writers of the app's record: nobody's write is replaced."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mesh.control import restoring
from mesh.errors import MeshError
from mesh.manager.backups import Backups
from mesh.model import names
from mesh.model.backup import BackupRecord
from pyspark_nats.errors import StaleWriterError
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.sink import messages_out, publish
from pyspark_nats.sink.sink_options import sink_options
from tests.support.backups import TEXT, Mesh, mesh

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


async def backed_up(have: Mesh) -> None:
    await have.service.deploy(TEXT)
    await have.share("one", "mesh-Pair-Ins", 0)
    await have.service.backups.make("Pair")


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, do: Callable[[], Awaitable[object]], *, fails: bool = False
) -> None:
    """Let ``do`` happen while the first restore waits for the instances, which may fail then."""
    waits = [True]

    async def wait_stopped(self: Backups, app: str) -> None:
        if waits.pop():
            waits.append(False)
            await do()
            if fails:
                raise MeshError("MESH-S120", "the store is away")
        else:
            waits.append(False)

    monkeypatch.setattr(Backups, "_wait_stopped", wait_stopped)


async def snapshots(have: Mesh) -> set[str]:
    """Incarnations that have snapshots."""
    stream = f"KV_{names.SNAPSHOTS_BUCKET}"
    info = await have.client.jetstream().stream_info(stream, subjects_filter=">")
    return {subject.split(".")[2] for subject in info.state.subjects or {}}


@pytest.mark.parametrize("fails", [False, True])
async def test_an_undeploy_during_a_restore_counts(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    async with mesh(nats_server, tmp_path, "jetstream") as have:
        await backed_up(have)
        old = have.record.incarnation
        meanwhile(monkeypatch, lambda: have.service.undeploy("Pair"), fails=fails)
        with pytest.raises(MeshError, match="S120" if fails else "A409"):
            await have.service.backups.restore("Pair")
        assert have.record.deleting
        assert await snapshots(have) == {old}


@pytest.mark.parametrize("fails", [False, True])
async def test_of_two_restores_the_later_counts(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    async with mesh(nats_server, tmp_path, "jetstream") as have:
        await backed_up(have)
        old = have.record.incarnation
        meanwhile(monkeypatch, lambda: have.service.backups.restore("Pair"), fails=fails)
        with pytest.raises(MeshError, match="S120" if fails else "A409"):
            await have.service.backups.restore("Pair")
        assert not have.record.held
        assert have.record.incarnation != old
        assert await snapshots(have) == {have.record.incarnation}


async def test_a_restore_that_fails_alone_leaves_the_app_as_it_was(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mesh(nats_server, tmp_path, "jetstream") as have:
        await backed_up(have)
        before = have.record
        meanwhile(monkeypatch, lambda: asyncio.sleep(0), fails=True)
        with pytest.raises(MeshError, match="S120"):
            await have.service.backups.restore("Pair")
        assert have.record == before


async def test_an_app_that_is_deployed_meanwhile_is_not_replaced(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mesh.jetstream import backups

    restore = backups.restore_snapshots

    async with mesh(nats_server, tmp_path, "jetstream") as have:
        await backed_up(have)
        old = have.record.incarnation

        async def deploy_first(*arguments: object) -> None:
            await restore(*arguments)  # type: ignore[arg-type]  # as it was called
            await have.service.deploy(TEXT.replace("'Pair'", "'Twin'"))

        monkeypatch.setattr(backups, "restore_snapshots", deploy_first)
        with pytest.raises(MeshError, match="A409"):
            await have.service.backups.restore("Pair", other="Twin")
        twin = have.view.snapshot().app("Twin")
        assert twin is not None
        assert "length(2)" in twin.value.spec.text
        assert await snapshots(have) == {old}


async def test_a_writer_that_has_not_written_yet_is_refused_after_a_restore(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    given = {"servers": nats_server.url}

    async with mesh(nats_server, tmp_path, "jetstream") as have:
        await backed_up(have)
        pair = "mesh-Pair-Mid", f"{have.record.incarnation}-one-0"
        rows = messages_out.with_schema_columns(
            pa.record_batch({"data": pa.array([b"{}"], pa.binary())}),
            stream=pair[0], subject="mesh.Pair.Mid", producer=pair[1], first_position=0,
        )  # fmt: skip
        with Connection(connection_options(given)) as connection:
            # Its worker is paused between this and its first write.
            late = publish.RowPublisher(connection, sink_options({**given, "epoch": "5"}))
            assert await asyncio.to_thread(late.out, pair, 0) == -1
            await have.service.backups.restore("Pair")
            with pytest.raises(StaleWriterError):
                await asyncio.to_thread(late.write, rows)


async def test_no_app_is_scaled_while_it_is_restored(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mesh(nats_server, tmp_path, "jetstream") as have:
        await backed_up(have)

        async def scale() -> None:
            with pytest.raises(MeshError, match="A409"):
                await have.service.scale("Pair", "one", 1)

        meanwhile(monkeypatch, scale)
        await have.service.backups.restore("Pair")
        assert not have.record.held


def test_the_new_backup_is_kept_whatever_other_clocks_say() -> None:
    def record(revision: str) -> BackupRecord:
        return BackupRecord("A", revision, 0, "", 1, 1)

    made, *others = map(record, ("r5", "r1", "r7", "r8"))
    known = sorted([made, *others], key=lambda one: one.revision)
    assert [one.revision for one in restoring.superseded(known, made, 2)] == ["r1", "r7"]
    assert [one.revision for one in restoring.superseded(known, made, 1)] == ["r1", "r7", "r8"]
    assert restoring.superseded(known, made, 0) == ()
    assert list(restoring.superseded([made], made, 2)) == []
