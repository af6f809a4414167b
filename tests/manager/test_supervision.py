"""Tasks of a manager that end or fail."""

from __future__ import annotations

import asyncio

import pytest

from mesh.errors import MeshError
from mesh.manager.supervision import Restarting, supervised


async def test_an_api_that_returns_ends_the_process_with_an_error() -> None:
    async def serve() -> None:
        return

    with pytest.raises(MeshError, match='"API" has ended'):
        async with supervised({"API": serve}):
            await asyncio.get_running_loop().create_future()


def test_a_task_that_leads_nothing_starts_again_when_it_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs = []

    async def run() -> None:
        restarted = asyncio.Event()

        async def survey() -> None:
            runs.append("survey")
            if len(runs) == 1:
                raise ZeroDivisionError
            if len(runs) > 2:
                restarted.set()
                await asyncio.get_running_loop().create_future()

        async with supervised({"survey": Restarting("survey", survey, rest_s=0.0)}):
            await restarted.wait()

    asyncio.run(asyncio.wait_for(run(), 30))
    assert runs == ["survey"] * 3
    assert [r.levelname for r in caplog.records if "starts again" in r.message] == ["ERROR"] * 2


async def test_works_end_with_the_body() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("work")

    async with supervised({"work": work}):
        await asyncio.sleep(0)
    assert ended == ["work"]
