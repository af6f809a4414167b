"""The active-active case through real workers: one mesh, and two that share a database."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import nats.errors
import pytest

from mesh.model import names
from tests.support import databases
from tests.support.databases import PASSWORD
from tests.support.planted import address
from tests.support.scenes import killed, viewing
from tests.support.trades import APP, TEN_MS, as_the_seed_has_it
from tools.cluster import MeshCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.support.scenes import Kill
    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(480)]

QUERY = (
    f"from TradeAggregation within {TEN_MS}L, {TEN_MS + 3_600_000}L per 'hours' "
    "select symbol, total"
)
STREAM = "mesh-TradeApp-TradeStream"


async def publish(view: MeshClusterView, *quantities: int) -> None:
    for quantity in quantities:
        trade = {"symbol": "IBM", "price": 1.0, "quantity": quantity, "timestamp": TEN_MS + 1000}
        await view.js.publish("mesh.TradeApp.TradeStream", json.dumps(trade).encode())


async def ask(view: MeshClusterView, answers: list[Any], *, at_least: int = 0) -> Any:
    """The rows of an answer, or None; each answer is recorded with its position."""
    asked = {"query": QUERY, "min_position": {STREAM: at_least}}
    data = json.dumps(asked).encode()
    with contextlib.suppress(nats.errors.Error):
        answer = await view.asker.request(names.query_subject("TradeApp"), data, timeout=20)
        found = json.loads(answer.data)
        answers.append(found)
        return found.get("records")
    return None


@pytest.mark.extended
@killed
async def test_seventy_are_seventy_while_a_worker_is_killed(
    view: MeshClusterView, kill: Kill
) -> None:
    with contextlib.ExitStack() as ends:
        server = await asyncio.to_thread(ends.enter_context, databases.mariadb())
        directory = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        store = databases.new_database(server, directory, "TestDB")
        await view.service.deploy(APP.format(store=as_the_seed_has_it(store)))
        await view.until_running("TradeApp")
        (placed,) = (a.value for a in view.view.snapshot().assignments if a.value.app == "TradeApp")
        answers: list[Any] = []

        async def total(quantity: int, events: int) -> None:
            async def is_there() -> bool:
                return bool(await ask(view, answers, at_least=events) == [["IBM", quantity]])

            await view.until(f"a total of {quantity}", is_there)

        await publish(view, 10, 20)
        await total(30, 2)
        sending = asyncio.create_task(publish(view, 10, 30))
        await kill.happens(victim=placed.worker)
        await sending
        await total(70, 4)

        async def is_stored() -> bool:
            found = store.rows("select sum(AGG_SUM_quantity) from TradeAggregation_YEARS")
            return bool(found[0][0] == 70)

        await view.until("70 in the database", is_stored)
        for answer in answers:
            # No answer is more or less than what its position has.
            if "records" in answer:
                events = answer["positions"].get(STREAM, 0)
                whole = (0, 10, 30, 40, 70)[events]
                assert answer["records"] == ([["IBM", whole]] if whole else []), answer
        assert PASSWORD not in json.dumps(answers)


class Mesh(NamedTuple):
    """One of two meshes, and the address of its manager."""

    view: MeshClusterView
    api: str

    async def records(self) -> list[Any]:
        """The rows of the answers through REST, the command line and NATS; None for an error."""
        asked = {"appName": "TradeApp", "query": QUERY}
        async with httpx.AsyncClient(base_url=self.api, timeout=30) as client:
            rest = (await client.post("/stores/query", json=asked)).json()
        command = [sys.executable, "-m", "mesh.cli", "query", "TradeApp", QUERY]
        run = await asyncio.create_subprocess_exec(
            *command, "--output", "json", "--server", self.api, stdout=PIPE, stderr=PIPE
        )
        out, _ = await run.communicate()
        shown = {} if run.returncode else json.loads(out)
        answered: dict[str, Any] = {}
        with contextlib.suppress(nats.errors.Error):
            data = json.dumps({"query": QUERY}).encode()
            subject = names.query_subject("TradeApp")
            answered = json.loads((await self.view.asker.request(subject, data, timeout=20)).data)
        return [one.get("records") for one in (rest, shown, answered)]


@contextlib.asynccontextmanager
async def two_meshes(directory: Path) -> AsyncIterator[list[Mesh]]:
    """Meshes n1 and n2, each with one worker."""
    async with contextlib.AsyncExitStack() as stack:
        meshes = []
        for name in ("n1", "n2"):
            (directory / name).mkdir()
            shard = {"MESH_STORES_SHARD_ID": name}
            cluster = MeshCluster(directory / name, 1, environment=shard)
            stack.callback(cluster.stop)
            view = await stack.enter_async_context(viewing(cluster, "w1"))
            meshes.append(Mesh(view, await address(view)))
        yield meshes


async def until_seventy(meshes: Sequence[Mesh], answers: list[Any]) -> None:
    """Wait until all answers of ``meshes`` are 70; each that is given is recorded."""

    async def is_so() -> bool:
        found = [one for mesh in meshes for one in await mesh.records()]
        answers.extend(one for one in found if one is not None)
        return all(one == [["IBM", 70]] for one in found)

    await meshes[0].view.until("70 through REST, the command line and NATS", is_so)


async def play_two(kind: str, directory: Path) -> None:
    with contextlib.ExitStack() as ends:
        server = await asyncio.to_thread(ends.enter_context, getattr(databases, kind)())
        store = databases.new_database(server, directory, "TestDB")
        text = APP.format(store=as_the_seed_has_it(store) + " @PartitionById")
        async with two_meshes(directory) as meshes:
            for mesh, quantities in zip(meshes, ((10, 20), (10, 30)), strict=True):
                await mesh.view.service.deploy(text)
                await mesh.view.until_running("TradeApp")
                await publish(mesh.view, *quantities)
            answers: list[Any] = []
            await until_seventy(meshes, answers)
            assert all(rows == [] or rows[0][1] <= 70 for rows in answers)
            # From here on every answer is 70: what a mesh has written stays.
            answers.clear()
            first, second = (mesh.view.cluster for mesh in meshes)
            first.kill_all_of("w1")
            await until_seventy(meshes[1:], answers)
            first.start_worker("w1")
            second.signal_all_of("w1", signal.SIGSTOP)
            await until_seventy(meshes[:1], answers)
            second.wake("w1")
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await until_seventy(meshes, answers)
            assert all(rows == [["IBM", 70]] for rows in answers), answers


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
def test_two_meshes_over_one_database_have_seventy_whatever_is_killed(
    kind: str, tmp_path: Path
) -> None:
    asyncio.run(asyncio.wait_for(play_two(kind, tmp_path), 450))
