"""A fork becomes the app under load: nothing is lost or doubled, and no key waits for long."""

from __future__ import annotations

import asyncio
import contextlib
import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.jetstream import channel_reader
from mesh.lineage.why import Lineage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mesh.model.cluster import AppRecord, Promoted
    from tools.cluster import MeshClusterView

pytestmark = [
    pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.long,
    pytest.mark.timeout(400),
]  # fmt: skip

KEYS, PIECE = 13, 500
TEXT = """@App:name('{name}')
define stream Feed (k string, n long);
@dist(execGroup='sums')
from Feed#window.length(3) select k, n, sum(n) as t insert into Sums;
@dist(execGroup='alarms') from Sums[n % 2 == 0] select k, n, t insert into Alarms;
"""


@contextlib.asynccontextmanager
async def load(view: MeshClusterView, app: str, rate: int) -> AsyncIterator[list[int]]:
    """Events for stream Feed of ``app``, ``rate`` a second; the list has the number sent."""
    sent, done = [0], asyncio.Event()

    async def publish() -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while not done.is_set():
            events = [
                b'{"k":"key-%d","n":%d}' % (n % KEYS, n) for n in range(sent[0], sent[0] + PIECE)
            ]
            data = b"[" + b",".join(events) + b"]"
            await view.js.publish(f"mesh.{app}.Feed", data, timeout=10)
            sent[0] += PIECE
            due_s += PIECE / rate
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), max(0.0, due_s - loop.time()))

    publishing = asyncio.create_task(publish())
    try:
        yield sent
    finally:
        done.set()
        await publishing


async def flow(view: MeshClusterView, sent: list[int], count: int) -> None:
    """Until so many more have been published."""
    wanted = sent[0] + count
    await view.until("more events", lambda: sent[0] >= wanted)


async def promoted(view: MeshClusterView, rate: int, *, is_killed: bool) -> float:
    """Promote a fork under load; the longest pause of a key, seconds."""
    name = f"Promoted{int(is_killed)}"
    text = TEXT.format(name=name)
    await view.service.deploy(text)
    await view.until_running(name)
    async with load(view, name, rate) as sent:
        await flow(view, sent, 2 * rate)
        other = text.replace("n % 2", "n % 4")
        await view.service.forks.fork(name, f"{name}Next", text=other, begin="start")
        await view.until_running(f"{name}Next")
        await flow(view, sent, 5 * rate)
        if is_killed:
            placed = {a.value.instance: a.value.worker for a in view.view.snapshot().assignments}
            view.cluster.kill_session(placed[f"{name}Next-alarms-1"])
            await flow(view, sent, rate)
        began = sent[0]
        promoting = asyncio.create_task(
            view.service.promotions.promote(f"{name}Next", replaces=name)
        )
        if is_killed:
            await view.until(
                "it is told to stop",
                lambda: any(a.value.stop for a in view.view.snapshot().assignments),
            )
            view.cluster.kill_session(placed[f"{name}-alarms-1"])
        await promoting
        await view.until_running(name)
        await flow(view, sent, 5 * rate)
    total = sent[0]
    await view.until("all is read", lambda: is_there(view, name, total))
    numbers: list[int] = []
    times: dict[str, int] = {}
    pauses, early = [0], 0
    async for one in channel_reader.read(view.client, f"mesh-{name}-Alarms", 1, 2**62):
        event = json.loads(one.data)
        if "n" not in event:
            continue
        numbers.append(event["n"])
        if event["n"] >= began - rate:
            pauses.append(one.time_ms - times.get(event["k"], one.time_ms))
        times[event["k"]] = one.time_ms
        early = one.sequence if event["n"] == 8 else early
    cut = next(b for a, b in pairwise(numbers) if b - a == 4) - 4
    assert numbers == [*range(0, cut, 2), *range(cut, total, 4)]
    assert began - 2 * rate <= cut
    # Before the promotion the group had another text.
    found = await Lineage(view.client, record(view, name)).why("Alarms", early)
    assert (found.event["n"], found.group) == (8, "alarms")
    assert "with an earlier text" in found.note
    await view.service.undeploy(name)
    print(f"{rate} events/s, killed: {is_killed}: longest pause {max(pauses)} ms")  # noqa: T201
    return max(pauses) / 1000


async def is_there(view: MeshClusterView, name: str, total: int) -> bool:
    """Whether the row of the last event that is a multiple of 4 is there."""
    js_stream, subject = f"mesh-{name}-Alarms", f"mesh.{name}.Alarms"
    message = await view.js.get_last_msg(js_stream, subject)
    assert message.data is not None
    return bool(json.loads(message.data)["n"] >= total - 4)


def record(view: MeshClusterView, name: str) -> AppRecord:
    """The record of an app."""
    found = view.view.snapshot().app(name)
    assert found is not None
    return found.value


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_fork_becomes_the_app_under_load(play: Callable[..., None], is_killed: bool) -> None:
    async def scene(view: MeshClusterView) -> None:
        pause_s = await promoted(view, 5_000 if is_killed else 20_000, is_killed=is_killed)
        assert is_killed or pause_s <= 1.0

    play(scene)


#: Texts whose first group has another state in the fork, and the distance of events in a window.
STATES = {
    "whole": (TEXT, 1),
    "keyed": (
        TEXT.replace(
            "from Feed#window.length(3) select k, n, sum(n) as t insert into Sums;",
            "partition with (k of Feed) begin\n"
            "from Feed#window.length(3) select k, n, sum(n) as t insert into Sums;\nend;",
        ),
        KEYS,
    ),
}


async def adopted(view: MeshClusterView, which: str, rate: int, *, is_killed: bool) -> float:
    """Promote a fork with longer windows under load; the longest pause of a key, seconds."""
    text, distance = STATES[which]
    name = f"Longer{which}{int(is_killed)}"
    text = text.format(name=name)
    await view.service.deploy(text)
    await view.until_running(name)

    def promote() -> asyncio.Task[Promoted]:
        return asyncio.create_task(view.service.promotions.promote(f"{name}Next", replaces=name))

    async with load(view, name, rate) as sent:
        await flow(view, sent, rate)
        other = text.replace("length(3)", "length(5)")
        await view.service.forks.fork(name, f"{name}Next", text=other, begin="start")
        await view.until_running(f"{name}Next")
        await flow(view, sent, 2 * rate)
        began = sent[0]
        promoting = promote()
        if is_killed:
            await view.until("it is edited", lambda: bool(record(view, name).adopting))
            promoting.cancel()
            placed = {a.value.instance: a.value.worker for a in view.view.snapshot().assignments}
            view.cluster.kill_session(placed[f"{name}-sums-1"])
            with pytest.raises(MeshError, match="waits for states"):
                await view.service.update(text.replace("n % 2", "n % 3"))
            promoting = promote()
        for _ in range(5):
            try:
                await promoting
                break
            except MeshError as error:
                # On a busy machine a session may start for longer than a promotion waits.
                if "have not drained yet" not in error.message:
                    raise
                promoting = promote()
        assert not record(view, name).adopting
        await view.until_running(name)
        await flow(view, sent, 2 * rate)
    total = sent[0]
    await view.until("all is read", lambda: is_there(view, name, total))
    found: dict[int, int] = {}
    times: dict[str, int] = {}
    pauses = [0]
    async for one in channel_reader.read(view.client, f"mesh-{name}-Alarms", 1, 2**62):
        event = json.loads(one.data)
        if "n" in event:
            assert event["n"] not in found
            found[event["n"]] = event["t"]
            pauses.append(one.time_ms - times.get(event["k"], one.time_ms))
            times[event["k"]] = one.time_ms
    assert sorted(found) == [*range(0, total, 2)]

    def expected(n: int, length: int) -> int:
        return sum(range(n, max(-1, n - length * distance), -distance))

    short, long = ({n for n, t in found.items() if t == expected(n, k)} for k in (3, 5))
    # The first events of all are the same in both.
    assert short | long == set(found)
    for key in range(distance):
        own = [n for n in sorted(found) if n % distance == key]
        cut = next(n for n in own if n not in short)
        assert began - 2 * rate <= cut < total
        assert all(n in long for n in own if n >= cut)
    await view.service.undeploy(name)
    print(f"{name}, {rate} events/s: longest pause of a key {max(pauses)} ms")  # noqa: T201
    return max(pauses) / 1000


@pytest.mark.parametrize("which", STATES)
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_fork_becomes_the_app_with_its_state(
    play: Callable[..., None], which: str, is_killed: bool
) -> None:
    async def scene(view: MeshClusterView) -> None:
        rate = 5_000 if is_killed else 20_000
        pause_s = await adopted(view, which, rate, is_killed=is_killed)
        assert is_killed or pause_s <= 1.0

    play(scene)
