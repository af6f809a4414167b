"""The active-active case through real workers: totals in a database while a worker is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats.errors
import pytest

from mesh.model import names
from tests.support import databases
from tests.support.databases import PASSWORD, USER
from tests.support.scenes import killed
from tests.support.trades import APP, TEN_MS

if TYPE_CHECKING:
    from mesh.testing.cluster import View
    from tests.support.scenes import Kill

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

QUERY = (
    f"from TradeAggregation within {TEN_MS}L, {TEN_MS + 3_600_000}L per 'hours' "
    "select symbol, total"
)
STREAM = "mesh-TradeApp-TradeStream"


async def publish(view: View, *quantities: int) -> None:
    for quantity in quantities:
        trade = {"symbol": "IBM", "price": 1.0, "quantity": quantity, "timestamp": TEN_MS + 1000}
        await view.js.publish("mesh.TradeApp.TradeStream", json.dumps(trade).encode())


async def ask(view: View, answers: list[Any], *, at_least: int = 0) -> Any:
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
async def test_seventy_are_seventy_while_a_worker_is_killed(view: View, kill: Kill) -> None:
    with contextlib.ExitStack() as ends:
        server = await asyncio.to_thread(ends.enter_context, databases.mariadb())
        directory = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        store = databases.new_database(server, directory, "TestDB")
        # As the seed writes it, the driver's class without a name.
        annotation = (
            f'@store(type=\'rdbms\', jdbc.url="{store.url}", username="{USER}", '
            f'password="{PASSWORD}", "com.mysql.jdbc.Driver")'
        )
        await view.service.deploy(APP.format(store=annotation))
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
