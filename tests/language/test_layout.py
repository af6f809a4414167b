"""The layout of a text keeps its comments and its meaning.

Canonical texts whose variables have no values yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mesh.errors import MeshError
from mesh.language.layout import canonical, format_app
from mesh.language.parser import parse_app
from mesh.language.printer import print_app
from mesh.language.substitution import substitute
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


DEFINED = "define stream S (a int, b string);"
VARIABLES = """\
define stream ${NAME} (a int, b string);
-- ${NOTE} stays
from S[a>${LIMIT:5}]#window.time(${WHEN}) select a , '${TEXT:x y}' as t
limit ${COUNT} output every ${COUNT} events insert into X_${OUT:Y};
"""


def test_variables_stay_as_they_are_written() -> None:
    formatted = canonical(VARIABLES)
    assert formatted == (
        "define stream ${NAME} (a int, b string);\n"
        "\n"
        "-- ${NOTE} stays\n"
        "from S[a > ${LIMIT:5}]#window.time(${WHEN})\n"
        "select a, '${TEXT:x y}' as t\n"
        "limit ${COUNT}\n"
        "output every ${COUNT} events\n"
        "insert into X_${OUT:Y};\n"
    )
    assert canonical(formatted) == formatted


@pytest.mark.parametrize(
    ("clause", "value"),
    [
        ("from S select a output every ${V} insert into T", "5 sec"),
        ("from every e1=S -> e2=S within ${V} select e1.a insert into T", "1 min"),
        ("from e1=S<${V}> -> e2=S select e2.a insert into T", "3"),
        ("@info(name='${V}') from S select ${V} as x insert into T", "b"),
    ],
)
def test_what_is_formatted_with_variables_means_what_it_meant(clause: str, value: str) -> None:
    text = f"{DEFINED} {clause};"
    with_values = substitute(canonical(text), {"V": value})
    assert format_app(str(with_values)) == format_app(str(substitute(text, {"V": value})))


def test_a_mistake_beside_variables_is_told_in_their_words() -> None:
    with pytest.raises(MeshError) as error:
        canonical(f"{DEFINED} from S selct ${{V}} insert into T; ${{QUERY}}")
    first, second = error.value.errors  # type: ignore[attr-defined]  # several
    assert first.hint == "Did you mean 'select'?"
    assert second.message.endswith("found '${QUERY}'")
