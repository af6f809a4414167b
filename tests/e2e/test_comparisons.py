"""A million events through an app and its fork: the comparison finds what an oracle finds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.cluster import MeshClusterView

pytestmark = [
    pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.long,
    pytest.mark.timeout(400),
]  # fmt: skip

COUNT, PIECE = 1_000_000, 1000
BEFORE, AFTER = 0.5, 0.7
TEXT = """@App:name('{name}')
define stream Feed (n long, v double);
@dist(execGroup='high') from Feed[v > {threshold}] select n, v insert into High;
"""
VALUES = np.round(np.random.default_rng(24).random(COUNT) * 100, 2)


async def publish(view: MeshClusterView, app: str) -> None:
    for first in range(0, COUNT, 20 * PIECE):
        pieces = [
            orjson.dumps([{"n": n, "v": VALUES[n]} for n in range(at, at + PIECE)],
                         option=orjson.OPT_SERIALIZE_NUMPY)
            for at in range(first, first + 20 * PIECE, PIECE)
        ]  # fmt: skip
        await asyncio.gather(*(view.js.publish(f"mesh.{app}.Feed", data, 30) for data in pieces))


async def read_whole(view: MeshClusterView, app: str, threshold: float) -> None:
    """Until the last event that passes is in the app's output."""
    last = int(np.flatnonzero(threshold < VALUES)[-1])

    async def is_there() -> bool:
        js_stream, subject = f"mesh-{app}-High", f"mesh.{app}.High"
        if not await view.count(js_stream, subject):
            return False
        message = await view.js.get_last_msg(js_stream, subject)
        return bool(orjson.loads(message.data or b"{}")["n"] == last)

    await view.until(f"the last event of {app}", is_there)


def test_a_changed_threshold_shows_exactly_the_rows_between(play: Callable[..., None]) -> None:
    async def scene(view: MeshClusterView) -> None:
        await view.service.deploy(TEXT.format(name="Million", threshold=BEFORE))
        await view.until_running("Million")
        await publish(view, "Million")
        await read_whole(view, "Million", BEFORE)
        text = TEXT.format(name="Million", threshold=AFTER)
        await view.service.forks.fork("Million", "MillionNext", text=text, begin="start")
        await read_whole(view, "MillionNext", AFTER)
        found = await view.service.past.compare("Million", "MillionNext", [], [])
        (one,) = found["streams"]
        same, gone = VALUES > AFTER, (VALUES > BEFORE) & (VALUES <= AFTER)
        assert gone.any()
        assert (one["same"], one["new"], one["gone"], one["changed"]) == (
            same.sum(), 0, gone.sum(), 0,
        )  # fmt: skip
        first = int(np.flatnonzero(gone)[0])
        assert found["first"]["app"]["event"] == {"n": first, "v": VALUES[first]}
        for app in ("MillionNext", "Million"):
            await view.service.undeploy(app)

    play(scene)
