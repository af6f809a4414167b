"""Values of events filled into options and into XML: no value changes the parts of one."""

from __future__ import annotations

from xml.etree import ElementTree

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.connect.places import OptionPlace
from mesh.mapping import sink_mapper
from mesh.mapping.events import Refusal
from mesh.mapping.sinks import Misplaced
from mesh.model.types import Attribute, AttributeType, StreamSchema
from tests.support.placed_values import HOSTILE, ROWS, filled


@pytest.mark.parametrize("place", OptionPlace, ids=lambda place: place.name)
def test_no_value_changes_the_parts_of_an_option(place: OptionPlace) -> None:
    row = ROWS[place]
    for template in row.parts:
        (kept,) = filled(place, template, "xyz")
        for value, text in zip(HOSTILE, filled(place, template, *HOSTILE), strict=True):
            if type(text) is not Misplaced:
                assert row.shape(text) == row.shape(kept), (template, value, text)
        good = filled(place, template, *row.good)
        assert [t for t in good if type(t) is Misplaced] == [], template
    if row.value is not None:
        assert [row.value(text) for text in filled(place, row.parts[0], *row.good)] == list(
            row.good
        )


@pytest.mark.parametrize("place", OptionPlace, ids=lambda place: place.name)
def test_a_refusal_names_the_attribute_and_its_place(place: OptionPlace) -> None:
    row = ROWS[place]
    for template, values in ((row.parts[0], row.bad), ("{{k}}", row.bad_as_whole)):
        for value, text in zip(values, filled(place, template, *values), strict=True):
            assert isinstance(text, Misplaced), (template, value, text)
            assert text == ""
            assert 'option "o": ' in text.reason
            assert 'attribute "k"' in text.reason
            assert place.value.words in text.reason


@given(st.text(max_size=12), st.sampled_from([p for p in OptionPlace if p is not OptionPlace.TEXT]))
def test_no_text_at_all_changes_them(value: str, place: OptionPlace) -> None:
    row = ROWS[place]
    for template in row.parts:
        text, kept = filled(place, template, value, "xyz")
        if type(text) is not Misplaced:
            assert row.shape(text) == row.shape(kept)


XML_STREAM = StreamSchema("S", (Attribute("s", AttributeType.STRING),))


@pytest.mark.parametrize("payload", [None, '<a s="{{s}}"><b>{{s}}</b></a>', "<a s='{{s}}'/>"])
@pytest.mark.parametrize(
    "text", ["a\rb\r\nc\n", "\t", "\"'", '" x="1', "]]>", "<&>", "\u2028", "\U0001f600", " a "]
)
def test_a_text_in_xml_is_read_as_it_was_written(payload: str | None, text: str) -> None:
    rows = pa.RecordBatch.from_pylist([{"s": text}], schema=XML_STREAM.arrow)
    template = () if payload is None else ((None, payload),)
    (written,) = sink_mapper("xml", {}, template, XML_STREAM).encode(rows)
    root = ElementTree.fromstring(written)
    found = [one.attrib.get("s", one.text) for one in root.iter() if one.tag in "abs"]
    assert found
    assert set(found) == {text}
    assert not any("x" in one.attrib for one in root.iter())


@pytest.mark.parametrize("text", ["a\0", "\x0b", "\x1f", "\ufffe"])
def test_a_character_that_xml_lacks_refuses_its_event(text: str) -> None:
    rows = pa.RecordBatch.from_pylist([{"s": text}, {"s": "b"}], schema=XML_STREAM.arrow)
    wrong, good = sink_mapper("xml", {}, (), XML_STREAM).encode(rows)
    assert isinstance(wrong, Refusal)
    assert wrong.decode().startswith('attribute "s" has U+')
    assert b"<s>b</s>" in good
    # It is in no payload.
    bare = sink_mapper("xml", {}, ((None, "<a/>"),), XML_STREAM).encode(rows)
    assert not any(isinstance(one, Refusal) for one in bare)
