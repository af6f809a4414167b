"""Mappers both ways: default and custom, and payloads of strangers."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it has no stubs
import orjson
import pyarrow as pa
import pytest

from mesh.mapping import sink_mapper, source_mapper
from mesh.mapping.contract import Refusal
from mesh.mapping.json_source import decode_mapped
from mesh.mapping.texts import text_of
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.receiver.decoding import decoded as receiver_decoded
from pyspark_nats.arrow import ipc_stream

STREAM = StreamSchema(
    "S",
    (
        Attribute("s", AttributeType.STRING),
        Attribute("n", AttributeType.INT),
        Attribute("d", AttributeType.DOUBLE),
        Attribute("b", AttributeType.BOOL),
    ),
)
ROWS: list[dict[str, Any]] = [
    {"s": "x", "n": 1, "d": 1.5, "b": True},
    {"s": 'q"<&>,\n', "n": -2, "d": 2.0, "b": False},
    {"s": None, "n": None, "d": None, "b": None},
]
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=STREAM.arrow)
DEFAULTS: dict[str, dict[str, Any]] = {"text": {"delimiter": "~~~~~~~~~~"}}


def decoded(kind: str, payloads: list[bytes], **more: Any) -> Any:
    options = DEFAULTS.get(kind, {}) | more.get("options", {})
    mapper = source_mapper(kind, options, more.get("attributes", ()), STREAM)
    return mapper.decode(payloads, more.get("properties"))


def rows(kind: str, payloads: list[bytes], **more: Any) -> list[dict[str, Any]]:
    found = decoded(kind, payloads, **more)
    assert found.errors == []
    return list(found.rows.to_pylist())


@pytest.mark.parametrize("kind", ["json", "passThrough", "msgpack", "arrow", "keyvalue", "csv"])
def test_what_a_sink_writes_a_source_reads(kind: str) -> None:
    payloads = sink_mapper(kind, {}, (), STREAM).encode(BATCH)
    assert len(payloads) == 3
    assert rows(kind, payloads) == ROWS


def test_text_and_xml_are_read_as_written() -> None:
    plain = BATCH.slice(0, 1)
    for kind in ("text", "xml"):
        assert rows(kind, sink_mapper(kind, {}, (), STREAM).encode(plain)) == ROWS[:1]
    written = sink_mapper("xml", {}, (), STREAM).encode(BATCH)
    assert rows("xml", written) == ROWS


@pytest.mark.parametrize(
    ("kind", "options", "payload", "expected"),
    [
        ("json", {}, (), b'{"event":{"s":"x","n":1,"d":1.5,"b":true}}'),
        ("json", {"envelope": "none"}, (), b'{"s":"x","n":1,"d":1.5,"b":true}'),
        (
            "json",
            {"enclosing.element": "$.p.q"},
            (),
            b'{"p":{"q":{"event":{"s":"x","n":1,"d":1.5,"b":true}}}}',
        ),
        ("json", {}, ((None, '{"v":"{{s}}-{{n}}"}'),), b'{"v":"x-1"}'),
        ("text", {}, ((None, "s"),), b"x"),
        ("text", {}, (), b's:"x",\nn:1,\nd:1.5,\nb:true'),
        ("csv", {"delimiter": "\\t"}, (), b"x\t1\t1.5\ttrue"),
        ("csv", {}, (("n", "0"), ("s", "1")), b"1,x"),
        ("keyvalue", {}, (("k", "n"), ("l", "{{s}} y"), ("w", "`n`")),
         b'{"k":1,"l":"x y","w":"n"}'),
        ("xml", {}, (),
         b"<events><event><s>x</s><n>1</n><d>1.5</d><b>true</b></event></events>"),
        ("xml", {}, ((None, "<v>{{s}}</v>"),), b"<v>x</v>"),
    ],
)  # fmt: skip
def test_payloads_of_a_sink(
    kind: str, options: dict[str, str], payload: tuple[Any, ...], expected: bytes
) -> None:
    mapper = sink_mapper(kind, options, payload, STREAM)
    assert mapper.encode(BATCH.slice(0, 1)) == [expected]


def test_values_in_a_template_are_escaped() -> None:
    (text,) = sink_mapper("json", {}, ((None, '{"v":"{{s}}"}'),), STREAM).encode(BATCH.slice(1, 1))
    assert orjson.loads(text) == {"v": ROWS[1]["s"]}
    (xml,) = sink_mapper("xml", {}, ((None, "<v>{{s}}</v>"),), STREAM).encode(BATCH.slice(1, 1))
    assert xml == b'<v>q"&lt;&amp;&gt;,\n</v>'


def test_nan_in_a_template_of_json_is_a_word_of_a_text_or_refused() -> None:
    rows = pa.RecordBatch.from_pylist([{**ROWS[0], "d": d} for d in (math.nan, 1.5)], STREAM.arrow)
    text = sink_mapper("json", {}, ((None, '{"v":"{{d}}"}'),), STREAM)
    assert text.encode(rows) == [b'{"v":"NaN"}', b'{"v":"1.5"}']
    number = sink_mapper("json", {}, ((None, '{"v":{{d}}}'),), STREAM)
    refused, good = number.encode(rows)
    assert isinstance(refused, Refusal)
    assert refused == b'attribute "d" is NaN, which JSON does not have'
    assert good == b'{"v":1.5}'


@pytest.mark.parametrize("d", [math.nan, -math.inf])
def test_numbers_that_the_json_of_streams_lacks_are_refused(d: float) -> None:
    mapper = source_mapper("msgpack", {}, (), STREAM)
    payloads = [msgpack.packb({**ROWS[0], "d": one}) for one in (1.5, d, 2.5)]
    found = receiver_decoded(mapper, STREAM.arrow, payloads)
    assert found.rows.column("d").to_pylist() == [1.5, 2.5]
    word = "NaN" if math.isnan(d) else "-Infinity"
    assert found.errors == [(1, 0, f'attribute "d" is {word}, which JSON does not have')]


@pytest.mark.parametrize(
    ("kind", "options", "attributes", "payload"),
    [
        ("json", {}, (), b'{"event":{"s":"x","n":1,"d":1.5,"b":true}}'),
        ("json", {}, (), b' [ {"event":{"s":"x","n":1,"d":1.5,"b":true}}]'),
        ("json", {}, (), b'{"b":true,"d":1.5,"n":1,"s":"x","other":[]}'),
        ("json", {"enclosing.element": "$.p"}, (), b'{"p":{"s":"x","n":1,"d":1.5,"b":true}}'),
        (
            "json",
            {"enclosing.element": "$.p"},
            (("s", "$.a.s"), ("n", "n"), ("d", "trp:Score"), ("b", "$.b")),
            b'{"p":[{"a":{"s":"x"},"n":1,"b":true}]}',
        ),
        (
            "text",
            {"regex.A": r"(\w+) (\d+) (\S+) (\w+)"},
            (("s", "A[1]"), ("n", "A[2]"), ("d", "A[3]"), ("b", "A[4]")),
            b"x 1 1.5 TRUE",
        ),
        ("csv", {}, (("s", "3"), ("n", "2"), ("d", "1"), ("b", "0")), b"true,1.5,1,x"),
        ("csv", {"header": True}, (), b"s,n,d,b\nx,1,1.5,true"),
        ("csv", {"header": True}, (), b"b,other,d,n,s\ntrue,0,1.5,1,x"),
        ("csv", {"header": True}, (), b"any,four,words,here\nx,1,1.5,true"),
        (
            "xml",
            {"enclosing.element": "//e", "enclosing.element.as.event": True},
            (),
            b"<r><e><s>x</s><n>1</n><d>1.5</d><b>true</b></e></r>",
        ),
        (
            "xml",
            {"extract.leaf.node.data": True},
            (),
            b"<events><event><p><s>x</s><q><n>1</n></q></p><d>1.5</d><b>true</b></event></events>",
        ),
        ("keyvalue", {}, (), b"s=x&n=1&d=1.5&b=true"),
        (
            "xml",
            {"enclosing.element": "//p:list", "namespaces": "p=urn:p"},
            (("s", "p:s"), ("n", "@n"), ("d", "p:d"), ("b", "p:b")),
            b'<r xmlns="urn:p"><list><e n="1"><s>x</s><d>1.5</d><b>true</b></e></list></r>',
        ),
        ("msgpack", {}, (), msgpack.packb([ROWS[0]])),
    ],
)
def test_payloads_of_a_source(
    kind: str, options: dict[str, Any], attributes: tuple[Any, ...], payload: bytes
) -> None:
    properties = [{"score": 1.5}]
    found = rows(kind, [payload], options=options, attributes=attributes, properties=properties)
    assert found == ROWS[:1]


#: Of the original's documentation: places with attributes, values beside them.
LEAVES = b"""<root>
  <bounds minlat="53.4281"/>
  <child id="1" at="a"/>
  <child id="2" at="b">
    <extra id="9"/><detail key="company" value="wso2"/>
    <name>x</name><detail key="country" value="Sri Lanka"/>
  </child>
</root>"""
_NONE: dict[str, Any] = {"k": None, "v": None, "name": None}


@pytest.mark.parametrize(
    ("paths", "payload", "expected"),
    [
        (
            {"id": "/child/@id", "k": "/child/detail/@key", "v": "detail/@value", "name": "name"},
            LEAVES,
            [
                {**_NONE, "id": 1},
                {**_NONE, "id": 2, "name": "x"},
                {"id": 2, "k": "company", "v": "wso2", "name": "x"},
                {"id": 2, "k": "country", "v": "Sri Lanka", "name": "x"},
            ],
        ),
        (
            {"id": "@id", "k": "a/b/c", "v": "a/@v", "name": "p:n"},
            b"""<root xmlns:q="u"><child id="5"><q:n> y </q:n>
            <a v="1"><b><c>7</c><d/></b><b><c>8</c></b></a></child></root>""",
            [
                {"id": 5, "k": "7", "v": "1", "name": "y"},
                {"id": 5, "k": "8", "v": "1", "name": "y"},
            ],
        ),
        (
            {"id": "@id", "k": "d", "v": "d/@u", "name": "/child"},
            b"""<root><child id="1"><d u="m">7</d><d u="s">8</d></child><child id="2">z</child>
            </root>""",
            [
                {"id": 1, "k": "7", "v": "m", "name": None},
                {"id": 1, "k": "8", "v": "s", "name": None},
                {"id": 2, "k": None, "v": None, "name": "z"},
            ],
        ),
    ],
)
def test_innermost_elements_are_events_with_the_values_around_them(
    paths: dict[str, str], payload: bytes, expected: list[dict[str, Any]]
) -> None:
    kinds = {"id": "INT", "k": "STRING", "v": "STRING", "name": "STRING"}
    stream = StreamSchema("S", tuple(Attribute(n, AttributeType[k]) for n, k in kinds.items()))
    options = {"enclosing.element": "/root/child", "extract.leaf.node.data": True}
    for switch in ("enclosing.element.as.event", "enable.streaming.xml.content"):
        given = {**options, switch: True, "fail.on.missing.attribute": False}
        found = source_mapper("xml", given, [*paths.items()], stream).decode([payload])
        assert (found.rows.to_pylist(), found.errors) == (expected, [])
    strict = source_mapper("xml", {**options, switch: True}, [*paths.items()], stream)
    whole = [one for one in expected if None not in one.values()]
    assert strict.decode([payload]).rows.to_pylist() == whole


@pytest.mark.parametrize("path", ["//detail/@key", "detail[1]", ".", "a/*", "detail/"])
def test_a_path_to_innermost_elements_has_names_only(path: str) -> None:
    stream = StreamSchema("S", (Attribute("k", AttributeType.STRING),))
    with pytest.raises(ValueError, match=r"has names only, as in /child/detail/@key"):
        source_mapper("xml", {"extract.leaf.node.data": True}, [("k", path)], stream)


CUSTOM = {
    "json": (b'[{"v":1.5},{"v":2.0}]', "$.v"),
    "csv": (b"1.5\n2.0", "0"),
    "text": (b"v:1.5\n~~~~~~~~~~\nv:2.0", "V[1]"),
    "keyvalue": (b'[{"v":1.5},{"v":2.0}]', "v"),
    "xml": (b"<events><event><v>1.5</v></event><event><v>2.0</v></event></events>", "v"),
    "passThrough": (b'[{"v":1.5},{"v":2.0}]', "v"),
    "msgpack": (msgpack.packb([{"v": 1.5}, {"v": 2.0}]), "v"),
}


@pytest.mark.parametrize("kind", CUSTOM)
def test_attributes_of_the_transport_beside_those_of_any_payload(kind: str) -> None:
    kinds = {"topic": "STRING", "v": "DOUBLE", "n": "INT", "flag": "BOOL"}
    stream = StreamSchema("S", tuple(Attribute(n, AttributeType[k]) for n, k in kinds.items()))
    payload, path = CUSTOM[kind]
    pairs = [("v", path), ("topic", "trp:Topic"), ("n", "trp:n"), ("flag", "trp:flag")]
    options: dict[str, Any] = DEFAULTS.get(kind, {}) | (
        {"regex.V": "v:([0-9.]+)"} if kind == "text" else {}
    )
    given = [
        {"topic": "a", "n": "7", "flag": "TRUE"},
        {"topic": "b", "n": "x", "flag": "no"},
        {"topic": "c", "flag": "no"},
    ]
    found = source_mapper(kind, options, pairs, stream).decode([payload] * 3, given)
    assert found.rows.to_pylist() == [
        {"topic": "a", "v": v, "n": 7, "flag": True} for v in (1.5, 2.0)
    ]
    assert found.message.tolist() == [0, 0]
    reasons = ['attribute "n" is "x", not an int', 'attribute "n" is missing']
    assert found.errors == [(n, at, why) for n, why in enumerate(reasons, 1) for at in (0, 1)]
    lenient = source_mapper(kind, {**options, "fail.on.missing.attribute": False}, pairs, stream)
    kept = lenient.decode([payload], [{"topic": "c"}]).rows.to_pylist()
    assert kept[1] == {"topic": "c", "v": 2.0, "n": None, "flag": None}


def test_a_payload_of_which_nothing_is_used_is_an_event() -> None:
    stream = StreamSchema("S", (Attribute("path", AttributeType.STRING),))
    mapper = source_mapper("text", DEFAULTS["text"], [("path", "trp:file.path")], stream)
    found = mapper.decode([b"\xff", b""], [{"file.path": "a"}, {"file.path": "b"}])
    assert found.rows.to_pylist() == [{"path": "a"}, {"path": "b"}]


def test_errors_have_the_payload_and_the_index() -> None:
    good = b'{"event":{"s":"x","n":1,"d":1,"b":true}}'
    payloads = [
        good,
        b'[{"event":{"s":"x","n":1,"d":1,"b":true}},{"event":{"s":"x","n":"1","d":1,"b":true}}]',
        b'{"s":"x"}',
        b"{",
    ]
    found = decoded("json", payloads)
    assert found.message.tolist() == [0, 1]
    assert [(message, index) for message, index, _ in found.errors] == [(1, 1), (2, 0), (3, 0)]
    assert '"n"' in found.errors[0][2]
    texts = decoded("csv", [b"x,1,1.5,true", b"y,one,1.5,true", b"z,2\nz,3,4,true"])
    assert texts.rows.column("s").to_pylist() == ["x", "z"]
    assert [(message, index) for message, index, _ in texts.errors] == [(1, 0), (2, 0)]


DEEP = b'{"event":' + b'{"s":' * 100_000
BOMB = (
    b'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    b"<events><event><s>&b;</s></event></events>"
)
OUTSIDE = b'<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]><event><s>&a;</s></event>'
HOSTILE = [
    b"", b"\xff\xfe\x00", b"\x00" * 50, b"null", b"[]]", b'{"event":null}', b'{"event":[]}',
    b"[" * 200_000, DEEP, DEEP.replace(b'"event":', b""), b'{"s":' + b"9" * 5000 + b"}",
    b'{"s":"x","n":1e400,"d":1,"b":true}', b'{"s":"x","n":99999999999,"d":1,"b":true}',
    b'{"s":"\\ud800","n":1,"d":1,"b":true}', BOMB, OUTSIDE, b"<a>" * 5000, b"<a", b'"' * 999,
    b"x," + b"9" * 400 + b",1.5,true", b"a=%ff&" * 20_000, b"x,1,nan(1),true", b"\x91\x91\x91",
    b"\x81" * 4000, b'n:"' + b"(" * 5000, b"ARROW1\x00\x00" * 9,
    b"\xff\xff\xff\xff\x10\x00\x00\x00",
]  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["json", "passThrough", "csv", "text", "keyvalue", "xml", "msgpack", "arrow"]
)
def test_hostile_payloads_are_errors_and_do_not_stop_the_others(kind: str) -> None:
    good = sink_mapper(kind, {}, (), STREAM).encode(BATCH.slice(0, 1))[0]
    found = decoded(kind, [good, *HOSTILE, good])
    assert {0, len(HOSTILE) + 1} <= set(found.message.tolist())
    ours = [row for row, n in zip(found.rows.to_pylist(), found.message, strict=True)
            if n in (0, len(HOSTILE) + 1)]  # fmt: skip
    assert ours == [ROWS[0], ROWS[0]]
    assert all(len(reason) <= 600 for _, _, reason in found.errors)
    refused = {message for message, _, _ in found.errors}
    assert {1 + HOSTILE.index(BOMB), 1 + HOSTILE.index(OUTSIDE), 1 + HOSTILE.index(DEEP)} <= refused


@pytest.mark.parametrize(
    "kind", ["json", "passThrough", "csv", "text", "keyvalue", "xml", "msgpack", "arrow"]
)
def test_cut_and_changed_payloads_raise_nothing(kind: str) -> None:
    chance = random.Random(7)
    good = sink_mapper(kind, {}, (), STREAM).encode(BATCH.slice(0, 2))
    payloads = []
    for _ in range(150):
        octets = bytearray(chance.choice(good))
        for _ in range(chance.randrange(1, 4)):
            octets[chance.randrange(len(octets))] = chance.randrange(256)
        payloads.append(bytes(octets[: chance.randrange(len(octets) + 1)]))
    decoded(kind, payloads)


@pytest.mark.parametrize(
    ("kind", "options", "attributes", "reason"),
    [
        ("csv", {}, (("s", "x"), ("n", "1"), ("d", "2"), ("b", "3")), "positions"),
        ("json", {}, (("s", "$.a"),), "each attribute"),
        ("msgpack", {}, ((None, "1"), (None, "2"), (None, "3"), (None, "4")), "no custom"),
        ("text", {}, (("s", "A["), ("n", "A[1]"), ("d", "A[1]"), ("b", "A[1]")), "no group"),
    ],
)
def test_invalid_mappings_are_refused(
    kind: str, options: dict[str, Any], attributes: tuple[Any, ...], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        source_mapper(kind, DEFAULTS.get(kind, {}) | options, attributes, STREAM)


def test_texts_of_numbers_are_javas() -> None:
    column = pa.array([1.0, 1e10, 0.0001, None, 2.5, 0.0], pa.float64())
    assert text_of(column).to_pylist() == ["1.0", "1.0E10", "1.0E-4", "null", "2.5", "0.0"]


def test_mappers_need_no_spark() -> None:
    code = "import sys, mesh.mapping; print(' '.join(sys.modules))"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert not loaded & {"pyspark", "py4j", "numba", "pandas", "nats"}


@pytest.mark.parametrize(
    "odd",
    [
        b'{"event":{"s":"x","n":1,"d":1,"b":true},"more":{}}',
        b'{"event":{"s":"x","n":1,"d":1,"b":true}{"s":"y"}}',
        b'{"event":{"s":"x","n":1,"d":1,"b":true}, "event":{"s":"y","n":2,"d":2,"b":true}}',
        b'{"event":{"s":"x","n":1,"d":1,"b":true}\r}}',
        b'{"event":{"s":"x","n":1,"d":1,"b":{"c":1}}',
        b'{"event":{"s":"x","n":"1","d":1,"b":true}}',
        b'{"event":{"s":"x"}}',
        b'{"event":{"s":"\xff","n":1,"d":1,"b":true}}',
        b'{"event":{"s":"}}","n":1,"d":1,"b":true,"t":{"u":[{}]}}}',
        b'{"event":{}}',
        b'{"event":{},{}}',
    ],
)
@pytest.mark.parametrize("count", [1, 700])
def test_events_of_envelopes_of_one_layout_are_those_of_others(odd: bytes, count: int) -> None:
    """A space after the first brace has them read as envelopes of any form."""
    good = b'{"event":{"s":"x","n":1,"d":1.5,"b":true}}'
    mapper = source_mapper("json", {}, (), STREAM)
    payloads = [*[good] * count, odd, good]
    found = mapper.decode(payloads)
    expected = mapper.decode([b"{ " + payload[1:] for payload in payloads])
    assert found.rows.equals(expected.rows)
    assert found.message.tolist() == expected.message.tolist()
    assert [e[:2] for e in found.errors] == [e[:2] for e in expected.errors]
    assert found.taken == expected.taken


ALIKE = b'{"event":{"s":"x","n":1,"d":1.5,"b":true}}'
BARE = b'{"s":"y","n":2,"d":2.5,"b":false}'
#: As an app of the original may get them from a source with the mapper json.
MIXED: list[bytes] = [
    BARE,
    ALIKE,
    b"[" + BARE + b"," + BARE + b"]",
    b"[" + ALIKE + b"," + ALIKE + b"]",
    ALIKE + b"\n" + ALIKE,
    b'{"s":{"a":[1, 2.50]},"n":3,"d":3,"b":true}',
    b'{"event":{"s":12.30,"n":4,"d":1e400,"b":true}}',
    b"\xef\xbb\xbf" + ALIKE,
    b'{"event":{"s":"x","n":"1","d":1,"b":true}}',
    b'{"event":null}',
    b"no JSON",
    b"",
]


@pytest.mark.parametrize("first", [BARE, ALIKE])
@pytest.mark.parametrize("many", [0, 700])
def test_a_group_that_reads_messages_itself_has_the_events_of_the_mapper(
    first: bytes, many: int
) -> None:
    payloads = [first] * (many + 1) + MIXED + [first] * many
    expected = decoded("json", payloads)
    found = decode_mapped(
        pa.array(payloads, pa.binary()), pa.nulls(len(payloads), pa.string()), STREAM.arrow
    )
    assert found.rows.equals(expected.rows)
    assert found.rows.num_rows > len(payloads) - 5
    assert (found.message.tolist(), found.index.tolist()) == (
        expected.message.tolist(),
        expected.index.tolist(),
    )
    assert found.errors == expected.errors
    assert {number - many - 1 for number, _, _ in found.errors} == {6, 8, 9, 10, 11}


def test_messages_of_other_types_keep_their_times_beside_such_events() -> None:
    table = BATCH.append_column("_event_time_ms", pa.array([7, 8, 9]))
    payloads = pa.array([ipc_stream(table), ALIKE, b'{"event":1}'], pa.binary())
    kinds = pa.array(["application/vnd.apache.arrow.stream", "application/json", None])
    found = decode_mapped(payloads, kinds, STREAM.arrow)
    assert found.rows.to_pylist() == [*ROWS, {"s": "x", "n": 1, "d": 1.5, "b": True}]
    assert found.event_time_ms.to_pylist() == [7, 8, 9, None]
    assert [number for number, _, _ in found.errors] == [2]
    # Octets are not taken for text.
    refused = decode_mapped(pa.array([ALIKE]), pa.array(["application/msgpack"]), STREAM.arrow)
    assert refused.rows.num_rows == 0


def test_a_pattern_alone_is_its_first_group_and_numbers_may_have_commas() -> None:
    found = rows(
        "text",
        [b"wso2 5,550 volume 1,000.5 true"],
        options={"regex.A": r"(\w+)\s([-0-9,]+)", "regex.B": r"volume\s([-0-9.,]+) (\w+)"},
        attributes=(("s", "A"), ("n", "A[2]"), ("d", "B"), ("b", "B[2]")),
    )
    assert found == [{"s": "wso2", "n": 5550, "d": 1000.5, "b": True}]
    (text,) = rows(
        "text",
        [b"a,b 1"],
        options={"regex.A": r"(\S+) (\d)"},
        attributes=(("s", "A"), ("n", "A[2]"), ("d", "A[2]"), ("b", "A[2]")),
    )
    assert text["s"] == "a,b"


def test_texts_have_quotes_of_either_kind_or_none() -> None:
    for written in ('"it\'s a:b"', "'it's a:b'", "it's a:b"):
        payload = f"s:{written},\nn:1,000,\nd:'1,000.5',\nb:true".encode()
        assert rows("text", [payload]) == [{"s": "it's a:b", "n": 1000, "d": 1000.5, "b": True}]


def test_values_that_are_missing_or_wrong_are_null_where_csv_does_not_fail_on_them() -> None:
    options = {"fail.on.unknown.attribute": False}
    found = rows("csv", [b"x,y,1.5,true\na,7\nb,1,2,false,more"], options=options)
    assert [tuple(one.values()) for one in found] == [
        ("x", None, 1.5, True), ("a", 7, None, None), ("b", 1, 2.0, False),
    ]  # fmt: skip
    assert len(decoded("csv", [b"x,y,1.5,true"]).errors) == 1


def test_paths_of_xml_may_begin_with_the_event_itself() -> None:
    payload = (
        b'<all><one><s k="x">t</s><n>1</n><b>1</b></one><two><s k="y">t</s><n>2</n></two>'
        b'<one><s k="z">t</s><n>3</n><b>1</b></one></all>'
    )
    found = rows(
        "xml",
        [payload],
        options={"enclosing.element": "/all/one", "enclosing.element.as.event": True},
        attributes=(("s", "/one/s/@k"), ("n", "/one/n"), ("d", "//n"), ("b", "/one/b")),
    )
    assert [tuple(one.values()) for one in found] == [("x", 1, 1.0, True), ("z", 3, 3.0, True)]
