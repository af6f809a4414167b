"""On-demand queries while events arrive and the worker with the table is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import nats.errors
import pytest

from mesh.model import names
from tests.support.scenes import killed

if TYPE_CHECKING:
    from tests.support.scenes import Kill
    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

#: The table and the window count the events, so each answer shows how many it includes.
APP = """@App:name('Asked')
define stream S (k string, a int);
@PrimaryKey('k') define table Counts (k string, n long);
define window Last (k string, n long) length(3);
from S select k, count() as n insert into Numbers;
from Numbers select 'all' as k, n update or insert into Counts on Counts.k == k;
from Numbers select k, n insert into Last;
from Last select k insert into Out;
"""
STREAM = "mesh-Asked-S"
EVENTS = 600


async def ask(view: MeshClusterView, **asked: Any) -> dict[str, Any]:
    data = json.dumps(asked).encode()
    answer = await view.asker.request(names.query_subject("Asked"), data, timeout=20)
    found: dict[str, Any] = json.loads(answer.data)
    return found


async def publish(view: MeshClusterView, first: int, count: int) -> None:
    for number in range(first, first + count):
        event = json.dumps({"k": f"k{number % 5}", "a": number}).encode()
        await view.js.publish("mesh.Asked.S", event)


async def ask_always(
    view: MeshClusterView, answers: list[dict[str, Any]], took_ms: list[float]
) -> None:
    """Ask for the count, without a pause."""
    while True:
        started_s = time.monotonic()
        with contextlib.suppress(nats.errors.Error):
            answers.append(await ask(view, query="from Counts on k == 'all' select n"))
            if "records" in answers[-1]:
                took_ms.append((time.monotonic() - started_s) * 1000)


async def counted(view: MeshClusterView, events: int) -> Any:
    """The table after so many events; the first answer needs a process, others an owner."""
    refused: list[dict[str, Any]] = []

    async def rows() -> Any:
        found = await ask(view, query="from Counts", min_position={STREAM: events})
        refused.append(found)
        return found.get("records")

    try:
        return await view.until(f"{events} events counted", rows)
    except AssertionError as error:
        raise AssertionError(f"{refused[-3:]}") from error


@pytest.mark.extended
@killed
async def test_answers_are_those_of_their_positions_when_a_worker_is_killed(
    view: MeshClusterView, kill: Kill
) -> None:
    await view.service.deploy(APP)
    await view.until_running("Asked")
    (placed,) = (a.value for a in view.view.snapshot().assignments if a.value.app == "Asked")
    answers: list[dict[str, Any]] = []
    took_ms: list[float] = []
    asking = asyncio.create_task(ask_always(view, answers, took_ms))
    try:
        await view.until("a first answer", lambda: took_ms)
        await publish(view, 0, EVENTS // 2)
        assert await counted(view, EVENTS // 2) == [["all", EVENTS // 2]]
        sending = asyncio.create_task(publish(view, EVENTS // 2, EVENTS // 2))
        await kill.happens(victim=placed.worker)
        known = len(took_ms)
        await sending
        assert await counted(view, EVENTS) == [["all", EVENTS]]
        await view.until("answers after the kill", lambda: len(took_ms) > known + 20)
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    last = await ask(view, query="from Last select n order by n", min_position={STREAM: EVENTS})
    assert last["records"] == [[EVENTS - 2], [EVENTS - 1], [EVENTS]]
    right = [one for one in answers if "records" in one]
    for one in right:
        reached = one["positions"].get(STREAM, 0)
        assert one["records"] == ([[reached]] if reached else [])
    # Before the first answer, a process loads the operators; in a move the part is named.
    codes = {one["code"] for one in answers if "code" in one}
    assert codes <= {"MESH-A413", "MESH-A503", "MESH-A504"}
    took_ms.sort()
    median, high = took_ms[len(took_ms) // 2], took_ms[len(took_ms) * 99 // 100]
    print(f"{len(right)} answers: p50 {median:.1f} ms, p99 {high:.1f} ms")  # noqa: T201
