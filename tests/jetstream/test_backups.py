"""Backups of a cluster that made none, and descriptions of backups that can't be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.jetstream import backups, kv
from mesh.jetstream.connection import close, connect
from mesh.model import codec, names
from mesh.model.backup import BackupRecord
from mesh.settings import NatsSettings

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


@pytest.mark.nats
async def test_an_app_of_a_cluster_without_backups_has_none(nats_server: NatsServer) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "reader")
    try:
        assert await backups.list_backups(client, "Shop") == []
    finally:
        await close(client)


@pytest.mark.nats
async def test_a_backup_whose_description_can_not_be_read_is_listed_by_its_key(
    nats_server: NatsServer,
) -> None:
    client = await connect(NatsSettings(url=nats_server.url), "reader")
    try:
        js = client.jetstream()
        await kv.ensure_bucket(js, names.BACKUPS_BUCKET, 1)
        revisions = ["20261121T213307-482", "20261122T000000-007"]
        whole = BackupRecord("Shop", revisions[0], 1795296787482, "ann", 2, 5)
        for revision in (*revisions, "of a stranger".replace(" ", "-")):
            data = codec.encode(whole)
            # A disk or a person has cut it.
            data = data if revision == revisions[0] else data[: len(data) // 2]
            key = names.backup_key("Shop", revision)
            await kv.write(js, names.BACKUPS_BUCKET, key, data, revision=0)
        assert await backups.list_backups(client, "Shop") == [
            whole,
            BackupRecord("Shop", revisions[1], 1795305600007, "", 0, 0),
        ]
    finally:
        await close(client)
