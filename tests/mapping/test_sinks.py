"""Values of events filled into options: no value changes the parts of one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.connect.places import OptionPlace
from mesh.mapping.sinks import Misplaced
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
