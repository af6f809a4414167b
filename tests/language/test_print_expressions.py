"""Every expression prints to a text that parses to it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given

from mesh.language.parser import parse_expression
from mesh.language.print_expressions import print_expression, print_string
from mesh.language.tokens import tokenize
from tools import siddhiql

if TYPE_CHECKING:
    from mesh.language.syntax import Expression


@given(siddhiql.expressions)
def test_a_printed_expression_parses_to_itself(expression: Expression) -> None:
    assert parse_expression(print_expression(expression)) == expression


@given(siddhiql.texts)
def test_a_printed_string_is_one_token_with_that_content(text: str) -> None:
    token, _end = tokenize(print_string(text)).tokens
    assert token.value == text
