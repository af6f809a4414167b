"""Promotion of a fork: the app gets its text by an edit, or a refusal says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from tests.support.backup_groups import TEXT
from tests.support.played import playing

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


async def test_a_fork_without_another_state_becomes_the_app(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with playing(nats_server, tmp_path) as (have, _):
        service = have.service
        await service.deploy(TEXT)
        text = TEXT.replace("n > 0", "n > 3").replace("'Pair'", "'Better'")
        await service.forks.fork("Pair", "Next", text=text)
        with pytest.raises(MeshError, match="not of"):
            await service.promotions.promote("Next", replaces="Other")
        with pytest.raises(MeshError, match="is no fork"):
            await service.promotions.promote("Pair")
        done = await service.promotions.promote("Next", replaces="Pair")
        assert done.changes is not None
        changes = {one["name"]: one["change"] for one in done.changes["groups"]}
        assert changes == {"one": "same", "two": "same", "three": "restarted"}
        record = have.record
        assert "n > 3" in record.spec.text
        assert record.spec.name == "Pair"
        await service.forks.fork("Pair", "Kept")
        with pytest.raises(MeshError, match="keeps its text"):
            await service.update(TEXT.replace("'Pair'", "'Kept'"))
        with pytest.raises(MeshError, match="would lose channel"):
            await service.update(TEXT.replace("Numbers", "Others"), reset=("one",))
        fork = have.view.snapshot().app("Next")
        assert fork is None or fork.value.deleting


async def test_a_fork_with_a_changed_group_before_one_with_state_is_refused(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with playing(nats_server, tmp_path) as (have, _):
        service = have.service
        await service.deploy(TEXT)
        other = TEXT.replace("length(100)", "length(50)")
        await service.forks.fork("Pair", "Next", text=other)
        with pytest.raises(MeshError) as error:
            await service.promotions.promote("Next")
        assert error.value.code == "MESH-C154"
        assert "group two: it reads what a changed group emits" in (error.value.detail or "")
        await service.forks.fork("Pair", "Ends", until="5")
        with pytest.raises(MeshError, match="it has an end"):
            await service.promotions.promote("Ends")
        assert have.record.edits == 0
