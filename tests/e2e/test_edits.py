"""Edits of a running app while events arrive: through NATS and Spark."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from mesh.errors import MeshError
from tests.support.events import rows
from tests.support.scenes import calm

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mesh.manager.deployments import Deployed
    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

KEYS = 13
#: Events a second, in pieces of these many.
RATE, PIECE = 5_000, 250

APP = """@App:name('{name}')
define stream Feed (k string, n long);
@dist(execGroup='copy') from Feed[n % 2 == 0] select n insert into Even;
@dist(execGroup='keyed', parallel='2')
partition with (k of Feed) begin from Feed select k, count() as c insert into Counts; end;
@dist(execGroup='sum') from Feed#window.length(3) select n, sum(n) as t insert into Sums;
@dist(execGroup='sum') from Feed select n, count() as c insert into Seen;
"""
SEVENS = "@dist(execGroup='sum') from Feed[n % 7 == 0] select n, count() as c insert into Sevens;\n"


@contextlib.asynccontextmanager
async def load(view: MeshClusterView, app: str) -> AsyncIterator[list[int]]:
    """Events for stream Feed of ``app``, ``RATE`` a second; the list has the number sent."""
    sent = [0]
    done = asyncio.Event()
    subject = f"mesh.{app}.Feed"

    async def publish() -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while not done.is_set():
            events = [
                b'{"k": "key-%d", "n": %d}' % (n % KEYS, n) for n in range(sent[0], sent[0] + PIECE)
            ]
            # Many a message, one acknowledgement.
            await view.js.publish(subject, b"[" + b",".join(events) + b"]", timeout=10)
            sent[0] += PIECE
            due_s += PIECE / RATE
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


async def edit(view: MeshClusterView, text: str, **more: Any) -> Deployed:
    """Deploy a changed text, and wait until it runs."""
    done = await view.service.update(text, **more)
    assert done.edited
    name = done.app

    def has_changed() -> bool:
        record = view.view.snapshot().app(name)
        forms = {f.value.group: f.value.spec for f in view.view.snapshot().forms}
        return record is not None and all(forms[g.name] == g for g in record.value.spec.groups)

    await view.until("the new form", has_changed)
    await view.until_running(name)
    return done


def fates(done: Deployed) -> dict[str, str]:
    assert done.changes is not None
    return {group["name"]: group["change"] for group in done.changes["groups"]}


async def there(view: MeshClusterView, name: str, stream: str) -> list[dict[str, Any]]:
    """The rows of a JSON stream that exist now."""
    found = await view.messages(f"mesh-{name}-{stream}", f"mesh.{name}.{stream}")
    return [json.loads(message.data) for message in found]


def epochs(view: MeshClusterView, name: str) -> dict[str, int]:
    found = [a.value for a in view.view.snapshot().assignments if a.value.app == name]
    return {a.instance: a.epoch for a in found}


async def all_is_there(view: MeshClusterView, name: str, total: int) -> None:
    """The output of every text of the app for ``total`` events: no row lost or duplicate."""
    even = await rows(view, name, "Even", (total + 1) // 2)
    assert [row["n"] for row in even] == list(range(0, total, 2))
    counted: dict[str, list[int]] = {}
    for row in await rows(view, name, "Counts", total):
        counted.setdefault(row["k"], []).append(row["c"])
    assert counted == {key: list(range(1, len(c) + 1)) for key, c in counted.items()}
    sums = await rows(view, name, "Sums", total)
    assert [row["t"] for row in sums] == [sum(range(max(0, n - 2), n + 1)) for n in range(total)]


async def one_of_three_changed(view: MeshClusterView, is_killed: bool) -> None:
    name = f"Edited{int(is_killed)}"
    app = APP.format(name=name)
    # The queries that stay have other places and other numbers now.
    first = "@dist(execGroup='sum') from Feed#"
    changed = app.replace(first, SEVENS + first)
    await view.service.deploy(app)
    await view.until_running(name)
    before = epochs(view, name)
    async with load(view, name) as sent:
        await flow(view, sent, 10_000)
        if is_killed:
            changing = asyncio.create_task(edit(view, changed))
            await view.until(
                "it is told to stop",
                lambda: any(a.value.stop for a in view.view.snapshot().assignments),
            )
            placed = {a.value.instance: a.value.worker for a in view.view.snapshot().assignments}
            view.cluster.kill_session(placed[f"{name}-sum-1"])
            done = await changing
        else:
            done = await edit(view, changed)
        at = sent[0]
        assert fates(done) == {
            "partition-Feed-k": "same", "copy": "same", "keyed": "same", "sum": "restarted",
        }  # fmt: skip
        after = epochs(view, name)
        if not is_killed:
            assert {i for i in after if after[i] != before[i]} == {f"{name}-sum-1"}
        await flow(view, sent, 10_000)
    total = sent[0]
    await all_is_there(view, name, total)
    assert [row["c"] for row in await rows(view, name, "Seen", total)] == list(range(1, total + 1))
    sevens = [row["n"] for row in await there(view, name, "Sevens")]
    assert sevens[0] <= at + 7
    assert sevens == list(range(sevens[0], total, 7))
    told = [entry.cause for entry in await view.service.story(name)]
    assert "group sum changes" in told
    await view.service.undeploy(name)


@pytest.mark.parametrize(
    "is_killed",
    [
        # Not beside other scenes, since their end moves instances.
        pytest.param(False, marks=pytest.mark.extended),
        pytest.param(True, marks=pytest.mark.long),
    ],
)
def test_one_group_of_three_is_changed_under_load(
    play: Callable[..., None], is_killed: bool
) -> None:
    play(lambda view: one_of_three_changed(view, is_killed))


@pytest.mark.long
def test_a_change_is_undone_and_a_group_is_reset(play: Callable[..., None]) -> None:
    app = APP.format(name="Undone")

    async def scene(view: MeshClusterView) -> None:
        await view.service.deploy(app)
        await view.until_running("Undone")
        async with load(view, "Undone") as sent:
            await flow(view, sent, 3_000)
            await edit(view, app + SEVENS)
            await flow(view, sent, 3_000)
            await edit(view, app)
            await flow(view, sent, 3_000)

            async def is_removed() -> bool:
                record = view.view.snapshot().app("Undone")
                return record is not None and record.value.retired is None

            await view.until("the stream is gone", is_removed)
            streams = [info.config.name for info in await view.js.streams_info()]
            assert "mesh-Undone-Sevens" not in streams
            # And once more: the stream is a new one.
            await edit(view, app + SEVENS)
            await flow(view, sent, 3_000)

            longer = app.replace("length(3)", "length(3000)")
            with pytest.raises(MeshError) as refused:
                await view.service.update(longer + SEVENS)
            assert refused.value.code == "MESH-C120"
            out = await view.count("mesh-Undone-Seen", "mesh.Undone.Seen")
            await edit(view, app + SEVENS, reset=("sum",))
            await flow(view, sent, 3_000)
        total = sent[0]
        seen = [row["c"] for row in await rows(view, "Undone", "Seen", total)]
        cut = seen.index(1, 1)
        assert seen == [*range(1, cut + 1), *range(1, total - cut + 1)]
        # It discards its state, and continues after the earlier output.
        assert out <= cut <= total
        sevens = [row["n"] for row in await there(view, "Undone", "Sevens")]
        assert sevens == list(range(sevens[0], total, 7))
        await view.service.undeploy("Undone")

    play(scene)


@pytest.mark.extended
@calm
async def test_of_two_changes_at_once_one_is_taken(view: MeshClusterView) -> None:
    app = "@App:name('Twice') define stream S (n int); from S select n insert into T;"
    texts = [app.replace("select n", f"select n + {more} as n") for more in (1, 2)]
    await view.service.deploy(app)
    done = await asyncio.gather(
        *(view.service.update(text) for text in texts), return_exceptions=True
    )
    (error,) = [one for one in done if isinstance(one, MeshError)]
    assert error.code == "MESH-A409"
    assert "another user" in error.message
    taken = texts[0 if not isinstance(done[0], MeshError) else 1]
    assert (await view.service.app("Twice")).text == taken
    await view.service.undeploy("Twice")
