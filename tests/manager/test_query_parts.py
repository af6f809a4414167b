"""Plans of on-demand queries: the partition that has the only group that a query asks for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mesh.errors import MeshError
from mesh.manager.query_parts import plan_query
from mesh.model.partition import partitions
from mesh.plan.build import plan
from tests.support.stored_states import APP

COUNT = 16
SPEC = plan(
    "@App:name('Shop') define stream S (k string, n int, l long, p double);\n"
    f"@dist(execGroup='by-text', partitions='{COUNT}') define aggregation A from S "
    "select k as name, sum(p) as total group by k aggregate every sec...year;\n"
    f"@dist(execGroup='by-two', partitions='{COUNT}') define aggregation B from S "
    "select n, l, sum(p) as total group by n, l aggregate every sec...year;\n"
    "@dist(execGroup='whole') define aggregation C from S "
    "select sum(p) as total aggregate every sec...year;"
).spec
GROUPS = tuple((group.name, group.text) for group in SPEC.groups)


def part_of(query: str) -> int | None:
    found = plan_query(SPEC.text, GROUPS, query)
    assert found.group is not None
    group = SPEC.group(found.group)
    assert group is not None
    return found.part_of(group)


def asked(name: str, on: str) -> int | None:
    return part_of(f"from {name} on {on} within 0L, 4000000000000L per 'hours' select total")


@pytest.mark.parametrize("key", ["a", "some name", "", "ümlaut", "42"])
def test_a_group_is_in_the_partition_of_its_events(key: str) -> None:
    columns: list[Any] = [pa.array([key])]
    assert asked("A", f"name == '{key}'") == partitions(columns, COUNT)[0]
    assert asked("A", f"total > 1.0 and '{key}' == A.name") == partitions(columns, COUNT)[0]


def test_a_group_of_several_attributes_is_found_by_all_of_them() -> None:
    columns: list[Any] = [pa.array([7], pa.int32()), pa.array([-9], pa.int64())]
    assert asked("B", "l == -9L and n == 7") == partitions(columns, COUNT)[0]
    assert asked("B", "n == 7") is None


@pytest.mark.parametrize(
    "on",
    [
        # The group of events without a value as well.
        "name == 'null'",
        "name == 'a' or name == 'b'",
        "not (name == 'a')",
        "name != 'a'",
        "total > 1.0",
    ],
)
def test_a_query_that_may_find_other_groups_asks_all_partitions(on: str) -> None:
    assert asked("A", on) is None


def test_an_aggregation_that_is_not_divided_has_no_partition() -> None:
    assert asked("C", "total > 1.0") is None
    assert part_of("from A_SECONDS on k == 'a' select k") is None


def test_a_table_that_no_query_uses_is_kept_by_a_group_of_one_instance() -> None:
    definitions = "@App:name('A') define stream S (k string); define table U (k string);"
    home = f"{definitions} from S select k insert into O;"
    shared = (
        f"{definitions} @dist(execGroup='g', parallel='2') partition with (k of S) begin "
        "from S select k insert into O; end;"
    )
    for text, group in ((home, "default"), (shared, None), (definitions, None)):
        spec = plan(text).spec
        groups = tuple((one.name, one.text) for one in spec.groups)
        assert plan_query(spec.text, groups, "from U select k").group == group
        change = "select 'a' as k insert into U"
        if group is None:
            with pytest.raises(MeshError, match="which no query uses"):
                plan_query(spec.text, groups, change)
        else:
            assert plan_query(spec.text, groups, change).group == group
            assert [one.stateful for one in spec.groups if one.name == group] == [True]


def test_a_query_has_no_table_of_another_group() -> None:
    """There each would look empty to the other's state."""
    text = APP.replace(
        "from Orders select item, n insert into Recent;",
        "@dist(execGroup='other') from Orders select item insert into Unused;\n"
        "from Orders select item, n insert into Recent;",
    )
    spec = plan(text).spec
    groups = tuple((group.name, group.text) for group in spec.groups)
    query = "from Prices on (Unused.item == Prices.item) in Unused select item"
    with pytest.raises(MeshError, match="MESH-P900"):
        plan_query(text, groups, query)
    assert plan_query(text, groups, "from Unused").group == "other"
    assert plan_query(APP, groups[:1], query).group == "default"


def test_no_stream_has_the_subject_of_queries() -> None:
    with pytest.raises(MeshError, match="MESH-P214"):
        plan(APP.replace("insert into Seen", "insert into _query"))
