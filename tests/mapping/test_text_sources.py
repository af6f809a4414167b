"""Texts that programs of others write: headers, byte order marks, quotes, namespaces, charsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pytest

from mesh.mapping import sink_mapper, source_mapper
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.receiver.types.http_source import in_utf8
from tests.support.connectors import staged

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

MARK = b"\xef\xbb\xbf"
NAMES = StreamSchema(
    "S", (Attribute("name", AttributeType.STRING), Attribute("city", AttributeType.STRING))
)
ANN = {"name": "Ann", "city": "Paris"}
ANN_XML = "<event><name>Ann</name><city>Paris</city></event>"


def decoded(kind: str, payload: bytes, **options: Any) -> tuple[list[Any], list[str]]:
    """The events of a payload, and the reasons of its errors."""
    found = source_mapper(kind, options, (), NAMES).decode([payload])
    return found.rows.to_pylist(), [reason for _, _, reason in found.errors]


@pytest.mark.parametrize(
    ("kind", "payload", "options"),
    [
        ("csv", b"city,name\nParis,Ann\n", {"header": True}),
        ("csv", b'"city","name"\r\n"Paris","Ann"\r\n', {"header": True}),
        ("csv", b"Ann,Paris", {}),
        ("csv", b'"Ann","Paris"', {}),
        ("json", b'{"event":{"name":"Ann","city":"Paris"}}', {}),
        ("json", b'{"e":{"name":"Ann","city":"Paris"}}', {"enclosing.element": "$.e"}),
        ("keyvalue", b'{"name":"Ann","city":"Paris"}', {}),
        ("keyvalue", b"name=Ann&city=Paris", {}),
        ("text", b'name:"Ann",\ncity:"Paris"', {"delimiter": "~~~"}),
        ("xml", b"<event><name>Ann</name><city>Paris</city></event>", {}),
    ],
)
def test_a_byte_order_mark_is_no_part_of_a_text(
    kind: str, payload: bytes, options: dict[str, Any]
) -> None:
    assert decoded(kind, MARK + payload, **options) == ([ANN], [])
    assert decoded(kind, payload, **options) == ([ANN], [])


@pytest.mark.parametrize(
    ("kind", "text", "options"),
    [
        ("csv", "city;name\r\nParis;Ann\r\n", {"header": True, "delimiter": ";"}),
        ("csv", "Ann\tParis\r\n", {"delimiter": "\\t"}),
        ("json", '{"name":"Ann","city":"Paris"}', {}),
        ("json", '{"e":{"name":"Ann","city":"Paris"}}', {"enclosing.element": "$.e"}),
        ("keyvalue", '{"name":"Ann","city":"Paris"}', {}),
        ("text", 'name:"Ann",\ncity:"Paris"', {"delimiter": "~~~"}),
        ("xml", f'<?xml version="1.0" encoding="utf-16"?>{ANN_XML}', {}),
    ],
)
@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_a_text_that_says_so_is_in_utf_16(
    kind: str, text: str, options: dict[str, Any], codec: str
) -> None:
    assert decoded(kind, f"\ufeff{text}".encode(codec), **options) == ([ANN], [])
    # The mark alone makes no text of octets.
    rows, errors = decoded(kind, b"\xff\xfe" + text.encode()[:-1] + b"\xd8", **options)
    assert (rows, bool(errors)) == ([], True)


@pytest.mark.parametrize("line", ["sep=;", "SEP=;", '"sep=;"'])
def test_a_line_that_names_the_delimiter_for_excel_is_no_event(line: str) -> None:
    payload = f"{line}\r\nAnn;Paris\r\n".encode()
    assert decoded("csv", payload, delimiter=";") == ([ANN], [])
    assert decoded("csv", b"\xef\xbb\xbf" + payload, delimiter=";") == ([ANN], [])
    headed = f"{line}\r\ncity;name\r\nParis;Ann\r\n;\r\nx\r\n".encode()
    rows, errors = decoded("csv", headed, header=True, delimiter=";")
    assert rows == [ANN, {"name": "", "city": ""}]
    assert errors == ["line 5: the line has 1 values, and value 1 is used"]
    # A file that is read by line.
    lines = [f"{line}\n".encode(), b"Ann;Paris\n"]
    found = source_mapper("csv", {"delimiter": ";"}, (), NAMES).decode(lines)
    assert (found.rows.to_pylist(), found.errors) == ([ANN], [])
    assert decoded("csv", b"sep=x,y") == ([{"name": "sep=x", "city": "y"}], [])


def test_a_decimal_comma_is_no_separator_of_thousands() -> None:
    attributes = Attribute("n", AttributeType.LONG), Attribute("d", AttributeType.DOUBLE)
    texts = ["1,000/-12,345.5", "1,5/2", "1/1,5", "1,0000/2", "1,000,00/2", "12,34,567/2"]
    payloads = ["n:{},\nd:{},".format(*text.split("/")).encode() for text in texts]
    mapper = source_mapper("text", {"delimiter": "~"}, (), StreamSchema("S", attributes))
    found = mapper.decode(payloads)
    assert found.rows.to_pylist() == [{"n": 1000, "d": -12345.5}]
    assert [number for number, _, _ in found.errors] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"City,Name", 'no "name", spelled as in the stream: City, Name'),
        (b"city, name", 'no "name"'),
        (b"city,name ", 'no "name"'),
        (b"NAME,zip,CITY", 'no "name"'),
        (b"city", 'no "name"'),
        (b"town,name", 'no "city"'),
        (b"name,name,city", '"name" more than once'),
        (b'name,"city', "a quote is not closed"),
    ],
)
def test_columns_with_other_names_are_an_error_and_never_swapped(head: bytes, reason: str) -> None:
    rows, (error,) = decoded("csv", head + b"\nParis,Ann,x\n", header=True)
    assert rows == []
    assert error.startswith("line 1: ")
    assert reason in error


@pytest.mark.parametrize("head", [b"a,b", b"Name,City", b"name , city", b"name,town"])
def test_columns_go_by_place_where_no_name_contradicts_it(head: bytes) -> None:
    assert decoded("csv", head + b"\nAnn,Paris\n", header=True) == ([ANN], [])


def test_wrong_lines_are_errors_with_their_number() -> None:
    payload = b'a,"b\nc"\nd\n"e"f,g\nh"i",j\n\n"null",null\nk,l,m\n"n""n",o\np,"q\nr,s'
    rows, errors = decoded("csv", payload)
    assert [(row["name"], row["city"]) for row in rows] == [
        ("a", "b\nc"), ("null", None), ('n"n', "o"),
    ]  # fmt: skip
    stray = "a value without quotes has a quote in it, or text follows a quote"
    assert errors == [
        "line 3: the line has 1 values, the stream 2 attributes",
        f"line 4: {stray}",
        f"line 5: {stray}",
        "line 8: the line has 3 values, the stream 2 attributes",
        "line 10: a quote is not closed; the lines after it are not read",
    ]


def test_a_value_of_the_wrong_type_names_its_line() -> None:
    stream = StreamSchema("S", (Attribute("n", AttributeType.INT),))
    found = source_mapper("csv", {"header": True}, (), stream).decode([b"n\n1\n\nx\n"])
    assert found.rows.to_pylist() == [{"n": 1}]
    assert found.errors == [(0, 1, 'line 4: attribute "n" is "x", not an int')]


def test_lines_of_a_value_in_quotes_that_come_one_by_one_are_errors() -> None:
    """A file that is read line by line cuts such a value."""
    lines = [b'"Ann\n', b'Bell",Paris\n', b"Bob,Rome\n"]
    found = source_mapper("csv", {}, (), NAMES).decode(lines)
    assert found.rows.to_pylist() == [{"name": "Bob", "city": "Rome"}]
    assert [number for number, _, _ in found.errors] == [0, 1]


@pytest.mark.parametrize(
    ("kind", "payload", "line", "options"),
    [
        ("csv", b"Ann,%b\nBob,Rome\n", "line 1: the line", {}),
        ("csv", b'"Ann","%b"\n"Bob","Rome"', "line 1: the line", {}),
        ("csv", b"name,city\nAnn,%b\nBob,Rome", "line 2: the line", {"header": True}),
        ("text", b'name:"Ann",\ncity:"%b"\n~\nname:"Bob",\ncity:"Rome"', "the event",
         {"delimiter": "~"}),
        ("json", b'{"name":"Ann","city":"%b"}\n{"name":"Bob","city":"Rome"}', "not JSON", {}),
    ],
)  # fmt: skip
def test_octets_of_no_text_cost_their_event_alone(
    kind: str, payload: bytes, line: str, options: dict[str, Any]
) -> None:
    rows, (error,) = decoded(kind, payload % b"Par\xefs", **options)
    assert rows == [{"name": "Bob", "city": "Rome"}]
    assert error.startswith(line)
    assert "UTF-8" in error


def test_a_nul_costs_its_line_alone() -> None:
    rows, errors = decoded("csv", b"Ann,Par\0s\nBob,Rome\n")
    assert rows == [{"name": "Bob", "city": "Rome"}]
    assert errors == ["line 1: the line holds a NUL character"]


def test_a_word_in_quotes_is_that_word_and_not_null() -> None:
    payload = b'name:"null",\ncity:null'
    assert decoded("text", payload, delimiter="~") == ([{"name": "null", "city": None}], [])
    (written,) = sink_mapper("text", {"delimiter": "~"}, (), NAMES).encode(
        pa.RecordBatch.from_pylist([{"name": "null", "city": None}], schema=NAMES.arrow)
    )
    assert written == payload


def test_elements_of_xml_are_no_number_together() -> None:
    stream = StreamSchema("S", (*NAMES.attributes, Attribute("n", AttributeType.LONG)))
    text = "<event><name>A<i>n</i>n</name><city>Rome</city><n>{}</n></event>"
    for given in ((), tuple((name, name) for name in ("name", "city", "n"))):
        mapper = source_mapper("xml", {}, given, stream)
        found = mapper.decode([text.format(n).encode() for n in ("<a>1</a><b>2</b>", "12")])
        assert found.rows.to_pylist() == [{"name": "Ann", "city": "Rome", "n": 12}]
        reason = 'attribute "n" is an element with elements inside, not a long'
        assert found.errors == [(0, 0, reason)]


@pytest.mark.parametrize("delimiter", ["", "::", '"', "\n"])
def test_a_delimiter_that_is_not_one_character_is_refused(delimiter: str) -> None:
    with pytest.raises(ValueError, match="delimiter"):
        source_mapper("csv", {"delimiter": delimiter or "ab"}, (), NAMES)


@pytest.mark.parametrize(
    ("payload", "options"),
    [
        (b'<events xmlns="urn:x"><event>%b</event></events>', {}),
        (b'<p:events xmlns:p="urn:x"><p:event>%b</p:event></p:events>', {}),
        (b'<event xmlns="urn:x">%b</event>', {}),
        (b'<r xmlns="urn:x"><l><event>%b</event></l></r>', {"enclosing.element": "/r/l"}),
        (b'<r xmlns="urn:x"><l><event>%b</event></l></r>', {"enclosing.element": "l"}),
    ],
)
def test_the_default_mapping_of_xml_takes_any_namespace(
    payload: bytes, options: dict[str, Any]
) -> None:
    event = b"<name>Ann</name><city>Paris</city>"
    assert decoded("xml", payload % event, **options) == ([ANN], [])


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"\xe9", "text/plain; charset=iso-8859-1", "é"),
        (b"\x80", 'text/csv; charset="windows-1252"', "€"),
        ("ä".encode("utf-16"), "application/json; charset=UTF-16", "ä"),
        ("ä".encode(), "application/json; charset=utf-8", "ä"),
        ("ä".encode(), "application/json", "ä"),
        (b'<?xml version="1.0" encoding="latin1"?><a>\xe4</a>', "text/xml; charset=latin1",
         '<?xml version="1.0"?><a>ä</a>'),
        ("日本".encode("shift_jis"), "application/soap+xml; charset=Shift_JIS", "日本"),
        (b"a", "application/octet-stream; charset=nope", "a"),
    ],
)  # fmt: skip
def test_a_body_is_read_in_the_charset_of_its_header(body: bytes, kind: str, text: str) -> None:
    assert in_utf8(body, kind).decode() == text


@pytest.mark.parametrize("charset", ["nope", "zip", "punycode", "unicode_escape", "utf-7"])
def test_an_unknown_charset_is_an_error_that_names_it(charset: str) -> None:
    with pytest.raises(ValueError, match=f'charset "{charset}", which is not read'):
        in_utf8(b"x", f"text/plain; charset={charset}")


APP = """@App:name('Bodies')
@source(type='http', receiver.url='http://127.0.0.1:0/in', @map(type='csv'))
define stream S (name string, city string);
from S select name, city insert into T;
"""


@pytest.mark.nats
async def test_requests_with_charsets(nats_server: NatsServer) -> None:
    async with staged(nats_server, APP) as stage, httpx.AsyncClient() as client:
        status = await stage.until_running(stage.start("receiver-S"))
        url = status.connectors[0].endpoint

        async def post(body: bytes, charset: str) -> httpx.Response:
            kind = {"Content-Type": f"text/csv; charset={charset}"}
            return await client.post(url, content=body, headers=kind)

        assert (await post(b"Ren\xe9,K\xf6ln", "ISO-8859-1")).status_code == 200
        unknown = await post(b"a,b", "klingon")
        assert (unknown.status_code, "klingon" in unknown.text) == (400, True)
        wrong = await post(b"a,\x81", "windows-1252")
        assert (wrong.status_code, "windows-1252" in wrong.text) == (400, True)
        assert await stage.events("S") == [{"name": "René", "city": "Köln"}]
