"""Sinks of streams with object attributes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.mapping.events import Refusal
from mesh.plan.build import plan
from mesh.plan.connectors import connector_of, make_mapper
from mesh.plan.sink_objects import with_sink_objects
from mesh.testing import app_tests
from mesh.testing.app_tests import TimedEvent

HTTP = "@sink(type='http', publisher.url='http://h:8080/x', @map({})) "
_RAW = "type='json', json.attributes='k'"
_READ = "from A select k, json:toObject(j) as o, n insert into S;"
TEXT = f"""@App:name('X')
define stream A (k string, j string, n double);
{HTTP.format("type='json'")}
@sink(type='log')
{HTTP.format("type='json', @payload('[{{{o}}}, {{n}}]')")}
{HTTP.format("type='csv'")}
define stream S (k string, o object, n double);
@dist(execGroup='g') {_READ}
from S select k, json:getInt(o, '$.a') as a insert into T;
"""
EVENTS = ['{"a":1.10,"b":["x"]}', '"x"', None, "[1]"]


def payloads(stream: str, at: int) -> list[str]:
    """Payloads that a sink sends of the events that reach its stream."""
    bound = plan(TEXT).bound
    found = app_tests.play(
        TEXT,
        [TimedEvent(n, "A", {"k": "k", "j": one, "n": 0.1}) for n, one in enumerate(EVENTS, 1)],
    )
    rows = [dict(one.event or {}) for one in found if one.stream == stream]
    sinks = [a for name, a in bound.stream_annotations if name == stream]
    mapper = make_mapper(connector_of(sinks[at]), bound.stream(stream))
    batch = pa.RecordBatch.from_pylist(rows, bound.stream(stream).arrow)
    return [one.decode() for one in mapper.encode(batch)]


def test_payloads_of_json_have_objects_as_they_are() -> None:
    assert payloads("S_json", 0) == [
        '{"event":{"k":"k","o":{"a":1.10,"b":["x"]},"n":0.1}}',
        '{"event":{"k":"k","o":"x","n":0.1}}',
        '{"event":{"k":"k","o":null,"n":0.1}}',
        '{"event":{"k":"k","o":[1],"n":0.1}}',
    ]
    assert payloads("S_json", 1)[0] == '{"k":"k","o":{"a":1.10,"b":["x"]},"n":0.1}'


def test_other_payloads_have_their_texts() -> None:
    assert payloads("S_texts", 0)[:2] == ['[{"a":1.10,"b":["x"]}, 0.1]', "[x, 0.1]"]
    assert payloads("S_texts", 1)[1:] == ["k,x,0.1", "k,null,0.1", "k,[1],0.1"]


def test_the_group_that_inserts_makes_the_texts() -> None:
    groups = {group.name: group for group in plan(TEXT).spec.groups}
    written = [one.stream.name for one in groups["g"].outputs]
    assert written == ["S", "S_json", "S_texts"]
    names = [query.name for query in plan(TEXT).bound.queries]
    assert names == ["query-1", "query-2", "S_json", "S_texts"]


def test_clients_and_sources_may_fill_the_stream() -> None:
    source = "@source(type='http', receiver.url='http://h:8280/s', @map(type='json')) "
    for more in ("", source):
        spec = plan(f"@App:name('X') {more} @sink(type='log') define stream S (o object);").spec
        assert {"S", "S_json"} <= {channel.stream.name for channel in spec.channels}


@pytest.mark.parametrize(
    "sinks",
    [
        "",
        HTTP.format("type='arrow'"),
        "@sink(type='http', publisher.url='http://h:8080/x', on.error='STREAM', @map(type='json'))",
    ],
)
def test_other_sinks_stay_as_they_are(sinks: str) -> None:
    app = parse(f"@App:name('X') {sinks} define stream S (o object);")
    assert with_sink_objects(app) is app


def test_a_format_without_objects_says_how_they_are_sent() -> None:
    sink = HTTP.format("type='msgpack'")
    text = f"@App:name('X') {sink} define stream S (o object);"
    with pytest.raises(MeshError, match="is an object") as refused:
        plan(
            f"{text} define stream A (k string); from A select json:toObject(k) as o insert into S;"
        )
    assert "json:toString(a)" in str(refused.value.hint)


def test_texts_that_are_no_json_are_refused() -> None:
    text = f"@App:name('X') {HTTP.format(_RAW)} define stream S (k string, n int);"
    bound = plan(f"{text} define stream A (k string, n int); from A insert into S;").bound
    ((_, sink),) = bound.stream_annotations
    mapper = make_mapper(connector_of(sink), bound.stream("S"))
    rows = [{"k": one, "n": 1} for one in ("[1]", '1,"x":2', None)]
    good, bad, null = mapper.encode(pa.RecordBatch.from_pylist(rows, bound.stream("S").arrow))
    assert (good, null) == (b'{"event":{"k":[1],"n":1}}', b'{"event":{"k":null,"n":1}}')
    assert isinstance(bad, Refusal)
    with pytest.raises(MeshError, match='names "n"'):
        plan(text.replace("json.attributes='k'", "json.attributes='n'"))
