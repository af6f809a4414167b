"""Streams with sources into which queries of their readers' group insert as well."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.plan.build import plan
from mesh.plan.inserted_sources import with_inserted_sources
from mesh.testing import app_tests
from mesh.testing.app_tests import TimedEvent

SOURCE = "@source(type='http', receiver.url='http://127.0.0.1:8280/s', @map(type='json')) "
TEXT = f"""@App:name('X')
{SOURCE}
@sink(type='log')
define stream S (k string, v int);
define stream A (k string, v int);
from A select k, v insert into S;
from S[S.v > 1] select S.k as k, v insert into T;
partition with (k of S) begin
  from S#window.length(2) select k, sum(v) as v insert into U;
end;
"""


def test_events_of_the_source_and_of_queries_reach_each_reader() -> None:
    events = [("S", "a", 1), ("A", "a", 2), ("S", "a", 3), ("A", "b", 4)]
    found = app_tests.play(
        TEXT,
        [TimedEvent(at, name, {"k": k, "v": v}) for at, (name, k, v) in enumerate(events, 1)],
    )
    emitted = {
        stream: [tuple((one.event or {}).values()) for one in found if one.stream == stream]
        for stream in "TU"
    }
    assert emitted["T"] == [("a", 2), ("a", 3), ("b", 4)]
    assert emitted["U"] == [("a", 1), ("a", 3), ("a", 5), ("b", 4)]


def test_clients_and_the_source_have_one_stream_and_sinks_have_the_other() -> None:
    spec = plan(TEXT).spec
    groups = {group.name: group for group in spec.groups}
    assert [one.channel.stream.name for one in groups["default"].inputs] == ["A", "S"]
    sink = next(group for name, group in groups.items() if name.startswith("sink"))
    assert [one.channel.stream.name for one in sink.inputs] == ["S_all"]
    names = [query.name for query in plan(TEXT).bound.queries]
    assert names == ["query-1", "query-2", "S_all"]


_WRITE = "define stream A (k string, v int); from A select k, v insert into S; "


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param("from S select k insert into T;", id="no query inserts"),
        pytest.param(_WRITE, id="no query reads"),
        pytest.param(
            f"{_WRITE} @dist(execGroup='g') from S select k insert into T;", id="another group"
        ),
        pytest.param(
            "from S[v < 3] select k, v + 1 as v insert into T; from T insert into S;", id="a loop"
        ),
        pytest.param(
            f"{_WRITE} from S select k insert into T; from !S select k insert into E;", id="faults"
        ),
    ],
)
def test_other_streams_stay_as_they_are(rest: str) -> None:
    app = parse(
        f"@App:name('X') @OnError(action='STREAM') {SOURCE} define stream S (k string, v int); "
        f"{rest}"
    )
    assert with_inserted_sources(app) is app


def test_a_group_of_several_instances_is_refused() -> None:
    text = (
        f"@App:name('X') {SOURCE} define stream S (k string, v int); "
        "define stream A (k string, v int); "
        "@dist(execGroup='g', parallel='2') partition with (k of A, k of S) begin "
        "from A select k, v insert into S; from S select k insert into T; end;"
    )
    with pytest.raises(MeshError, match=r"stream .S. is read by key where it is made"):
        plan(text)
