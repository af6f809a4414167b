"""Backups on a real server, of an app whose groups are played by the test."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson
import pytest

from mesh.control import restoring
from mesh.control.restoring import JetStreamState
from mesh.control.snapshot import Revisioned
from mesh.errors import MeshError
from mesh.jetstream import backups, stream_positions
from mesh.jetstream.channels import delete_channels
from mesh.model import names
from mesh.model.backup import Backup, BackupRecord, PartBackup, StreamCut
from mesh.model.cluster import AppRecord, GroupForm, Skip
from mesh.plan.build import plan
from mesh.plan.rename import renamed
from tests.support.backups import IN, MID, OUT, TEXT, Mesh, manifest, mesh

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


@pytest.fixture(params=["jetstream", "path"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "shared") if request.param == "path" else "jetstream"


async def until_backed_up(have: Mesh) -> BackupRecord:
    """Group one is at In 3 and has published 4 rows; two is at Mid 2, so two are between them."""
    await have.service.deploy(TEXT, by="ada")
    await have.publish("mesh.Pair.Ins", 3)
    await have.write(MID, "one", 4, position=4)
    await have.write(OUT, "two", 2, position=2)
    await have.share("one", IN, 3)
    await have.share("two", MID, 2)
    return await have.service.backups.make("Pair", by="ada")


async def go_on(have: Mesh) -> None:
    """Events after the backup."""
    await have.publish("mesh.Pair.Ins", 2)
    await have.write(MID, "one", 2, position=6)
    await have.write(OUT, "two", 3, position=5)
    await have.share("one", IN, 5)
    await have.share("two", MID, 7)


async def test_a_restore_reads_again_what_has_come_and_puts_it_out_again(
    nats_server: NatsServer, tmp_path: Path, store: str
) -> None:
    async with mesh(nats_server, tmp_path, store) as have:
        made = await until_backed_up(have)
        assert (made.app, made.by, made.snapshots) == ("Pair", "ada", 2)
        assert made.bytes == len(b"one at 3") + len(b"two at 2")
        old = have.record.incarnation
        await go_on(have)
        done = await have.service.backups.restore("Pair", by="eve")
        new = have.record.incarnation
        assert new != old
        assert not have.record.held
        # Two of In; of Mid the two that were between the groups, and markers beside them.
        assert (done.revision, done.replays, done.snapshots) == (made.revision, True, 2)
        # The state and the positions of the backup.
        assert await have.state(new, "one") == (orjson.loads(manifest(IN, 3)), b"one at 3")
        assert await have.state(new, "two") == (orjson.loads(manifest(MID, 2)), b"two at 2")
        # The writers continue from their position at the cut; the old ones are refused.
        assert await have.marker(MID, f"{new}-one-0") == {"position": 4, "epoch": -1}
        assert await have.marker(OUT, f"{new}-two-0") == {"position": 2, "epoch": -1}
        assert (await have.marker(MID, f"{old}-one-0"))["epoch"] > 2**50
        # Later output of group one is void; In is the client's.
        (skip,) = have.record.skips
        assert (skip.js_stream, skip.after) == (MID, 5)
        state = await stream_positions.state(have.client, MID)
        assert state is not None
        assert skip.to == state.last


async def test_without_replay_it_goes_on_with_what_comes_next(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with mesh(nats_server, tmp_path, "jetstream") as have:
        await until_backed_up(have)
        await go_on(have)
        done = await have.service.backups.restore("Pair", replay=False)
        assert not done.replays
        found, data = await have.state(have.record.incarnation, "one")
        assert (found["position"], data) == ([[IN, 5, 5]], b"one at 3")
        assert have.record.skips == ()


async def test_another_app_gets_the_state_and_channels_of_its_own(
    nats_server: NatsServer, tmp_path: Path, store: str
) -> None:
    async with mesh(nats_server, tmp_path, store) as have:
        await until_backed_up(have)
        done = await have.service.backups.restore("Pair", other="Twin", by="eve")
        assert (done.app, done.replays) == ("Twin", False)
        twin = have.view.snapshot().app("Twin")
        assert twin is not None
        assert "@App:name('Twin')" in twin.value.spec.text
        found, data = await have.state(twin.value.incarnation, "two")
        assert (found["position"], data) == ([["mesh-Twin-Mid", 0, 5]], b"two at 2")
        with pytest.raises(MeshError, match="there already"):
            await have.service.backups.restore("Pair", other="Twin")


async def test_a_backup_outlives_its_app(
    nats_server: NatsServer, tmp_path: Path, store: str
) -> None:
    async with mesh(nats_server, tmp_path, store) as have:
        made = await until_backed_up(have)
        key = names.app_key("Pair")
        await delete_channels(have.client.jetstream(), have.record.spec)
        revision = await have.client.jetstream().publish(
            f"$KV.{names.APPS_BUCKET}.{key}", b"", headers={"KV-Operation": "DEL"}
        )
        have.view.took_write(names.APPS_BUCKET, key, None, revision.seq)
        assert await have.service.backups.list_all("Pair") == [made]
        with pytest.raises(MeshError, match="A410"):
            await have.service.backups.restore("Pair")
        await have.service.backups.restore("Pair", replay=False)
        found, data = await have.state(have.record.incarnation, "one")
        assert (found["position"], data) == ([[IN, 0, 5]], b"one at 3")


async def test_a_restore_takes_back_what_an_edit_has_added(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with mesh(nats_server, tmp_path, "jetstream") as have:
        await until_backed_up(have)
        had = have.record.spec
        more = "@dist(execGroup='three') from Outs select a insert into More;"
        done = await have.service.update(f"{TEXT}{more}")
        assert done.edited
        assert have.record.spec.group("three") is not None
        await have.service.backups.restore("Pair")
        assert have.record.spec == had
        retired = have.record.retired
        assert retired is not None
        assert [channel.stream.name for channel in retired.channels] == ["More"]
        assert (retired.groups, retired.removing) == (("three",), False)


async def test_no_backup_is_made_of_an_app_that_is_changing(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mesh.manager.backups.STOP_S", 0.0)

    async with mesh(nats_server, tmp_path, "jetstream") as have:
        await have.service.deploy(TEXT)
        record = have.record
        group = record.spec.groups[0]
        old = GroupForm("Pair", group.name, record.incarnation, replace(group, parallel=2), 0)
        key = names.form_key("Pair", group.name)
        have.view.took_write(names.CONTROL_BUCKET, key, old, 1)
        with pytest.raises(MeshError, match="is changing"):
            await have.service.backups.make("Pair")
        have.view.took_write(names.CONTROL_BUCKET, key, replace(old, spec=group), 2)
        assert (await have.service.backups.make("Pair")).app == "Pair"


async def test_nothing_is_left_of_a_backup_of_an_app_that_changed_meanwhile(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with mesh(nats_server, tmp_path, "jetstream") as have:
        made = await until_backed_up(have)
        with pytest.raises(MeshError, match="was changed while"):
            await backups.make(
                have.client, have.pieces, have.record, made.at_ms + 1, "", lambda: False
            )
        assert await have.service.backups.list_all("Pair") == [made]


def test_a_group_that_was_scaled_begins_where_its_form_does() -> None:
    spec = plan(TEXT).spec
    record = AppRecord(
        replace(spec, groups=(replace(spec.groups[0], starts={IN: 1, MID: 2}),)), "i", 0
    )
    form = GroupForm("Pair", "one", "i", record.spec.groups[0], 1, start={IN: 9})
    other = replace(form, app_incarnation="earlier", start={IN: 99})
    seen = [Revisioned(one, 1, 0.0) for one in (form, other)]
    (group,) = restoring.with_start_positions_of(record, seen).spec.groups
    assert group.starts == {IN: 9, MID: 2}


async def test_so_many_are_kept_and_each_can_be_deleted(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with mesh(nats_server, tmp_path, "jetstream") as have:
        calls = have.service.backups
        made = [await until_backed_up(have), await calls.make("Pair"), await calls.make("Pair")]
        assert await calls.list_all("Pair") == made[1:]
        with pytest.raises(MeshError, match="A404"):
            await calls.restore("Pair", revision=made[0].revision)
        with pytest.raises(MeshError, match="A404"):
            await calls.restore("Pair", before_ms=made[0].at_ms - 1)
        assert await calls.delete("Pair", made[1].revision) == 1
        with pytest.raises(MeshError, match="A404"):
            await calls.delete("Pair", made[1].revision)
        await calls.restore("Pair", before_ms=made[2].at_ms)
        assert await calls.delete("Pair", None) == 1
        js = have.client.jetstream()
        assert (await js.stream_info(f"KV_{names.BACKUPS_BUCKET}")).state.messages == 0
        with pytest.raises(MeshError, match="A404"):
            await calls.list_all("Nobody")


def backup(*cuts_: StreamCut) -> Backup:
    spec = plan(TEXT).spec
    parts = (
        PartBackup("one", "0", manifest(IN, 3), {}),
        PartBackup("two", "0", manifest(MID, 2), {}),
    )
    return Backup("r1", AppRecord(spec, "i1", 0, skips=(Skip(MID, 0, 1),)), parts, cuts_)


CUTS = (StreamCut(IN, 7, 3, {}), StreamCut(MID, 7, 5, {}), StreamCut(OUT, 7, 3, {}))


def test_gaps_in_what_has_come_since_are_named() -> None:
    def gaps(**changed: JetStreamState | None) -> list[str]:
        whole = {
            IN: JetStreamState(7, 1, 9),
            MID: JetStreamState(7, 1, 9),
            OUT: JetStreamState(7, 9, 9),
        }
        states = {**whole, **{f"mesh-Pair-{name}": state for name, state in changed.items()}}
        return restoring.gaps(backup(*CUTS), {n: s for n, s in states.items() if s is not None})

    assert gaps() == []
    assert gaps(Ins=JetStreamState(7, 4, 9)) == []
    assert gaps(Ins=JetStreamState(7, 6, 9)) == [f"{IN} has lost messages 4 to 5"]
    assert gaps(Mid=JetStreamState(8, 1, 9)) == [f"{MID} was created again since"]
    assert gaps(Mid=None) == [f"{MID} is gone"]


def test_only_what_the_app_itself_put_between_its_groups_is_passed_over() -> None:
    states = {
        IN: JetStreamState(7, 1, 9),
        MID: JetStreamState(7, 1, 8),
        OUT: JetStreamState(7, 1, 9),
    }
    assert restoring.skips(backup(*CUTS), states) == (Skip(MID, 0, 1), Skip(MID, 5, 8))
    # 4 to 9 of In, 3 to 5 of Mid.
    assert restoring.messages_to_replay(backup(*CUTS), states) == 6 + 6 - 3


def test_a_text_is_planned_under_another_name() -> None:
    spec = renamed(plan(TEXT).spec, "Twin")
    assert (spec.name, [group.app for group in spec.groups]) == ("Twin", ["Twin", "Twin"])
    with pytest.raises(MeshError, match="P102"):
        renamed(plan(TEXT).spec, ".name")
