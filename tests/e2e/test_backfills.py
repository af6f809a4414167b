"""An app of three stages with a past, on workers whose session is killed as soon as it runs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mesh.clock import SystemClock
from mesh.manager.service import ManagerService
from mesh.model import names
from mesh.model.history import HistoryInput
from mesh.settings import ManagerSettings, Settings
from tests.manager.test_fork_stages import TEXT
from tests.support.events import row_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tools.cluster import MeshClusterView

pytestmark = [
    pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.extended,
    pytest.mark.timeout(400),
]  # fmt: skip

PAST, COUNT, START_MS = 80, 120, 1_700_000_000_000
_DRAW = random.Random(24)
#: The last two make a row that no others make.
NUMBERS = [*(_DRAW.randrange(1, 40) for _ in range(COUNT)), 999, 1000]
END = [999, 1000]


def stages(name: str) -> str:
    return TEXT.replace("'Pair'", f"'{name}'")


async def publish(view: MeshClusterView, app: str, first: int, last: int) -> None:
    for number in range(first, last):
        headers = {names.EVENT_TIME_HEADER: str(START_MS + 10 * number)}
        data = b'{"n":%d}' % NUMBERS[number]
        await view.js.publish(f"mesh.{app}.Numbers", data, headers=headers)


async def shown(view: MeshClusterView) -> tuple[list[list[object]], list[list[object]]]:
    """The rows of the last stage of both apps, once the last event has left both."""
    found: list[list[list[object]]] = []

    async def are_there() -> bool:
        found[:] = [await row_values(view, app, "Shown", 0) for app in ("Live", "Late")]
        counts = [sum(row[:2] == END for row in rows) for rows in found]
        return counts[0] == counts[1] > 0

    await view.until("the last rows of both", are_there)
    return found[0], found[1]


def parquet(root: Path, numbers: Sequence[int]) -> None:
    root.mkdir()
    table = pa.table({"n": numbers, "at": [START_MS + 10 * n for n in range(len(numbers))]})
    pq.write_table(table, root / "old.parquet")


def test_an_app_with_a_past_continues_after_a_kill_as_one_that_was_there(
    play: Callable[..., None], tmp_path: Path
) -> None:
    parquet(tmp_path / "files", NUMBERS[:PAST])

    async def scene(view: MeshClusterView) -> None:
        manager = ManagerSettings(history_dir=str(tmp_path / "files"))
        given = Settings(nats=view.cluster.settings("manager"), manager=manager)
        service = ManagerService(view.client, view.view, given, SystemClock())
        await view.service.deploy(stages("Live"))
        await publish(view, "Live", 0, len(NUMBERS))
        done = await service.backfills.backfill(
            stages("Late"), [HistoryInput("Numbers", "old.parquet", "at")]
        )
        assert (done.rows, done.failed) == (PAST, 0)
        await view.until_running("Late")
        placed = {a.value.instance: a.value.worker for a in view.view.snapshot().assignments}
        # Its groups have stored no state of their own yet.
        view.cluster.kill_session(placed["Late-summed-1"])
        await publish(view, "Late", PAST, len(NUMBERS))
        whole, after = await shown(view)
        assert 20 < len(after) < len(whole) - 20
        assert after == whole[-len(after) :]
        for app in ("Live", "Late"):
            await view.service.undeploy(app)

    play(scene)
