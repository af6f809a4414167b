"""Every tree prints to a text that parses to it again, and every text is read or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis.strategies as st
from hypothesis import given

from mesh.errors import MeshError
from mesh.language.layout import format_app
from mesh.language.numbers import round_to_float
from mesh.language.parser import parse_app, parse_expression, parse_on_demand_query
from mesh.language.print_expressions import print_expression, print_string
from mesh.language.printer import print_app, print_on_demand_query
from mesh.language.tokens import KEYWORDS, tokenize
from tools import siddhiql

if TYPE_CHECKING:
    from mesh.language.syntax import App, Expression, OnDemandQuery


@given(siddhiql.apps)
def test_a_printed_tree_parses_to_itself(app: App) -> None:
    assert parse_app(print_app(app)) == app


@given(siddhiql.expressions)
def test_a_printed_expression_parses_to_itself(expression: Expression) -> None:
    assert parse_expression(print_expression(expression)) == expression


@given(siddhiql.on_demand_queries)
def test_a_printed_on_demand_query_parses_to_itself(query: OnDemandQuery) -> None:
    assert parse_on_demand_query(print_on_demand_query(query)) == query


@given(siddhiql.apps)
def test_printing_is_settled_after_once(app: App) -> None:
    text = print_app(app)
    assert print_app(parse_app(text)) == text
    assert format_app(text) == text


_comments = st.sampled_from(
    [" ", "\n", "\r\n", "\n\n", " /* in */ ", "\n/* own */\n", " /* two\nlines */ ", " -- end\n",
     "\n-- own\n\n", "\n  /* a *//* b */ "]
)  # fmt: skip


@given(siddhiql.apps, st.data())
def test_formatting_keeps_comments_and_meaning_and_is_settled_after_once(
    app: App, data: st.DataObject
) -> None:
    tokens = tokenize(print_app(app)).tokens
    scattered = "".join(token.text + data.draw(_comments) for token in tokens)
    formatted = format_app(scattered)
    assert parse_app(formatted) == app
    assert format_app(formatted) == formatted
    before, after = tokenize(scattered), tokenize(formatted)
    assert [c.text for c in after.comments] == [c.text for c in before.comments]


@given(siddhiql.texts)
def test_a_printed_string_is_one_token_with_that_content(text: str) -> None:
    token, _end = tokenize(print_string(text)).tokens
    assert token.value == text


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_rounding_to_float_keeps_floats(value: float) -> None:
    assert round_to_float(value) == value


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
