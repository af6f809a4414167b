"""Variables in a text: values substituted, and errors that point at the original text."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mesh.errors import MeshErrors, Position
from mesh.language.parser import parse_app
from mesh.language.substitution import substitute


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a ${A} b", "a 1 b"),
        ("${A}${A}", "11"),
        ("'${A:x}' '${B:x y}' '${B:}'", "'1' 'x y' ''"),
        ("${B:a:b}", "a:b"),
        ("-- ${B}\n/* ${B} */ ${A}", "-- ${B}\n/* ${B} */ 1"),
        ("'-- ${A}' \"/* ${A}\"", "'-- 1' \"/* 1\""),
        ("${ A } ${} ${A-1} $A {A}", "${ A } ${} ${A-1} $A {A}"),
    ],
)
def test_variables_are_put_in_but_not_in_comments(text: str, expected: str) -> None:
    assert substitute(text, {"A": "1"}) == expected


def test_every_missing_variable_is_told_with_the_nearest_name() -> None:
    with pytest.raises(MeshErrors) as error:
        substitute("a ${HOTS}\n  ${B:1} ${C}", {"HOST": "x"})
    first, second = error.value.errors
    assert (first.code, first.position) == ("MESH-L108", Position(1, 3, 7))
    assert first.hint == 'Did you mean "HOST"?'
    assert second.position == Position(2, 10, 4)


def test_a_variable_that_nobody_put_in_is_refused_in_strings_too() -> None:
    with pytest.raises(MeshErrors) as error:
        parse_app("@App:name('x${A}') define stream S (a int);")
    assert (error.value.code, error.value.position) == ("MESH-L108", Position(1, 13, 4))


def test_places_are_those_of_the_text_as_written() -> None:
    written = "define stream ${NAME} (a int);\nfrom ${NAME}[a > ${X}] selct a insert into T;"
    with pytest.raises(MeshErrors) as error:
        parse_app(substitute(written, {"NAME": "AVeryLongName", "X": "5"}))
    assert error.value.position == Position(2, 24, 5)
    app = parse_app(substitute(written.replace("selct", "select"), {"NAME": "S", "X": "5"}))
    assert app.streams[0].position == Position(1, 15, 7)
    assert app.queries[0].input.position == Position(2, 6, 7)


def test_a_mistake_in_a_value_points_at_the_variable() -> None:
    written = "define stream S (a ${TYPE});"
    with pytest.raises(MeshErrors) as error:
        parse_app(substitute(written, {"TYPE": "varchar"}))
    assert error.value.position == Position(1, 20, 7)


@given(
    st.lists(
        st.one_of(st.sampled_from(["${A}", "${B:xyz}", "${C:}", "\n", "'", "/*", "*/", "--"]),
                  st.text(st.characters(exclude_characters="$"), max_size=3)),
        max_size=12,
    ).map("".join),
    st.text(max_size=5),
)  # fmt: skip
def test_any_text_keeps_its_places(text: str, value: str) -> None:
    changed = substitute(text, {"A": value})
    places = changed.places
    for offset in range(len(changed)):
        position = places.of(offset, offset + 1)
        line = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[position.line - 1]
        assert position.column <= len(line) + 2
