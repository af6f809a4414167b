"""Parts of a text that are no token: each is named with what was probably meant."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError
from mesh.language.parser import parse

HEAD = "define stream S (a int, s string); "


@pytest.mark.parametrize(
    ("rest", "code", "words"),
    [
        ("from S[a > 1 & a < 3] select a insert into T;", "MESH-L101", "Write 'and'."),
        ("from S[a \u2265 1] select a insert into T;", "MESH-L101", "Write '>='."),
        ("from S select \u2018x\u2019 as a insert into T;", "MESH-L101", "plain quotes"),
        ("from S select\u00a0a insert into T;", "MESH-L101", "no-break space"),
        ("from S select a insert into T; }", "MESH-L101", "body of a function"),
        ("from S select ${LIMIT} as a insert into T;", "MESH-L108", "${LIMIT:default}"),
        ("from S select 'x${NAME}' as a insert into T;", "MESH-L108", "${NAME:default}"),
        ("from S select 'x as a insert into T;", "MESH-L102", "Close it with '"),
        ('from S select "x as a insert into T;', "MESH-L102", 'Close it with "'),
        ('from S select """x as a insert into T;', "MESH-L102", 'ends with """'),
        ("from S select 'it\"s' as a insert into T;", "MESH-L102", "no quotes of either kind"),
        ("from S select `a insert into T;", "MESH-L102", "backquote"),
        ("define function f[python] return int { return 1", "MESH-L102", "needs its '}'"),
    ],
)
def test_what_is_no_token_is_named(rest: str, code: str, words: str) -> None:
    with pytest.raises(MeshError) as refusal:
        parse(HEAD + rest)
    assert refusal.value.code == code
    assert words in refusal.value.render()


def test_a_number_without_end_is_named_and_marked_whole() -> None:
    digits = "9" * 5000
    with pytest.raises(MeshError) as refusal:
        parse(f"{HEAD}from S select {digits} as a insert into T;")
    assert refusal.value.code == "MESH-L103"
    assert refusal.value.position is not None
    assert refusal.value.position.column == len(HEAD) + len("from S select ") + 1


def test_a_variable_inside_of_a_string_is_marked_alone() -> None:
    text = f"{HEAD}from S select 'abc${{NAME}}' as a insert into T;"
    with pytest.raises(MeshError) as refusal:
        parse(text)
    at = refusal.value.position
    assert at is not None
    assert text[at.column - 1 : at.column - 1 + at.length] == "${NAME}"
