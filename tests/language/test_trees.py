"""Every tree prints to a text that parses to it again, and every text is read or refused."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from mesh.errors import MeshError
from mesh.language.parser import parse_app
from mesh.language.printer import print_app
from mesh.language.tokens import KEYWORDS
from tools import siddhiql

_SYMBOLS = '-> ... <= == ( ) [ ] , ; : . = < * + ? - @ # ! { \' " ` """ -- /* 5 1L'
_words = st.one_of(
    st.sampled_from(sorted(KEYWORDS)),
    st.sampled_from(_SYMBOLS.split()),
    st.sampled_from(["S", "e1", "'x'", "\n", "define stream S (a int);", "from S select a"]),
)


def _is_read_or_refused(text: str) -> None:
    try:
        app = parse_app(text)
    except MeshError as error:
        refused = error
    else:
        assert parse_app(print_app(app)) == app
        return
    assert refused.position is not None
    assert 1 <= refused.position.line <= len(text.splitlines()) + 1
    assert refused.code in refused.render(text)


@given(st.lists(_words, max_size=25).map(" ".join))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    _is_read_or_refused(text)


@given(siddhiql.apps.map(print_app), st.data())
def test_a_mutated_app_is_read_or_refused_with_its_place(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(st.one_of(_words, st.just(""))) + text[stop:]
    _is_read_or_refused(text)
