"""Groups that feed each other, share work by key, and depend on time: through NATS and Spark."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import nats.errors
import pytest

from mesh.mapping.messages import decode
from mesh.model import names
from tests.support.events import rows
from tests.support.scenes import calm, killed

if TYPE_CHECKING:
    from tests.support.scenes import Kill
    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.mark.thorough
@calm
async def test_group_by_without_a_window_is_shared_by_key(view: MeshClusterView) -> None:
    app = """@App:name('Keyed')
    define stream Orders (item string, amount int);
    @dist(execGroup='totals', parallel='2')
    from Orders select item, sum(amount) as total group by item insert into Totals;
    """
    await view.service.deploy(app)
    await view.until_running("Keyed")
    orders = [{"item": f"item-{n % 7}", "amount": n} for n in range(200)]
    for order in orders:
        await view.js.publish("mesh.Keyed.Orders", json.dumps(order).encode())

    expected: dict[str, list[int]] = {}
    for order in orders:
        sums = expected.setdefault(str(order["item"]), [])
        sums.append((sums[-1] if sums else 0) + int(str(order["amount"])))
    found: dict[str, list[int]] = {}
    for row in await rows(view, "Keyed", "Totals", len(orders)):
        found.setdefault(row["item"], []).append(row["total"])
    assert found == expected
    written = [a.value for a in view.view.snapshot().assignments if a.value.app == "Keyed"]
    assert len(written) == 3, "two instances and the partitioning layer before them"
    await view.service.undeploy("Keyed")


@pytest.mark.thorough
@calm
async def test_one_group_feeds_another_in_arrow_messages(view: MeshClusterView) -> None:
    app = """@App:name('Chain')
    define stream Numbers (n int);
    @dist(execGroup='even', parallel='2')
    from Numbers[n % 2 == 0] select n, n * 2 as twice insert into Even;
    @dist(execGroup='sum')
    from Even#window.time(1 hour) select sum(twice) as total, count() as many insert into Sums;
    """
    await view.service.deploy(app)
    await view.until_running("Chain")
    for n in range(1000):
        await view.js.publish("mesh.Chain.Numbers", b'{"n": %d}' % n)
    found = await rows(view, "Chain", "Sums", 500)
    assert [row["many"] for row in found] == list(range(1, 501))
    assert found[-1]["total"] == sum(2 * n for n in range(0, 1000, 2))
    between = await view.messages("mesh-Chain-Even", "mesh.Chain.Even")
    numbers: list[Any] = []
    for message in between:
        # Few events are JSON.
        kind = (message.headers or {})["Content-Type"]
        numbers += [event["n"] for event in decode(message.data, kind)]
    assert sorted(numbers) == list(range(0, 1000, 2))
    await view.service.undeploy("Chain")


@pytest.mark.thorough
@calm
async def test_a_window_lets_go_of_events_while_nothing_comes(view: MeshClusterView) -> None:
    app = """@App:name('Fade')
    define stream Sparks (n int);
    from Sparks#window.time(500 millisec) select n insert expired events into Gone;
    """
    await view.service.deploy(app)
    await view.until_running("Fade")
    for n in range(3):
        await view.js.publish("mesh.Fade.Sparks", b'{"n": %d}' % n)
    assert await rows(view, "Fade", "Gone", 3) == [{"n": 0}, {"n": 1}, {"n": 2}]
    await view.service.undeploy("Fade")


TOTALS = """@App:name('Totals')
define stream Trades (symbol string, kind int, quantity long);
define stream Orders (n int, item string);
define stream Marks (n int, symbol string);
@dist(execGroup='totals', parallel='2')
define aggregation Total from Trades select symbol, kind, sum(quantity) as total
group by kind, symbol aggregate every sec...year;
@dist(execGroup='totals', parallel='2')
from Orders left outer join Total on Orders.item == Total.symbol
within 0L, 9999999999999L per 'years' select n, item, kind, total insert into Known;
@dist(execGroup='totals', parallel='2') partition with (symbol of Marks) begin
from Marks#window.length(5) join Total on Total.symbol == Marks.symbol and Total.kind == 0
within 0L, 9999999999999L per 'years'
select Marks.symbol as symbol, sum(total) as total, count() as c insert into Marked;
end;
"""
ASKED = "from Total within 0L, 9999999999999L per 'years' select symbol, kind, total"
SYMBOLS = [f"S{n}" for n in range(12)]


async def trade(view: MeshClusterView, quantity: int, *, total: int) -> None:
    """Publish a trade of each symbol and kind, and wait until the totals have it."""
    whole = sorted([one, kind, total] for one in SYMBOLS for kind in range(2))
    for one, kind, _ in whole:
        event = {"symbol": one, "kind": kind, "quantity": quantity}
        await view.js.publish("mesh.Totals.Trades", json.dumps(event).encode())

    async def is_known() -> bool:
        with contextlib.suppress(nats.errors.Error):
            subject = names.query_subject("Totals")
            answer = await view.asker.request(subject, ASKED.encode(), timeout=20)
            return sorted(json.loads(answer.data).get("records", [])) == whole
        return False

    await view.until(f"totals of {total}", is_known)


async def order(view: MeshClusterView, first: int) -> None:
    """Publish an order and a mark of each symbol, and of one without trades."""
    for n, one in enumerate([*SYMBOLS, "nobody"], start=first):
        orders, marks = {"n": n, "item": one}, {"n": n, "symbol": one}
        await view.js.publish("mesh.Totals.Orders", json.dumps(orders).encode())
        await view.js.publish("mesh.Totals.Marks", json.dumps(marks).encode())


def totals_known(first: int, total: int) -> list[tuple[Any, ...]]:
    """The rows that these orders find."""
    found: list[tuple[Any, ...]] = [(first + len(SYMBOLS), "nobody", None, None)]
    for n, one in enumerate(SYMBOLS, start=first):
        found += [(n, one, kind, total) for kind in range(2)]
    return found


@pytest.mark.thorough
@killed
async def test_orders_find_whole_totals_of_an_aggregation_in_parts(
    view: MeshClusterView, kill: Kill
) -> None:
    await view.service.deploy(TOTALS)
    await view.until_running("Totals")
    await trade(view, 3, total=3)
    await trade(view, 4, total=7)
    await order(view, 0)
    await rows(view, "Totals", "Known", 25)
    await rows(view, "Totals", "Marked", 12)
    await trade(view, 5, total=12)
    await order(view, 100)
    await kill.happens()
    await rows(view, "Totals", "Known", 50)
    await rows(view, "Totals", "Marked", 24)
    await trade(view, 8, total=20)
    await order(view, 200)
    found = [tuple(row.values()) for row in await rows(view, "Totals", "Known", 75)]
    expected = [*totals_known(0, 7), *totals_known(100, 12), *totals_known(200, 20)]
    assert Counter(found) == Counter(expected)
    marked = [tuple(row.values()) for row in await rows(view, "Totals", "Marked", 36)]
    sums = ((7, 1), (7 + 12, 2), (7 + 12 + 20, 3))
    assert sorted(marked) == sorted((one, *both) for one in SYMBOLS for both in sums)
    await view.service.undeploy("Totals")
