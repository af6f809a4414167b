"""Plans as ``mesh plan`` tells them."""

from __future__ import annotations

import json

import pytest

from mesh.plan.app_elements import elements
from mesh.plan.build import plan
from mesh.plan.explain import explain, to_values
from tests.support.keyed_plans import KEYED


def test_a_plan_is_explained() -> None:
    assert (
        explain(plan(KEYED))
        == """\
app Keyed: 3 groups, 4 instances, 4 channels
delivery: exactly once between channels

group partition-S-k (partitioner, added by the planner, 1 instance)
  instances  Keyed-partition-S-k-1
  S --all--> partition-S-k
  partition-S-k --> S by (k)

group sums (stateful, 2 instances)
  instances  Keyed-sums-1, Keyed-sums-2
  queries    query-1
  S by (k) --by-key--> sums
  sums --> M

group last (stateless, 1 instance)
  instances  Keyed-last-1
  queries    query-2, query-3
  M --all--> last
  last --> T

channels
  stream    format  subject                 JetStream stream
  S         json    mesh.Keyed.S            mesh-Keyed-S
  S by (k)  arrow   mesh.Keyed.S.by.k.0..7  mesh-Keyed-S-by-k-0..7
  M         arrow   mesh.Keyed.M            mesh-Keyed-M
  T         json    mesh.Keyed.T            mesh-Keyed-T

internal streams, never on the wire: N"""
    )


def test_a_plan_tells_where_groups_run_and_what_they_hold() -> None:
    made = plan("""@App:name('A') @source(type='inMemory', topic='s') @sink(type='log')
    define stream S (a int);
    @dist(execGroup='g', parallel='6', node='gpu=true', standby='1', mode='micro-batch')
    from S select a insert into T;
    """)
    text = explain(made)
    assert "group receiver-S (receiver, added by the planner, 1 instance)" in text
    assert "\n  sources    S\n  runs       source inMemory\n" in text
    assert "\n  sinks      S\n  runs       sink log\n  delivery   at least once\n" in text
    assert "\n  instances  A-g-1..6\n  runs on    gpu=true\n" in text
    assert "\n  standby    another worker for each instance\n  mode       micro-batch\n" in text
    group, receiver, _ = to_values(made)["groups"]
    assert (receiver["sources"], receiver["connectors"]) == (["S"], ["source inMemory"])
    assert (group["node"], group["standby"]) == (["gpu=true"], 1)
    assert (receiver["mode"], group["mode"]) == ("real-time", "micro-batch")
    assert len(group["instances"]) == 6


def test_a_plan_is_values() -> None:
    values = json.loads(json.dumps(to_values(plan(KEYED))))
    assert [group["name"] for group in values["groups"]] == ["partition-S-k", "sums", "last"]
    assert values["groups"][1]["reads"] == [
        {
            "stream": "S",
            "strategy": "by-key",
            "key": ["k"],
            "computed": "",
            "records_errors": True,
        }
    ]
    assert len(values["channels"][1]["js_streams"]) == 8
    assert values["internal_streams"] == ["N"]


def test_an_aggregation_is_shown_in_its_group_and_after_its_stream() -> None:
    made = plan(
        "@App:name('A') define stream S (k string, a int); "
        "define aggregation T from S select k, sum(a) as t group by k aggregate every sec...year;"
    )
    assert "  aggregations  T" in explain(made).splitlines()
    (group,) = to_values(made)["groups"]
    assert (group["name"], group["aggregations"]) == ("aggregation-T", ["T"])
    assert elements(made.spec)["edges"] == [{"from": "stream S", "to": "aggregation T"}]


TEXT = """@App:name('A')
define stream S (k string, a int);
@store(type='rdbms', jdbc.url='jdbc:postgresql://h/d'{more}) @PrimaryKey('k')
define table T (k string, a int);
from S join T on T.k == S.k select T.a insert into O;
"""


@pytest.mark.parametrize(
    ("more", "is_read", "is_repeated"),
    [("", False, True), (", kept='false'", True, True), (", @cache(size='9')", True, False)],
)
def test_a_group_whose_reads_are_not_repeated_is_told(
    more: str, is_read: bool, is_repeated: bool
) -> None:
    found = plan(TEXT.format(more=more))
    said = explain(found)
    assert ("T is read there" in said) is is_read
    assert ("at least once" in said) is not is_repeated
    (group,) = to_values(found)["groups"]
    assert group["looked_up"] == (["T"] if is_read else [])
    assert group["cached"] == ([] if is_repeated else ["T"])


REDIS = """@App:name('A')
define stream S (k string, a int);
@store(type='redis', nodes='h:6379@p', ttl.seconds='9') @PrimaryKey('k', 'a')
define table T (k string, a int);
@store(type='redis', nodes='h:6379@p') @PrimaryKey('k') define table Kept (k string, a int);
@info(name='keyed') from S join T on T.k == S.k and S.a + 1 == T.a select T.a insert into O;
@info(name='part') from S join T on T.k == S.k and T.a == T.a select T.a insert into O;
@info(name='whole') from S join T select T.a insert into O;
@info(name='in') from S[(T.a == a or T.k == k) in T] select a insert into O;
@info(name='put') from S update or insert into T on T.k == k and T.a == a;
@info(name='gone') from S delete T on T.a > a;
@info(name='kept') from S join Kept on Kept.a == S.a select S.a insert into O;
"""


def test_queries_that_read_all_rows_of_a_store_are_told() -> None:
    found = plan(REDIS)
    assert "  reads all  T in part, T in whole, T in in, T in gone\n" in explain(found)
    (group,) = to_values(found)["groups"]
    queries = [one["query"] for one in group["scanned"]]
    assert queries == ["part", "whole", "in", "gone"]
    assert group["looked_up"] == ["T"]
    assert "reads all" not in explain(plan(TEXT.format(more=", kept='false'")))
