"""Object attributes of streams from outside."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]  # has no types
import orjson
import pyarrow as pa
import pytest

from mesh.language.parser import parse
from mesh.mapping import source_mapper
from mesh.plan.build import plan
from mesh.plan.outside_objects import with_objects
from mesh.spark.instance_io import decoder_of
from mesh.testing import app_tests
from mesh.testing.app_tests import TimedEvent

SOURCE = "@source(type='http', receiver.url='http://127.0.0.1:8280/in', @map(type='{}')) "
TEXT = f"""@App:name('A')
{SOURCE.format("json")}
define stream S (k string, o object);
define aggregation G from S select k, count() as n group by k aggregate every sec;
@info(name='q') from S[not (S.o is null)] select S.k as k, json:getString(S.o, '$.a') as a
insert into T;
partition with (S.k of S) begin
  from every e1=S -> S[k == e1.k] select e1.k as k, json:toString(S.o) as o insert into U;
end;
from S as l join S#window.length(2) as r on l.k == r.k
select l.k as k, json:getInt(r.o, '$.n') as n insert into V;
"""


OBJECTS = [{"a": "x", "n": 1}, [2], None, {"a": "y", "n": 3}]


@pytest.mark.parametrize(("kind", "pack"), [("json", orjson.dumps), ("msgpack", msgpack.packb)])
def test_a_query_makes_objects_of_what_a_mapper_reads(kind: str, pack: Any) -> None:
    stream = plan(TEXT).bound.stream("S")
    read = source_mapper(kind, {}, (), stream).decode([pack({"k": "k", "o": o}) for o in OBJECTS])
    assert read.errors == []
    found = app_tests.play(
        TEXT,
        [TimedEvent(at, "S", one) for at, one in enumerate(read.rows.to_pylist(), 1)],
    )
    emitted = {
        stream: [[*(one.event or {}).values()] for one in found if one.stream == stream]
        for stream in "TUV"
    }
    assert emitted["T"] == [["k", "x"], ["k", None], ["k", "y"]]
    assert [value for _, value in emitted["U"]] == ["[2]", None, '{"a":"y","n":3}']
    assert ["k", 1] in emitted["V"]


def test_the_events_of_a_test_may_have_lists_and_objects() -> None:
    events = [TimedEvent(at, "S", {"k": "k", "o": one}) for at, one in enumerate(OBJECTS, 1)]
    found = app_tests.play(TEXT, events)
    assert [one.event for one in found if one.stream == "T"] == [
        {"k": "k", "a": "x"}, {"k": "k", "a": None}, {"k": "k", "a": "y"},
    ]  # fmt: skip


def test_the_groups_that_read_it_get_objects_and_queries_keep_their_names() -> None:
    spec = plan(
        "@App:name('A') define stream S_objects (a int); "
        f"{SOURCE.format('json')} define stream S (o object); "
        "from S_objects select a insert into R; "
        "@dist(execGroup='g') from S select o insert into T;"
    ).spec
    texts = {group.name: group.text for group in spec.groups}
    assert "json:toObject(o) as o" in texts["default"]
    assert "from S_objects_2" in texts["g"]
    assert "query-2" in texts["g"]
    formats = {one.stream.name: one.format for one in spec.channels}
    assert (formats["S"], formats["S_objects_2"]) == ("json", "arrow")


_READ = "define stream S (o object); from S select o insert into T;"
_MAPPED = SOURCE.format("json")


@pytest.mark.parametrize(
    "text",
    [
        _READ.replace("object", "string"),
        # Tests of an app have objects; and lists of Arrow have no text.
        _READ,
        f"@source(type='nats', stream='X') {_READ}",
        f"{SOURCE.format('arrow')} {_READ}",
        f"{_MAPPED} {_MAPPED.replace('json', 'arrow').replace('8280', '8281')} {_READ}",
        # Others have its attributes.
        f"{_MAPPED} @sink(type='log') {_READ}",
        f"{_MAPPED} {_READ} from T insert into S;",
        f"{_MAPPED} @OnError(action='STREAM') {_READ} from !S select o insert into U;",
    ],
)
def test_other_apps_stay_as_they_are(text: str) -> None:
    app = parse(f"@App:name('A') {text}")
    assert with_objects(app) is app


def test_clients_may_publish_lists_and_objects() -> None:
    spec = plan(
        "@App:name('A') define stream S (k string, o object); "
        "from S select k, json:getString(o, '$.a') as a insert into T;"
    ).spec
    channel = next(one for one in spec.channels if one.stream.name == "S")
    data = pa.array([orjson.dumps({"k": "k", "o": one}) for one in OBJECTS], pa.binary())
    kinds = pa.array(["application/json"] * len(OBJECTS))
    rows = decoder_of(channel)(data, kinds, channel.stream.arrow).rows
    texts = [one and orjson.loads(one) for one in rows.column("o").to_pylist()]
    assert texts == OBJECTS
    (group,) = spec.groups
    assert "json:toObject(o) as o" in group.text


def test_an_attribute_may_have_the_name_of_an_envelope() -> None:
    text = "@App:name('A') define stream S (event object, k string); from S select k insert into T;"
    channel = next(one for one in plan(text).spec.channels if one.stream.name == "S")
    sent = [{"event": {"k": "x"}, "k": "a"}, {"event": 7, "k": "b"}]
    data = pa.array([orjson.dumps(one) for one in sent], pa.binary())
    kinds = pa.array([None] * len(sent), pa.string())
    read = decoder_of(channel)(data, kinds, channel.stream.arrow)
    assert (read.errors, read.rows.to_pylist()) == (
        [], [{"event": '{"k":"x"}', "k": "a"}, {"event": "7", "k": "b"}],
    )  # fmt: skip
