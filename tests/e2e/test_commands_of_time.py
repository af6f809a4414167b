"""Each command of time on the seed's app and on three stages, with sessions killed meanwhile.

Fork, comparison, lineage, a past from the app's own stream, promotion, verification, what-if.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from mesh.control.verification import Severity
from mesh.lineage.why import Lineage
from mesh.model import names
from mesh.model.history import HistoryInput
from mesh.testing import weather
from tests.manager.test_fork_stages import START_MS, TEXT
from tests.support.events import row_values
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tools.cluster import MeshClusterView

pytestmark = [
    pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.extended,
    pytest.mark.timeout(500),
]  # fmt: skip

#: A time, and an event of the app's input.
Event = tuple[int, dict[str, Any]]
SEED = (ROOT / "examples" / "temperature.siddhi").read_text()
PIECES = 3


@dataclass(frozen=True, slots=True)
class Case:
    """An app, the change of its text, its events in pieces, and rows that end a piece."""

    text: str
    #: Replaced in the text of the fork.
    change: tuple[str, str]
    stream: str
    pieces: Sequence[Sequence[Event]]
    #: The group that the change concerns, and its output.
    group: str
    changed: str
    #: By output stream, compared in this order: attributes of the last row of each piece.
    ends: Mapping[str, Sequence[dict[str, Any]]]

    def named(self, name: str, *, is_next: bool = False) -> str:
        text = self.text.replace(*self.change) if is_next else self.text
        return re.sub(r"@App:name\('\w+'\)", f"@App:name('{name}')", text)

    async def publish(self, view: MeshClusterView, app: str, piece: int) -> None:
        for at_ms, event in self.pieces[piece]:
            headers = {names.EVENT_TIME_HEADER: str(at_ms)}
            data = json.dumps(event).encode()
            await view.js.publish(f"mesh.{app}.{self.stream}", data, headers=headers)

    async def rows(self, view: MeshClusterView, app: str, piece: int) -> dict[str, list[list[Any]]]:
        """The rows of all outputs, once the last ones of a piece are there."""
        for stream, ends in self.ends.items():

            async def is_there(stream: str = stream, end: dict[str, Any] = ends[piece]) -> bool:
                subject = f"mesh.{app}.{stream}"
                found = await view.messages(f"mesh-{app}-{stream}", subject)
                return any(end.items() <= json.loads(one.data).items() for one in found)

            await view.until(f"the end of piece {piece} in {stream} of {app}", is_there)
        return {one: await row_values(view, app, one, 0) for one in self.ends}


def seed() -> Case:
    """Spring of the demo's year; each piece ends with two hot events of one room."""
    known = [(at, row) for at, row in weather.load().events() if row["temp"] is not None]
    pieces = []
    for number in range(PIECES):
        some = known[9000 + 60 * number : 9060 + 60 * number]
        last_ms, device, temp = some[-1][0], 9000 + 10 * number, 900.0 + 100 * number
        hot = [
            (last_ms + 1000 * n, {"deviceID": device + n, "roomNo": 105, "temp": temp + 10 * n})
            for n in (1, 2)
        ]
        pieces.append([*some, *hot])
    ends: dict[str, list[dict[str, Any]]] = {
        "AvgTempStream": [{"deviceID": 9002 + 10 * number} for number in range(PIECES)],
        "AlertStream": [{"finalTemp": 920.0 + 100 * number} for number in range(PIECES)],
        "HighTempStream": [{"temp": 920.0 + 100 * number} for number in range(PIECES)],
    }
    change = ("temp > 40", "temp > 60")
    return Case(SEED, change, "TempStream", pieces, "group-2", "HighTempStream", ends)


def stages() -> Case:
    """Numbers for the pattern, the join and the aggregation; each piece ends with a pair."""
    draw, pieces, at_ms = random.Random(24), [], START_MS
    for number in range(PIECES):
        some = [*(draw.randrange(1, 40) for _ in range(40)), 990 + 3 * number, 991 + 3 * number]
        pieces.append([(at_ms + 10 * n, {"n": value}) for n, value in enumerate(some)])
        at_ms += 1000
    ends = {"Shown": [{"x": 990 + 3 * n, "n": 991 + 3 * n} for n in range(PIECES)]}
    return Case(TEXT, ("total > 7L", "total > 60L"), "Numbers", pieces, "shown", "Shown", ends)


def worker_of(view: MeshClusterView, instance: str) -> str:
    return next(
        one.value.worker
        for one in view.view.snapshot().assignments
        if one.value.instance == instance
    )


def counted(rows: Sequence[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(map(tuple, rows))


async def compared(view: MeshClusterView, case: Case, app: str, fork: str) -> None:
    """The rows that the change drops are gone, and lineage has the same inputs for the first."""
    rows = [(await case.rows(view, one, 1))[case.changed] for one in (app, fork)]
    found = await view.service.past.compare(app, fork, [], [])
    for one in found["streams"]:
        dropped = len(rows[0]) - len(rows[1]) if one["stream"] == case.changed else 0
        assert (one["new"], one["gone"], one["changed"]) == (0, dropped, 0), one
        assert one["same"] > 0
    first = found["first"]
    assert (first["stream"], first["kind"]) == (case.changed, "gone")
    record = view.view.snapshot().app(app)
    assert record is not None
    why = await Lineage(view.client, record.value).why(case.changed, first["app"]["sequence"])
    assert why.event == first["app"]["event"]
    assert why.inputs


async def promoted(view: MeshClusterView, case: Case, app: str, fork: str) -> None:
    """The fork becomes the app, whose session is killed as soon as its group is to stop."""
    worker = worker_of(view, f"{app}-{case.group}-1")
    promoting = asyncio.create_task(view.service.promotions.promote(fork, replaces=app))
    await view.until(
        "it is told to stop",
        lambda: promoting.done() or any(a.value.stop for a in view.view.snapshot().assignments),
    )
    view.cluster.kill_session(worker)
    await promoting
    await view.until_running(app)


async def verified(view: MeshClusterView, case: Case, app: str) -> None:
    """The kills have left no fault; a stream that is deleted afterwards is one."""

    async def faults() -> list[str]:
        found = await view.service.verification.verify(app)
        return [one.kind for one in found if one.severity is Severity.FAULT]

    async def is_sound() -> bool:
        return not await faults()

    # One look at a cluster in which an instance has just moved may contradict itself.
    await view.until("no faults", is_sound)
    await view.client.jetstream().delete_stream(f"mesh-{app}-{case.changed}")
    assert "stream-missing" in await faults()


@pytest.mark.parametrize("make", [seed, stages])
def test_the_commands_of_time_with_sessions_killed(
    play: Callable[..., None], make: Callable[[], Case]
) -> None:
    case, app = make(), f"Timed{make.__name__.title()}"
    fork, late = f"{app}Next", f"{app}Late"

    async def scene(view: MeshClusterView) -> None:
        service = view.service
        await service.deploy(case.named(app))
        await view.until_running(app)
        await case.publish(view, app, 0)
        await service.forks.fork(app, fork, text=case.named(app, is_next=True), begin="start")
        await view.until_running(fork)
        asking = asyncio.create_task(service.what_ifs.what_if(case.named(app), ["100"], 10, 2))
        view.cluster.kill_session(worker_of(view, f"{fork}-{case.group}-1"))
        await case.publish(view, app, 1)
        needs = await asking
        assert case.group in {one["group"] for one in needs["groups"]}
        assert needs["cores"] == 2
        await compared(view, case, app, fork)
        before = await case.rows(view, app, 1)

        # An app of the fork's text, whose past is the app's own stream up to now.
        past = HistoryInput(case.stream, f"nats:mesh-{app}-{case.stream}", "")
        done = await service.backfills.backfill(case.named(late, is_next=True), [past])
        assert (done.rows, done.unreadable) == (sum(map(len, case.pieces[:2])), 0)
        await view.until_running(late)
        await promoted(view, case, app, fork)
        for one in (app, late):
            await case.publish(view, one, 2)
        after, control = [await case.rows(view, one, 2) for one in (app, late)]
        for stream in case.ends:
            rows, old = counted(after[stream]), counted(before[stream])
            assert not old - rows
            assert rows - old == counted(control[stream]), stream
        await verified(view, case, app)
        for one in (late, app):
            await service.undeploy(one)

    play(scene)
