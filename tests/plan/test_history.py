"""The groups that history runs through, and the apps that are refused."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError
from mesh.plan.build import plan
from mesh.plan.history import fed_groups

HEAD = "@App:name('A') define stream S (k string, a int); define stream Other (k string, b int);"
ONE = "@dist(execGroup='one') from S[a > 1] select k, a insert into T;"
SUMS = "@dist(execGroup='two') from T#window.length(3) select sum(a) as s insert into U;"

JOIN = """@dist(execGroup='j') from S#window.length(2) join Other#window.length(2)
select S.a as a insert into T;"""
FUNCTION = """define function f[python] return int { return 1 };
@dist(execGroup='one') from S select f(a) as a insert into T;"""


def test_groups_come_after_those_that_write_what_they_read() -> None:
    middle = "define stream T (k string, a int);"
    assert fed_groups(plan(HEAD + middle + SUMS + ONE).spec, ["S"]) == ("one", "two")


def test_partitioners_are_among_them_and_groups_of_other_streams_are_not() -> None:
    text = (
        HEAD + "@dist(execGroup='by', parallel='2', partitions='4') partition with (k of S) begin "
        "from S select k, sum(a) as s insert into T; end;"
        "@dist(execGroup='else') from Other select b insert into V;"
    )
    assert fed_groups(plan(text).spec, ["S"]) == ("partition-S-k", "by")


@pytest.mark.parametrize(
    ("queries", "stream", "why"),
    [
        (ONE, "Nothing", "no group reads"),
        (ONE + SUMS, "T", "computes stream"),
        (JOIN, "S", 'reads stream "other" as well'),
        (
            ONE + SUMS + "@dist(execGroup='three') from S select k, a insert into T;",
            "S",
            "write one stream",
        ),
        (FUNCTION, "S", "functions of its own"),
    ],
)
def test_what_depends_on_more_than_the_files_is_refused(
    queries: str, stream: str, why: str
) -> None:
    with pytest.raises(MeshError) as error:
        fed_groups(plan(HEAD + queries).spec, [stream])
    assert error.value.code == "MESH-C160"
    assert why in (error.value.detail or "").lower()


def test_a_clock_that_advances_while_idle_is_refused() -> None:
    text = "@App:playback(idle.time='1 sec', increment='1 sec')" + HEAD + ONE
    with pytest.raises(MeshError, match="MESH-C160"):
        fed_groups(plan(text).spec, ["S"])
