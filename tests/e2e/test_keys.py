"""Streams divided by computed keys and by ranges, and existing channels."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from mesh.errors import MeshError
from mesh.jetstream.channels import js_streams
from mesh.plan.build import plan
from tests.support.events import rows
from tests.support.scenes import calm, killed

if TYPE_CHECKING:
    from tests.support.scenes import Kill
    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(180)]

APP = """@App:name('Divided')
define stream Orders (item string, amount int);
@dist(execGroup='words', parallel='2', partitions='3')
partition with (str:lower(item) of Orders) begin
from Orders select str:lower(item) as item, count() as n insert into Counts;
end;
@dist(execGroup='sizes', parallel='2', partitions='4')
partition with (amount > 10 as 'some' or amount > 40 as 'many' or amount <= 10 as 'few' of Orders)
begin
from Orders#window.lengthBatch(5) select max(amount) as most, count() as n insert into Sizes;
end;
"""


@pytest.mark.thorough
@calm
async def test_computed_keys_and_ranges_divide_a_stream(view: MeshClusterView) -> None:
    await view.service.deploy(APP)
    await view.until_running("Divided")
    orders = [{"item": ["Ant", "ant", "BEE", "bee", "Cow"][n % 5], "amount": n % 60}
              for n in range(240)]  # fmt: skip
    for order in orders:
        await view.js.publish("mesh.Divided.Orders", json.dumps(order).encode())

    expected: dict[str, list[int]] = {}
    for order in orders:
        counts = expected.setdefault(str(order["item"]).lower(), [])
        counts.append(len(counts) + 1)
    found: dict[str, list[int]] = {}
    for row in await rows(view, "Divided", "Counts", len(orders)):
        found.setdefault(row["item"], []).append(row["n"])
    assert found == expected

    batches: Counter[int] = Counter()
    amounts = [n % 60 for n in range(240)]
    for part in (
        [a for a in amounts if a > 10],
        [a for a in amounts if a > 40],
        [a for a in amounts if a <= 10],
    ):
        whole = len(part) // 5 * 5
        batches.update(max(part[at : at + 5]) for at in range(0, whole, 5))
    sizes = await rows(view, "Divided", "Sizes", batches.total())
    assert Counter(row["most"] for row in sizes) == batches
    await view.service.undeploy("Divided")


@pytest.mark.thorough
@calm
async def test_an_app_may_find_its_channels_there(view: MeshClusterView) -> None:
    text = """@App:name('There') @App:transportChannelCreationEnabled('false')
    define stream Feed (n int); from Feed select n + 1 as n insert into Out;
    """
    with pytest.raises(MeshError) as refused:
        await view.service.deploy(text)
    assert refused.value.code == "MESH-N121"
    assert "mesh-There-Feed (subjects mesh.There.Feed and" in (refused.value.detail or "")

    spec = plan(text).spec
    made: list[str] = []
    for name, subject in js_streams(spec):
        if not name.endswith("errors-"):
            config: dict[str, Any] = {
                "name": name, "subjects": [subject, f"mesh._marker.{name}.>"],
                "allow_direct": True, "allow_atomic": True,
            }  # fmt: skip
            request = json.dumps(config).encode()
            await view.client.request(f"$JS.API.STREAM.CREATE.{name}", request, timeout=10)
            made.append(name)
    await view.service.deploy(text)
    await view.until_running("There")
    await view.js.publish("mesh.There.Feed", b'{"n": 1}')
    assert await rows(view, "There", "Out", 1) == [{"n": 2}]
    changed = text.replace("n + 1", "n + 2")
    assert (await view.service.update(changed)).edited
    await view.until_running("There")

    async def is_replaced() -> bool:
        try:
            return (await view.service.update(text, replace=True)).replaced
        except MeshError as error:
            # Instances that drain for long outlast the call.
            if "still being undeployed" not in error.message:
                raise
            return False

    await view.until("it is replaced", is_replaced)
    await view.until_running("There")
    # Streams that were not created for it stay, with their messages.
    assert await view.count("mesh-There-Out", "mesh.There.Out") >= 1
    await view.service.undeploy("There")
    await view.until("There is gone", lambda: view.view.snapshot().app("There") is None)
    for name in made:
        assert (await view.js.stream_info(name)).state.messages
        await view.js.delete_stream(name)


@pytest.mark.thorough
@killed
async def test_groups_place_what_the_next_one_reads_by_key_once(
    view: MeshClusterView, kill: Kill
) -> None:
    app = """@App:name('Placed')
    define stream Orders (item string, amount int);
    define stream Checked (item string, amount int);
    @dist(execGroup='check', parallel='2')
    from Orders[amount >= 0] select item, amount insert into Checked;
    @dist(execGroup='sum', parallel='2')
    from Checked select item, sum(amount) as total, count() as n group by item insert into Sums;
    @dist(execGroup='count', parallel='2')
    from Sums select n, count() as items group by n insert into Items;
    """
    await view.service.deploy(app)
    await view.until_running("Placed")
    groups = [g.name for g in plan(app).spec.groups]
    assert groups == ["partition-Checked-item", "check", "sum", "count"]
    for n in range(210):
        order = {"item": f"item-{n % 7}", "amount": 1}
        await view.js.publish("mesh.Placed.Orders", json.dumps(order).encode())
        if n == 100:
            # All that it had placed and not yet marked is placed again, and skipped.
            await kill.happens()
    # An event that a client publishes to the stream between is handled in the same way.
    for n in range(70):
        order = {"item": f"item-{n % 7}", "amount": 1}
        await view.js.publish("mesh.Placed.Checked", json.dumps(order).encode())
    found = await rows(view, "Placed", "Items", 280)
    assert sorted((r["n"], r["items"]) for r in found) == [
        (n, items) for n in range(1, 41) for items in range(1, 8)
    ]
    await view.service.undeploy("Placed")
