"""Events that end-to-end tests publish, and the rows that they read."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tools.cluster import MeshClusterView

START_MS: Final = 1_700_000_000_000
#: Number of keys in the events of ``load``.
KEYS: Final = 13


async def rows(view: MeshClusterView, app: str, stream: str, count: int) -> list[dict[str, Any]]:
    """The rows of a JSON stream, once there are ``count`` of them and nothing more is pending."""
    js_stream, subject = f"mesh-{app}-{stream}", f"mesh.{app}.{stream}"

    async def enough() -> bool:
        return await view.count(js_stream, subject) >= count

    await view.until(f"{count} rows in {stream}", enough)
    found = [json.loads(m.data) for m in await view.messages(js_stream, subject)]
    assert len(found) == count
    return found


async def row_values(view: MeshClusterView, app: str, stream: str, count: int) -> list[list[Any]]:
    """The rows of a JSON stream, once there are ``count`` of them and nothing more is pending."""
    js_stream, subject = f"mesh-{app}-{stream}", f"mesh.{app}.{stream}"

    async def enough() -> bool:
        return await view.count(js_stream, subject) >= count

    await view.until(f"{count} rows in {stream}", enough)
    return [list(json.loads(m.data).values()) for m in await view.messages(js_stream, subject)]


def events(count: int) -> list[tuple[int, dict[str, Any]]]:
    """Times and events; the same ones each time."""
    chance = np.random.default_rng(7)
    times = START_MS + np.cumsum(chance.integers(1, 200, count))
    rows = zip(chance.integers(0, 7, count), np.round(chance.random(count) * 100, 2), strict=True)
    return [
        (int(t), {"k": f"k{k}", "a": n, "v": float(v)})
        for n, (t, (k, v)) in enumerate(zip(times, rows, strict=True))
    ]


async def publish(view: MeshClusterView, app: str, sent: list[tuple[int, dict[str, Any]]]) -> None:
    for time_ms, event in sent:
        header = {names.EVENT_TIME_HEADER: str(time_ms)}
        await view.js.publish(f"mesh.{app}.S", json.dumps(event).encode(), headers=header)


@contextlib.asynccontextmanager
async def load(view: MeshClusterView, app: str) -> AsyncIterator[list[int]]:
    """Events for stream Feed of ``app``, one after the other; the list holds the published ones."""
    sent: list[int] = []
    done = asyncio.Event()

    async def publish() -> None:
        while not done.is_set():
            event = {"k": f"key-{len(sent) % KEYS}", "n": len(sent)}
            await view.js.publish(f"mesh.{app}.Feed", json.dumps(event).encode())
            sent.append(len(sent))
            # Some hundred a second: the backlog of a session's start is read by the test too.
            await asyncio.sleep(0.003)

    publishing = asyncio.create_task(publish())
    try:
        yield sent
    finally:
        done.set()
        await publishing


async def more(view: MeshClusterView, sent: list[int], count: int) -> None:
    """Until so many more have been published."""
    wanted = len(sent) + count
    await view.until("more events", lambda: len(sent) >= wanted)


async def counts_are_continuous(view: MeshClusterView, app: str, total: int) -> None:
    """Each key's events were counted 1, 2, 3 and so on: none lost, none doubled."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in await rows(view, app, "Counts", total):
        found[row["k"]].append(row["c"])
    assert {key: sorted(counts) for key, counts in found.items()} == {
        key: list(range(1, len(counts) + 1)) for key, counts in found.items()
    }
