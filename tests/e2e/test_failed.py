"""Events on which queries fail: recorded once each, also when a session dies half-way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mesh.model import names
from mesh.operators.executor import Executor, InputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from tests.support.events import events, publish, row_values
from tests.support.scenes import killed
from tools.cases import batch, values

if TYPE_CHECKING:
    from tests.support.scenes import Kill
    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

APP = """@App:name('Failing')
define stream S (k string, a int, v double);
define function part[python] return double {
    return 12 / (data[0] % 7)
};
@info(name='held') from S#window.length(3)[part(a) > 0.0] select k, sum(a) as t insert into Held;
@info(name='chosen') from S#window.lengthBatch(4) select k, part(a + 1) as p insert into Chosen;
partition with (k of S) begin
  @info(name='own') from S select k, a, part(a + 2) as p, count() as n insert into Own;
end;
@dist(execGroup='flat', parallel='2')
@info(name='first') from S select k, a, part(a + 3) as p insert into First;
@dist(execGroup='flat', parallel='2')
@info(name='second') from S select k, a, part(a + 4) as p insert into Second;
@dist(execGroup='flat', parallel='2')
@info(name='third') from First select k, part(a + 5) as p insert into Third;
"""


def expected(sent: list[tuple[int, dict[str, Any]]]) -> list[tuple[str, int, str]]:
    """Failures in the group that keeps state, in order: query, time, event."""
    spec = plan(APP).spec.group("default")
    assert spec is not None
    bound = bind_group(spec)
    executor = Executor(bound, [*(c.stream.name for c in spec.outputs), FAILED])
    run = InputRun(
        "S",
        np.arange(1, len(sent) + 1),
        np.array([time_ms for time_ms, _ in sent]),
        batch(bound.stream("S"), [list(event.values()) for _, event in sent]),
    )
    (failed,) = [r for r in executor.run([run], {"S": sent[-1][0]}) if r.stream == FAILED]
    told = zip(failed.time_ms.tolist(), values(failed.rows), strict=True)
    return [(query, time_ms, event) for time_ms, (query, _, _, event) in told]


@pytest.mark.thorough
@killed
async def test_failed_events_are_recorded_once_when_a_session_is_killed(
    view: MeshClusterView, kill: Kill
) -> None:
    sent = events(200)
    wanted = expected(sent)
    assert {query for query, _, _ in wanted} == {"held", "chosen", "own"}
    flat = sum(sum((n + more) % 7 == 0 for n in range(200)) for more in (3, 4)) + sum(
        (n + 3) % 7 != 0 and (n + 5) % 7 == 0 for n in range(200)
    )
    errors = names.error_js_stream("Failing"), names.error_subject("Failing")
    await view.service.deploy(APP)
    await view.until_running("Failing")
    await publish(view, "Failing", sent[:100])
    await row_values(view, "Failing", "Own", 80)
    await kill.happens()
    await publish(view, "Failing", sent[100:])

    async def all_told() -> bool:
        return await view.count(*errors) >= len(wanted) + flat

    await view.until("all failed events in the error stream", all_told)
    told = [json.loads(message.data) for message in await view.messages(*errors)]
    held = [one for one in told if one["group"] == "default"]
    assert [(one["query"], one["time_ms"], one["data"]) for one in held] == wanted
    assert all("ZeroDivisionError" in one["reason"] and one["stream"] == "S" for one in told)
    # The group without state records each failure of its queries once as well.
    assert len(told) - len(held) == flat

    # They are counted if they were recorded since the instances started.
    def counted() -> bool:
        return sum(s.value.errors for s in view.view.snapshot().statuses) > 0

    await view.until("a count of errors", counted)
    shown = await view.service.events.failed("Failing", 1000)
    # With where the entry is itself, and since when.
    own = {"id", "recorded_at_ms"}
    assert [{k: v for k, v in one.items() if k not in own} for one in shown] == told
    await view.service.undeploy("Failing")


FAULTS = """@App:name('Faults')
@App:playback
@OnError(action='stream') define stream S (k string, a int, v double);
define function part[python] return double {
    return 12 / (data[0] % 7)
};
@dist(execGroup='one') from S select k, part(a) as p insert into One;
@dist(execGroup='two') from S#window.timeBatch(1 sec) select k, count() as n group by k
  insert into Two;
@dist(execGroup='three')
from !S#window.length(2) select k, a, count() as n, _error is null as told insert into Three;
"""


@pytest.mark.thorough
@killed
async def test_fault_streams_go_between_groups_and_playback_goes_by_events(
    view: MeshClusterView, kill: Kill
) -> None:
    sent = events(120)
    failing = [event for _, event in sent if event["a"] % 7 == 0]
    wanted = [[e["k"], e["a"], min(n, 2), False] for n, e in enumerate(failing, 1)]
    spec = plan(FAULTS).spec.group("two")
    assert spec is not None
    bound = bind_group(spec)
    executor = Executor(bound, ["Two"])
    run = InputRun(
        "S",
        np.arange(1, len(sent) + 1),
        np.array([time_ms for time_ms, _ in sent]),
        batch(bound.stream("S"), [list(event.values()) for _, event in sent]),
    )
    batches = [row for r in executor.run([run], {"S": sent[-1][0]}) for row in values(r.rows)]
    await view.service.deploy(FAULTS)
    await view.until_running("Faults")
    await publish(view, "Faults", sent[:60])
    await row_values(view, "Faults", "Three", 4)
    await kill.happens()
    await publish(view, "Faults", sent[60:])
    assert await row_values(view, "Faults", "Three", len(wanted)) == wanted
    assert await row_values(view, "Faults", "Two", len(batches)) == batches
    assert await view.service.events.failed("Faults", 10) == []
    await view.service.undeploy("Faults")
