"""Sources that are foreign JetStream streams, through receivers and without."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from mesh.errors import MeshError
from mesh.model.begin import parse_start_position
from tests.support.events import rows
from tests.support.scenes import calm, killed

if TYPE_CHECKING:
    from tests.support.scenes import Kill
    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(180)]

APP = """@App:name('Foreign')
@source(type='nats', stream='ORDERS', destination='orders.*', @dist(parallel='2'))
define stream Orders (item string, n int);
@source(type='nats', stream='PRICES')
define stream Prices (p double);
@dist(execGroup='big', parallel='2') from Orders[n % 3 == 0] select item, n insert into Big;
@dist(execGroup='sums', parallel='2')
from Orders select item, sum(n) as total, count() as c group by item insert into Sums;
@dist(execGroup='mean') from Prices#window.length(2) select avg(p) as m insert into Means;
"""
ORDERS: list[dict[str, Any]] = [{"item": f"item-{n % 5}", "n": n} for n in range(1200)]


@pytest.mark.thorough
@killed
async def test_streams_of_others_are_read_once_and_left_as_they_are(
    view: MeshClusterView, kill: Kill
) -> None:
    with pytest.raises(MeshError) as refused:
        await view.service.deploy(APP)
    assert refused.value.code == "MESH-N122"
    await view.js.add_stream(name="ORDERS", subjects=["orders.>"])
    await view.js.add_stream(name="PRICES", subjects=["prices"])
    # Existing messages count, those on other subjects do not.
    for order in ORDERS[:600]:
        await view.js.publish(f"orders.{order['item']}", json.dumps(order).encode())
    await view.js.publish("orders.not.these", b'{"item": "x", "n": 3}')
    await view.js.publish("orders.bad", b'{"item": "x"}')
    await view.service.deploy(APP)
    await view.until_running("Foreign")
    await rows(view, "Foreign", "Sums", 600)
    await kill.happens()
    for order in ORDERS[600:]:
        await view.js.publish(f"orders.{order['item']}", json.dumps(order).encode())
    for price in (1.0, 2.0, 4.0):
        await view.js.publish("prices", json.dumps({"p": price}).encode())

    # Two receivers share the stream by blocks, so that the order between blocks is open.
    sums = await rows(view, "Foreign", "Sums", len(ORDERS))
    last = {row["item"]: row for row in sums}
    assert len(sums) == len(ORDERS)
    assert {item: (row["total"], row["c"]) for item, row in last.items()} == {
        f"item-{k}": (sum(o["n"] for o in ORDERS if o["n"] % 5 == k), 240) for k in range(5)
    }
    big = await rows(view, "Foreign", "Big", 400)
    assert Counter(row["n"] for row in big) == Counter(range(0, 1200, 3))
    means = await rows(view, "Foreign", "Means", 3)
    assert [row["m"] for row in means] == [1.0, 1.5, 3.0]
    (failed,) = await view.until(
        "the failed one", lambda: view.service.events.failed("Foreign", 10)
    )
    assert (failed["stream"], "n" in failed["reason"]) == ("Orders", True)

    await view.service.undeploy("Foreign")
    await view.until("Foreign is gone", lambda: view.view.snapshot().app("Foreign") is None)
    later = """@App:name('Later') @source(type='nats', stream='PRICES')
    define stream Prices (p double); from Prices select p * 2 as d insert into Doubled;"""
    await view.service.update(later, begin=parse_start_position("2"))
    assert [r["d"] for r in await rows(view, "Later", "Doubled", 2)] == [4.0, 8.0]
    await view.service.undeploy("Later")
    await view.until("Later is gone", lambda: view.view.snapshot().app("Later") is None)
    for stream, count in (("ORDERS", len(ORDERS) + 2), ("PRICES", 3)):
        assert (await view.js.stream_info(stream)).state.messages == count
        await view.js.delete_stream(stream)


MAPPED = """@App:name('Mapped')
@source(type='nats', stream='BROUGHT', destination='brought.a', @map(type='json'))
define stream A (k string, n int);
@source(type='nats', stream='BROUGHT', destination='brought.b', @map(type='json'))
define stream B (k string, n int);
@source(type='nats', stream='BROUGHT', destination='brought.c', @map(type='json'))
define stream C (k string, n int);
@source(type='nats', stream='BROUGHT', destination='brought.d', @map(type='json'))
define stream D (k string, n int);
@dist(execGroup='filter') from A[n > 0] select k, n insert into A2;
@dist(execGroup='sum') from B select k, sum(n) as n insert into B2;
@dist(execGroup='apart', mode='micro-batch') from C[n > 0] select k, n insert into C2;
@dist(execGroup='one') from D select k, n insert into D2;
@dist(execGroup='two') from D select n insert into D3;
"""


@pytest.mark.thorough
@calm
async def test_a_source_with_the_mapper_json_takes_what_the_original_takes(
    view: MeshClusterView,
) -> None:
    await view.js.add_stream(name="BROUGHT", subjects=["brought.>"])
    for subject in "abcd":
        for payload in (
            b'{"event":{"k":"x","n":1}}',
            b'{"k":"y","n":2}',
            b'[{"event":{"k":"z","n":3}},{"event":{"k":{"w":1},"n":4}}]',
            b'{"event":{"k":"no number","n":"x"}}',
        ):
            await view.js.publish(f"brought.{subject}", payload)
    await view.service.deploy(MAPPED)
    rows_of_all = [("x", 1), ("y", 2), ("z", 3), ('{"w":1}', 4)]
    for stream in ("A2", "C2", "D2"):
        found = await rows(view, "Mapped", stream, 4)
        assert [(one["k"], one["n"]) for one in found] == rows_of_all, stream
    sums = await rows(view, "Mapped", "B2", 4)
    assert [(one["k"], one["n"]) for one in sums] == [
        (k, sum(m for _, m in rows_of_all[: at + 1])) for at, (k, _) in enumerate(rows_of_all)
    ]
    await rows(view, "Mapped", "D3", 4)

    async def reported() -> bool:
        return len(await view.service.events.failed("Mapped", 10)) == 4

    await view.until("an entry of each stream", reported)
    failed = await view.service.events.failed("Mapped", 10)
    assert {one["stream"] for one in failed} == {"A", "B", "C", "D"}
    await view.service.undeploy("Mapped")
    await view.until("Mapped is gone", lambda: view.view.snapshot().app("Mapped") is None)
