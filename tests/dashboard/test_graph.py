"""The graph of a text before its deploy: its groups with their streams and the effect on each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from mesh.dashboard.graph import planned_cells
from mesh.plan.build import plan
from mesh.plan.changes import changes_between
from mesh.plan.explain import changes_to_values
from mesh.plan.picture import drawing_of
from tests.dashboard.test_forms import Browser
from tests.support.dashboard import site
from tests.support.load import until

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

TEXT = """@App:name('Shop')
define stream Orders (item string, price double);
@info(name='dear') @dist(execGroup='filter')
from Orders[price > 100.0] select item, price insert into DearOrders;
@info(name='sums') @dist(execGroup='count', parallel='2')
partition with (item of DearOrders)
begin
    from DearOrders#window.length(5) select item, sum(price) as total insert into Totals;
end;
"""


def test_each_group_has_its_streams_and_the_effect_on_it() -> None:
    before, after = plan(TEXT).spec, plan(TEXT.replace("length(5)", "length(6)")).spec
    changes = changes_to_values(changes_between(before, after))

    cells = planned_cells(drawing_of(after), changes)

    groups = {one.lines[0]: one for one in cells if one.streams is not None}
    filter_, count = groups["filter"], groups["count \u00d72"]
    assert filter_.streams is not None
    assert filter_.streams.reads == ["Orders"]
    assert filter_.streams.writes == ["DearOrders by (item)"]
    assert count.streams is not None
    assert count.streams.reads == ["DearOrders by (item)"]
    assert count.streams.writes == ["Totals"]
    assert (list(filter_.tells), filter_.tone) == (["same", ""], "good")
    assert count.tells[0] == "restarted"
    assert count.tone in ("warn", "bad")
    # Of a new app nothing changes: the boxes have no effect in them.
    assert {one.tone for one in planned_cells(drawing_of(after), None)} == {""}


@pytest.mark.slow
@pytest.mark.nats
async def test_the_pages_of_a_plan_and_of_its_app_have_the_same_graph(
    nats_server: NatsServer,
) -> None:
    async with site(nats_server) as at, httpx.AsyncClient(base_url=at.url, timeout=60) as client:
        shown = await Browser(client).send("/deploy", text=TEXT, do="check")
        assert shown.status_code == 200, shown.text
        await at.service.deploy(TEXT)

        async def has_page() -> bool:
            # What a page shows may be a second old.
            return (await client.get("/apps/Shop")).is_success

        await until(has_page)
        app = (await client.get("/apps/Shop")).text
        for one in (shown.text, app):
            assert 'aria-label="Shop: groups and channels"' in one
            assert "DearOrders by (item) \u2192 Totals" in one
