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
from mesh.mapping.events import Refusal
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.receiver.decoding import decoded as receiver_decoded
from tests.support.mappers import BATCH, DEFAULTS, ROWS, STREAM, decoded, rows


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


def test_mappers_need_no_spark() -> None:
    code = "import sys, mesh.mapping; print(' '.join(sys.modules))"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert not loaded & {"pyspark", "py4j", "numba", "pandas", "nats"}


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
