from __future__ import annotations

from typing import Any

import pytest

from mesh.mapping import source_mapper
from mesh.model.types import Attribute, AttributeType, StreamSchema
from tests.support.mappers import rows

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


@pytest.mark.parametrize("word", ["true", "1"])
def test_an_element_that_is_nil_is_null(word: str) -> None:
    space = "http://www.w3.org/2001/XMLSchema-instance"
    empty = "".join(f'<{name} x:nil="{word}"/>' for name in "snd")
    payload = f'<event xmlns:x="{space}">{empty}<b x:nil="{word}">true</b></event>'
    assert rows("xml", [payload.encode()]) == [dict.fromkeys("sndb")]
