"""Several events in one payload, headers, enclosing elements and checks of templates."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mesh.connect.contract import NodeAccess
from mesh.errors import MeshError
from mesh.jetstream import failed
from mesh.mapping import sink_mapper
from mesh.mapping.events import Refusal
from mesh.model import names
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.plan.build import plan
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from mesh.testing.payload_cases import PayloadCase
from tests.support.connectors import Endpoint, staged

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

STREAM = StreamSchema(
    "S", (Attribute("s", AttributeType.STRING), Attribute("n", AttributeType.INT))
)
ROWS = pa.RecordBatch.from_pylist([{"s": "x", "n": 1}, {"s": "<&", "n": None}], STREAM.arrow)
NIL = '<n xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:nil="true"/>'
GROUPED = {"event.grouping.enabled": True}
APP = """@App:name('{app}')
define stream S (k string, n int);
@sink(type='http', publisher.url='URL', OPTIONS@map(type='json', event.grouping.enabled='true'))
define stream T (k string, n int);
from S select k, n insert into T;
"""


def payload(kind: str, options: dict[str, Any], template: str | None = None, count: int = 2) -> str:
    given = [(None, template)] if template is not None else []
    mapper: Any = sink_mapper(kind, options | GROUPED, given, STREAM)
    found: Sequence[bytes] = mapper.encode(ROWS.slice(0, count))
    return str((mapper.header + mapper.join(found)).decode())


@pytest.mark.parametrize(
    ("kind", "options", "template", "one", "two"),
    [
        ("json", {}, None, '{"event":{"s":"x","n":1}}',
         '[{"event":{"s":"x","n":1}},{"event":{"s":"<&","n":null}}]'),
        ("json", {"enclosing.element": "$.p"}, '{"v":"{{s}}"}', '{"p":{"v":"x"}}',
         '{"p":[{"v":"x"},\n{"v":"<&"}]}'),
        ("xml", {}, None, "<events><event><s>x</s><n>1</n></event></events>",
         f"<events><event><s>x</s><n>1</n></event><event><s>&lt;&amp;</s>{NIL}</event></events>"),
        ("xml", {"enclosing.element": "<a><b k='1'>"}, "<v>{{s}}</v>",
         "<a><b k='1'><v>x</v></b></a>", "<a><b k='1'><v>x</v><v>&lt;&amp;</v></b></a>"),
        ("csv", {"header": True, "delimiter": "-"}, None, "s-n\nx-1", "s-n\nx-1\n<&-null"),
        ("text", {"delimiter": "~~"}, None, 's:"x",\nn:1', 's:"x",\nn:1\n~~\ns:"<&",\nn:null'),
        ("text", {"delimiter": "~~", "new.line.character": "\r\n"}, "{{s}}", "x", "x\r\n~~\r\n<&"),
    ],
)  # fmt: skip
def test_payloads_of_one_event_and_of_several(
    kind: str, options: dict[str, Any], template: str | None, one: str, two: str
) -> None:
    assert payload(kind, options, template, 1) == one
    assert payload(kind, options, template) == two


def test_a_template_is_inside_of_the_enclosing_element_and_mustache_escapes() -> None:
    def alone(kind: str, template: str, **options: Any) -> list[bytes]:
        given = {name.replace("_", "."): value for name, value in options.items()}
        return sink_mapper(kind, given, [(None, template)], STREAM).encode(ROWS)

    assert alone("json", '{"v":{{n}}}', enclosing_element="$.p.q")[0] == b'{"p":{"q":{"v":1}}}'
    assert alone("xml", "<v/>", enclosing_element="<p>") == [b"<p><v/></p>"] * 2
    text = "{{{s}}} {{&s}} {{ s }}={{n}}"
    assert alone("text", text, mustache_enabled=True)[1] == b"<& <& &lt;&amp;=null"
    with pytest.raises(ValueError, match=r"\{\{#s\}\}.*sections"):
        alone("text", "{{#s}}", mustache_enabled=True)


def test_three_braces_put_a_value_in_as_it_is() -> None:
    rows = pa.RecordBatch.from_pylist([{"s": '{"a":"b"}', "n": 1}], STREAM.arrow)
    for kind, template, expected in (
        ("json", '{"v":{{{s}}},"t":"{{s}}"}', b'{"v":{"a":"b"},"t":"{\\"a\\":\\"b\\"}"}'),
        ("json", '{"p":{"v":{{{s}}}}}', b'{"p":{"v":{"a":"b"}}}'),
        ("text", "{{{s}}}{{n}}", b'{"a":"b"}1'),
    ):
        assert sink_mapper(kind, {}, [(None, template)], STREAM).encode(rows) == [expected]
    rows = pa.RecordBatch.from_pylist([{"s": "<b/>", "n": 1}], STREAM.arrow)
    (payload,) = sink_mapper("xml", {}, [(None, "<v>{{{s}}}</v>{{s}}")], STREAM).encode(rows)
    assert b"<v><b/></v>&lt;b/&gt;" in payload


def test_names_in_three_braces_are_checked_with_the_app() -> None:
    text = (
        "@App:name('A') @sink(type='log', @map(type='json', @payload('{{{%s}}}'))) "
        "define stream T (a int); define stream S (a int); from S select a insert into T;"
    )
    plan(text % "a")
    with pytest.raises(MeshError, match='names attribute "b"'):
        plan(text % "b")


@pytest.mark.parametrize(
    ("kind", "template", "reason"),
    [("json", '{"v":{{s}}}', "not JSON"), ("xml", "<v>{{n}}</w>", "not XML")],
)
def test_templates_whose_payload_is_invalid_are_refused_if_they_are_checked(
    kind: str, template: str, reason: str
) -> None:
    for more in ({}, GROUPED):
        options = {f"validate.{kind}": True} | more
        found = sink_mapper(kind, options, [(None, template)], STREAM).encode(ROWS)
        assert all(isinstance(one, Refusal) and reason in one.decode() for one in found)
    good = sink_mapper(kind, {f"validate.{kind}": True}, (), STREAM).encode(ROWS)
    assert not any(isinstance(one, Refusal) for one in good)


def test_tags_of_mustache_are_checked_with_the_app() -> None:
    text = (
        "@App:name('A') define stream S (a int); @sink(type='log', @map(type='text', "
        "mustache.enabled='true', @payload('{{{%s}}}'))) define stream T (a int);"
        "from S select a insert into T;"
    )
    plan(text % "a")
    with pytest.raises(MeshError, match=r"\{\{\{b\}\}\}") as refused:
        plan(text % "b")
    assert refused.value.code == "MESH-P232"


async def publish(stage: Stage, *events: dict[str, Any]) -> None:
    """Publish events as one message."""
    lines = "\n".join(map(json.dumps, events)).encode()
    await stage.js.publish(names.subject(stage.spec.name, "T"), lines)


@pytest.mark.slow
@pytest.mark.nats
async def test_events_of_a_message_share_a_payload_and_its_fate(nats_server: NatsServer) -> None:
    end = Endpoint()
    await end.open()
    try:
        own = end.url.replace("/in", "/in?k={{k}}")
        text = APP.replace("{app}", "Out").replace("URL", own).replace("OPTIONS", "")
        async with staged(nats_server, text) as stage:
            end.statuses = [200, 422]
            await publish(stage, *({"k": "ab"[n % 2], "n": n} for n in range(5)))
            await publish(stage, {"k": "a", "n": 5})
            stage.start("sink-T")
            await stage.until("two payloads", lambda: len(end.bodies) == 2)
            found = [[e["event"]["n"] for e in body] for body in end.bodies[:1]]
            assert found == [[0, 2, 4]]
            assert end.bodies[1] == {"event": {"k": "a", "n": 5}}
            assert end.keys == ["Out/T/inc/1.0", "Out/T/inc/2.0"]
            (entry,) = await stage.until("the refused payload", stage.errors)
            assert json.loads(entry["data"]) == [{"event": {"k": "b", "n": n}} for n in (1, 3)]
            assert [json.loads(line)["n"] for line in entry["event"].split("\n")] == [1, 3]
            await stage.until("counts", lambda: stage.reports[-1].events_out == 4)
            assert stage.reports[-1].errors == 2
            entry["id"] = 1
            await failed.send(stage.client, "Out", entry, None)
            assert [e["event"]["n"] for e in end.bodies[2]] == [1, 3]
            assert end.keys[2] == "Out/T/inc/1.1"
    finally:
        await end.close()


@pytest.mark.nats
async def test_each_event_of_a_refused_payload_is_an_event_of_the_fault_stream(
    nats_server: NatsServer,
) -> None:
    end = Endpoint()
    await end.open()
    try:
        text = APP.replace("{app}", "Out").replace("URL", end.url)
        text = text.replace("@sink", "@OnError(action='STREAM') @sink")
        text = text.replace("OPTIONS", "on.error='STREAM', ")
        text += "from !T select k, n insert into F;"
        async with staged(nats_server, text) as stage:
            end.statuses = [422]
            await publish(stage, {"k": "a", "n": 1}, {"k": "b", "n": 2})
            stage.start("sink-T")
            name = stage.spec.group("sink-T").outputs[0]  # type: ignore[union-attr]  # it is there

            async def faults() -> bool:
                found = await stage.messages(name.js_stream(), name.subject())
                return len(found) == 2

            await stage.until("two faults", faults)
    finally:
        await end.close()


@pytest.mark.nats
@pytest.mark.parametrize("uri", ["out.csv", "{{k}}.csv"])
async def test_a_header_begins_each_file(nats_server: NatsServer, tmp_path: Path, uri: str) -> None:
    text = (
        "@App:name('Out') define stream S (k string, n int);"
        f"@sink(type='file', file.uri='{tmp_path}/{uri}', @map(type='csv', header='true'))"
        "define stream T (k string, n int); from S select k, n insert into T;"
    )

    async with staged(nats_server, text, NodeAccess((str(tmp_path),))) as stage:
        first = stage.start("sink-T")
        await publish(stage, {"k": "a", "n": 1}, {"k": "a", "n": 2})
        path = tmp_path / uri.replace("{{k}}", "a")
        await stage.until("2 lines", lambda: path.exists() and "a,2" in path.read_text())
        await first.stop()
        await publish(stage, {"k": "a", "n": 3})
        stage.start("sink-T", epoch=2)
        await stage.until("the third", lambda: "a,3" in path.read_text())
        assert path.read_text() == "k,n\na,1\na,2\na,3\n"


@pytest.mark.nats
async def test_a_repeat_has_the_same_groups_and_keys(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    end = Endpoint()
    await end.open()
    try:
        text = APP.replace("URL", end.url).replace("OPTIONS", "")

        async def send(stage: Stage) -> None:
            await publish(stage, {"k": "a", "n": 0}, {"k": "b", "n": 1})
            await publish(stage, {"k": "a", "n": 2})

        async def arrived(stage: Stage, whole: bool = True) -> list[Any]:
            name = f"{stage.spec.name}/"
            return [b for k, b in zip(end.keys, end.bodies, strict=True) if k.startswith(name)]

        use = ConnectorScenario(
            text, "sink-T", send, partial(arrived), lambda found: len(found) >= 2
        )
        moments = await conform(nats_server.url, use, tmp_path)
        assert {"before write", "after write", "after store a position"} <= set(moments)
    finally:
        await end.close()


def test_a_test_of_an_app_groups_the_events_of_a_time() -> None:
    text = (
        "@App:name('A') define stream S (n int); @sink(type='log', @map(type='json', "
        "event.grouping.enabled='true')) define stream T (n int);"
        "from S select n insert into T;"
    )
    send = [{"stream": "S", "at": f"{n // 2} sec", "event": {"n": n}} for n in range(4)]
    both = [[{"event": {"n": n}}, {"event": {"n": n + 1}}] for n in (0, 2)]
    case = PayloadCase("grouped", text, send, payloads={"T": both})
    assert case.differences() == []
