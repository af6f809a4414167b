"""The operators inside of Spark: the same rows as without it, also when a session dies half-way."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mesh.operators.executor import Executor, InputRun
from mesh.plan.bind.apps import bind_group
from mesh.plan.build import plan
from tests.support.events import events, publish, row_values
from tests.support.scenes import calm, killed
from tools.cases import batch, collect

if TYPE_CHECKING:
    from tests.support.scenes import Kill
    from tools.cluster import MeshClusterView

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

WHOLE = """@App:name('Whole')
define stream S (k string, a int, v double);
@PrimaryKey('k') define table Latest (k string, v double);
define window Recent (k string, v double) length(4) output all events;
define function twice[python] return int {
return data[0] * 2
};
from S#window.length(5) select k, avg(v) as m group by k insert into Length;
from S#window.lengthBatch(4) select k, sum(a) as t, count() as n group by k insert into Batches;
from S#window.timeBatch(1 sec) select max(v) as hi, min(v) as lo insert into Seconds;
from S#window.session(250 millisec, k) select k, count() as n insert into Sessions;
from S#window.sort(3, v, 'desc') select k, v insert expired events into Least;
from S select k, a output last every 3 events insert into Third;
from S select k, sum(a) as t group by k output last every 700 millisec insert into Calm;
from S#window.length(3) as l join S[a % 2 == 0]#window.length(2) as r on l.k == r.k
  select l.a as x, r.a as y insert into Pairs;
from every e1=S[a % 5 == 0] -> e2=S[v > e1.v]<2:3> -> e3=S[k == e1.k]
  select e1.a as x, e2[0].a as y, e3.a as z insert into Chains;
from every e1=S[k == 'k1'] -> not S[k == 'k2'] for 300 millisec select e1.a as x insert into Alone;
from every e1=S, e2=S[v > e1.v]+, e3=S[v < e2[last].v]
  select e1.a as x, e3.a as z insert into Peaks;
partition with (k of S) begin
  from S#window.length(2) select k, a, avg(v) as m insert into #Means;
  from #Means[m > 10.0] select k, a, m insert into Inner;
end;
@dist(execGroup='tables')
from S select k, v update or insert into Latest set Latest.v = v on Latest.k == k;
@dist(execGroup='tables')
from S join Latest as t on S.k != t.k select S.k as k, t.v as v insert into Others;
@dist(execGroup='tables')
from S[(k == Latest.k and v > 50.0) in Latest] select a insert into High;
from S select k, v insert into Recent;
from Recent select k, sum(v) as t insert into OfRecent;
from S select twice(a) as x, str:upper(k) as u, ifThenElse(v > 50.0, 'high', 'low') as h
  insert into Functions;
"""

KEYED = """@App:name('ByKey')
define stream S (k string, a int, v double);
@dist(execGroup='keyed', parallel='2')
partition with (k of S) begin
  from S#window.length(3) select k, a, sum(v) as t insert into #Sums;
  from every e1=#Sums -> e2=#Sums[t > e1.t]
    select e1.k as k, e1.a as x, e2.a as y insert into Rises;
end;
"""


def expected(app: str, group: str, sent: list[tuple[int, dict[str, Any]]]) -> dict[str, list[Any]]:
    """The operators' output for it without Spark, by stream."""
    spec = plan(app).spec.group(group)
    assert spec is not None
    bound = bind_group(spec)
    executor = Executor(bound, [c.stream.name for c in spec.outputs])
    run = InputRun(
        "S",
        np.arange(1, len(sent) + 1),
        np.array([time_ms for time_ms, _ in sent]),
        batch(bound.stream("S"), [list(event.values()) for _, event in sent]),
    )
    found: dict[str, list[Any]] = {}
    collect(executor.run([run], {"S": sent[-1][0]}), found)
    return {stream: [row for _, row in rows] for stream, rows in found.items()}


def both(sent: list[tuple[int, dict[str, Any]]]) -> dict[str, list[Any]]:
    """The rows of both groups of the whole app."""
    return {
        g: r for group in ("default", "tables") for g, r in expected(WHOLE, group, sent).items()
    }


@killed
async def test_every_kind_of_operator_gives_the_same_rows_when_its_session_is_killed(
    view: MeshClusterView, kill: Kill
) -> None:
    sent = events(200)
    wanted = both(sent)
    assert len(wanted) == 16, "every stream has rows"
    await view.service.deploy(WHOLE)
    await view.until_running("Whole")
    await publish(view, "Whole", sent[:100])
    half = both(sent[:100])
    await row_values(view, "Whole", "Functions", len(half["Functions"]))
    await kill.happens()
    await publish(view, "Whole", sent[100:])
    for stream, whole in wanted.items():
        assert await row_values(view, "Whole", stream, len(whole)) == whole, stream
    await view.service.undeploy("Whole")


@pytest.mark.thorough
@calm
async def test_a_partition_is_shared_by_key_between_instances(view: MeshClusterView) -> None:
    sent = events(200)

    def by_key(found: list[list[Any]]) -> dict[str, list[list[Any]]]:
        keyed: dict[str, list[list[Any]]] = defaultdict(list)
        for row in found:
            keyed[row[0]].append(row)
        return keyed

    wanted = expected(KEYED, "keyed", sent)["Rises"]
    await view.service.deploy(KEYED)
    await view.until_running("ByKey")
    await publish(view, "ByKey", sent)
    found = await row_values(view, "ByKey", "Rises", len(wanted))
    assert by_key(found) == by_key(wanted)
    await view.service.undeploy("ByKey")
