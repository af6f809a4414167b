"""Connectors with a login of their own at NATS: they work, and reach no bucket of the mesh."""

from __future__ import annotations

import base64
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from mesh.connect.contract import NodeAccess
from mesh.errors import MeshError
from mesh.jetstream import server
from mesh.jetstream.channels import ensure_channels
from mesh.jetstream.connection import close, connect
from mesh.jetstream.secret_store import SecretStore
from mesh.model import names
from mesh.model.nats_roles import NatsRole, inbox
from mesh.plan.build import plan
from mesh.plan.reads import reads_of, with_reads
from mesh.receiver.host import nats_of
from mesh.settings import ChannelSettings, NatsSettings, ReceiverSettings, Settings
from mesh.testing.connectors import Stage
from tests.support.permissions import PASSWORDS, write_accounts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

pytestmark = pytest.mark.nats

FILES = """@App:name('Files')
@source(type='file', file.uri='{0}/in', @map(type='csv'))
@source(type='inMemory', topic='t', @map(type='json'))
define stream S (k string, n int);
@sink(type='file', file.uri='{0}/out', @map(type='csv'))
@sink(type='inMemory', topic='t', @map(type='json'))
define stream T (k string, n int);
from S select k, n insert into T;
"""
BUCKET = """@App:name('Eve')
@source(type='nats', stream='{}', @map(type='json', @attributes(k='k')))
define stream S (k string); from S select k insert into T;
"""


def settings_of(url: str, role: NatsRole) -> NatsSettings:
    return NatsSettings(url, role, PASSWORDS[role], inbox_prefix=inbox(role))


@asynccontextmanager
async def guarded(directory: Path) -> AsyncIterator[tuple[Client, Client]]:
    """A server with accounts; connections of a manager and of a connector host."""
    arguments = write_accounts(directory / "accounts.conf")
    running = server.start(directory / "nats", arguments=arguments)
    clients = []
    try:
        clients.append(await connect(settings_of(running.url, NatsRole.MANAGER), "manager"))
        clients.append(await connect(settings_of(running.url, NatsRole.CONNECTOR), "connectors"))
        yield clients[0], clients[1]
    finally:
        for client in clients:
            await close(client)
        running.stop()


@asynccontextmanager
async def staged(manager: Client, host: Client, text: str, root: Path) -> AsyncIterator[Stage]:
    spec = plan(text).spec
    await ensure_channels(manager, spec, ChannelSettings())
    spec = with_reads(spec, reads_of(spec))
    stage = Stage(host, spec, NodeAccess((str(root),)))
    try:
        yield stage
    finally:
        for instance in stage.running:
            await instance.stop()


@pytest.mark.slow
async def test_sources_sinks_and_topics_need_nothing_more(tmp_path: Path) -> None:
    root = tmp_path / "open"
    root.mkdir()
    (root / "in").write_text("a,1\nb,x\n")
    async with (
        guarded(tmp_path) as (manager, host),
        staged(manager, host, FILES.format(root), root) as stage,
    ):
        for group in ("receiver-S", "receiver-S-2", "sink-T", "sink-T-2"):
            await stage.until_running(stage.start(group))
        await stage.publish("T", {"k": "c", "n": 3})

        async def is_done() -> bool:
            found = await stage.events("S")
            return {"k": "c", "n": 3} in found and {"k": "a", "n": 1} in found

        await stage.until("the events", is_done)
        await stage.until("the file", lambda: (root / "out").read_text() == "c,3\n")
        assert len(await stage.errors()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "stream", [f"KV_{names.APPS_BUCKET}", f"KV_{names.SECRETS_BUCKET}", names.JOURNAL_STREAM]
)
async def test_records_of_the_mesh_are_refused_by_the_server(tmp_path: Path, stream: str) -> None:
    """Also for an administrator's app: its group has the permission, and the login has not."""
    async with (
        guarded(tmp_path) as (manager, host),
        staged(manager, host, BUCKET.format(stream), tmp_path) as stage,
    ):
        subject = f"{names.ROOT}._journal.x"
        await manager.jetstream().add_stream(name=stream, subjects=[subject], allow_direct=True)
        await manager.publish(subject, b'{"k":"a"}')
        stage.start("receiver-S")

        def is_refused() -> bool:
            said = [r.error or "" for r in stage.reports]
            said += [d.error or "" for r in stage.reports for d in r.connectors]
            return any("timeout" in one.lower() or "permission" in one.lower() for one in said)

        await stage.until("the refusal", is_refused)
        assert await stage.events("S") == []


async def test_values_of_secrets_are_read_by_name_only(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(base64.b64encode(os.urandom(32)))
    async with guarded(tmp_path) as (manager, host):
        await SecretStore(manager.jetstream(), str(key)).put("db", "value")
        store = SecretStore(host.jetstream(), str(key))
        assert await store.values(["db"]) == {"db": "value"}
        with pytest.raises(MeshError, match="MESH-C142"):
            await store.values(["other"])


def test_a_host_has_the_login_of_connectors_if_there_is_one() -> None:
    nats = NatsSettings("nats://h", nkey_seed_file="worker.nk", inbox_prefix="_INBOX.worker")
    assert nats_of(Settings(nats=nats)) is nats
    own = nats_of(Settings(nats=nats, receiver=ReceiverSettings(nkey_seed_file="own.nk")))
    assert (own.nkey_seed_file, own.inbox_prefix) == ("own.nk", "_INBOX.connector")
