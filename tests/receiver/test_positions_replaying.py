"""Replays of payloads that were refused, through the mapper of their source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.connect.contract import NodeAccess
from mesh.errors import MeshError
from mesh.jetstream import failed
from tests.support.connectors import staged
from tests.support.source_apps import APP, file_app

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats


async def test_a_line_that_was_not_read_is_replayed_to_the_mapper(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("a,x\n")

    access = NodeAccess(file_roots=(str(tmp_path),))
    async with staged(nats_server, file_app(tmp_path), access) as stage:
        stage.start("receiver-S")
        (entry,) = await stage.until("the entry", stage.errors)
        entry["id"] = 1
        with pytest.raises(MeshError, match="refused again"):
            await failed.send(stage.client, "Doors", entry, None)
        for _ in range(2):
            await failed.send(stage.client, "Doors", entry, b"a,5\nb,6")
        assert [e["n"] for e in await stage.events("S")] == [5, 6]


async def test_a_replayed_payload_has_the_properties_of_the_first(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("x\n")
    source = (
        f"@source(type='file', file.uri='{tmp_path}/in.csv', file.polling.interval='10', "
        "@map(type='csv', @attributes(k='trp:File.Name', n='0')))"
    )

    text = APP.format(source, "")
    async with staged(nats_server, text, NodeAccess(file_roots=(str(tmp_path),))) as stage:
        await stage.until_running(stage.start("receiver-S"))
        (entry,) = await stage.until("the entry", stage.errors)
        assert entry["options"] == {"file.name": "in.csv"}
        await failed.send(stage.client, "Doors", {**entry, "id": 1}, b"7")
        assert await stage.events("S") == [{"k": "in.csv", "n": 7}]
