"""Functions that Catalyst has not, objects between groups, and events that fail: in a cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mesh.model import names
from tests.support.events import rows
from tests.support.scenes import calm

if TYPE_CHECKING:
    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(180)]

APP = """@App:name('Functions')
define stream Raw (n int, text string);
define function reciprocal[python] return double {
    return 1 / data[0]
};
@dist(execGroup='read', parallel='2')
from Raw[str:length(text) > 0]
select n, reciprocal(n) as part, json:toObject(text) as document, UUID() as id
insert into Read;
@dist(execGroup='write')
from Read select n, part, json:getString(document, '$.name') as name, document, id
insert into Written;
"""


@pytest.mark.thorough
@calm
async def test_functions_run_in_stateless_groups_and_objects_go_between_them(
    view: MeshClusterView,
) -> None:
    texts = [json.dumps({"name": f"name {n}", "list": [n, None, 1.5]}) for n in range(60)]
    texts[7], texts[8] = "", "{"
    await view.service.deploy(APP)
    await view.until_running("Functions")
    for n, text in enumerate(texts):
        event = json.dumps({"n": n, "text": text}).encode()
        await view.js.publish("mesh.Functions.Raw", event)
    # The first divides by zero, 7 is left out by the filter, and 8 is no JSON.
    good = [n for n in range(1, 60) if n not in (7, 8)]
    found = await rows(view, "Functions", "Written", len(good))
    by_number = {row["n"]: row for row in found}
    assert sorted(by_number) == good
    for n in good:
        row = by_number[n]
        assert (row["part"], row["name"]) == (1 / n, f"name {n}")
        assert row["document"] == json.loads(texts[n])
    assert len({row["id"] for row in found}) == len(good)

    errors = names.error_js_stream("Functions"), names.error_subject("Functions")

    async def all_told() -> bool:
        return await view.count(*errors) >= 2

    await view.until("two events in the error stream", all_told)
    told = [json.loads(message.data) for message in await view.messages(*errors)]
    reasons = {json.loads(one["data"])["n"]: one["reason"] for one in told}
    assert sorted(reasons) == [0, 8]
    assert "ZeroDivisionError" in reasons[0]
    assert "is no JSON" in reasons[8]
    await view.service.undeploy("Functions")
