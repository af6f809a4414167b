"""State restored from a backup, and taken over by a standby: every row of a counting app."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from mesh.control.restoring import snapshot_positions
from mesh.jetstream import backups
from tests.support.scenes import calm

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.control.lifecycle import InstanceView
    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(280)]

APP = """@App:name('{name}')
define stream Numbers (n long);
@dist(execGroup='one', standby='1') from Numbers select n, count() as seen insert into Middle;
@dist(execGroup='two') from Middle select n, seen, sum(n) as total insert into Sums;
@dist(execGroup='three') from Sums[n > 0] select n, seen, total insert into Totals;
"""


async def publish(view: MeshClusterView, app: str, first: int, last: int) -> None:
    await asyncio.gather(
        *(
            view.js.publish(f"mesh.{app}.Numbers", json.dumps({"n": n}).encode())
            for n in range(first, last + 1)
        )
    )


def totals(first: int, last: int) -> list[tuple[int, int, int]]:
    """(n, seen, total) where n counts up from 1."""
    return [(n, n, n * (n + 1) // 2) for n in range(first, last + 1)]


async def rows(view: MeshClusterView, app: str, count: int) -> list[tuple[int, int, int]]:
    """All output rows, once there are ``count``."""

    async def are_there() -> bool:
        return await view.count(f"mesh-{app}-Totals", f"mesh.{app}.Totals") >= count

    await view.until(f"{count} rows of {app}", are_there)
    found = [
        json.loads(m.data) for m in await view.messages(f"mesh-{app}-Totals", f"mesh.{app}.Totals")
    ]
    return [(row["n"], row["seen"], row["total"]) for row in found]


async def restored(view: MeshClusterView) -> None:
    calls = view.service.backups
    await view.service.deploy(APP.format(name="Back"))
    await view.until_running("Back")
    await publish(view, "Back", 1, 500)
    assert await rows(view, "Back", 500) == totals(1, 500)

    async def is_whole() -> bool:
        made = await calls.make("Back")
        backup = await backups.read(calls._pieces, made)
        read = [
            place for part in backup.parts for place in snapshot_positions(part.manifest).items()
        ]
        # A marker after the last event changes no state, so no snapshot has to be beyond it.
        subjects = {s: f"mesh.Back.{s.removeprefix('mesh-Back-')}" for s, _ in read}
        last = {s: (await view.js.get_last_msg(s, subjects[s])).seq or 0 for s in subjects}
        return made.snapshots == 3 and all(n >= last[stream] for stream, n in read)

    # Instances share snapshots of all that they have done within seconds.
    await view.until("a backup of all groups as they are", is_whole)
    await publish(view, "Back", 501, 900)
    assert await rows(view, "Back", 900) == totals(1, 900)

    done = await calls.restore("Back")
    assert done.replays
    await view.until_running("Back")
    again = [*totals(1, 900), *totals(501, 900)]
    assert await rows(view, "Back", len(again)) == again
    await publish(view, "Back", 901, 950)
    after = [*again, *totals(901, 950)]
    assert await rows(view, "Back", len(after)) == after

    await calls.restore("Back", other="Twin")
    await view.until_running("Twin")
    await publish(view, "Twin", 501, 520)
    assert await rows(view, "Twin", 20) == totals(501, 520)
    for app in ("Back", "Twin"):
        await view.service.undeploy(app)


async def one(view: MeshClusterView, app: str) -> InstanceView:
    status = await view.service.status(app)
    return next(i for i in status.instances if i.instance == f"{app}-one-1")


async def taken_over(view: MeshClusterView) -> None:
    await view.service.deploy(APP.format(name="Ready"))
    await view.until_running("Ready")
    await publish(view, "Ready", 1, 500)
    await rows(view, "Ready", 500)

    async def is_held() -> bool:
        return (await one(view, "Ready")).standby_snapshots == 1

    await view.until("the standby holds the state", is_held)
    before = await one(view, "Ready")
    assert before.worker is not None
    assert before.standby not in (None, before.worker)
    view.cluster.kill(before.worker)
    await publish(view, "Ready", 501, 900)
    assert await rows(view, "Ready", 900) == totals(1, 900)
    assert (await one(view, "Ready")).worker == before.standby
    view.cluster.start_worker(before.worker)
    await view.service.undeploy("Ready")


@pytest.mark.extended
@calm
async def test_a_restored_app_goes_back_and_puts_out_again(view: MeshClusterView) -> None:
    await restored(view)


@pytest.mark.extended
def test_a_standby_takes_over_and_counts_go_on(play: Callable[..., None]) -> None:
    play(taken_over)
