"""The layout of a text keeps its comments and its meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis.strategies as st
from hypothesis import given

from mesh.language.layout import format_app
from mesh.language.parser import parse_app
from mesh.language.printer import print_app
from mesh.language.tokens import tokenize
from tools import siddhiql

if TYPE_CHECKING:
    from mesh.language.syntax import App

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
