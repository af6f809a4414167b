"""Hints for who knows SQL: a word of it leads to that of SiddhiQL, where it stands."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError, all_errors
from mesh.language.hints import type_hint
from mesh.language.parser import parse

HEAD = "define stream S (a int, b int); "

QUERY = "define stream S (a int); from S select a insert into T;"


def hint_of(text: str) -> str:
    with pytest.raises(MeshError) as refusal:
        parse(HEAD + text)
    return str(refusal.value.hint)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("from S where a > 1 select a insert into T;", "in brackets after the stream"),
        ("from S select a where a > 1 insert into T;", "in brackets after the stream"),
        ("from S select a union all insert into T;", "Several queries"),
        ("from S[a between 1 and 2] select a insert into T;", "a >= 1 and a <= 2"),
        ("from S[a mod 2 == 0] select a insert into T;", "Write '%'"),
        ("from S[a xor b] select a insert into T;", "Write (a > 1) != (b > 1)"),
        ("create stream T (a int);", "define stream"),
        ("select a from S;", "A query starts with 'from'"),
        ("insert into T select a from S;", "ends with 'insert into'"),
        ("stream T (a int);", "Write 'define stream'"),
        ("with T as (select a from S) select a from T;", "There is no 'with'"),
        ("from S select a insert into T; end;", "One 'end' too many"),
        ("define stream T (a varchar);", "Did you mean 'string'?"),
    ],
)
def test_a_word_of_sql_leads_to_ours(text: str, hint: str) -> None:
    assert hint in hint_of(text)


def test_a_type_is_meant_in_any_case() -> None:
    assert type_hint("BigInt") == "Did you mean 'long'?"
    assert type_hint("BOOLEAN") == "Did you mean 'bool'?"
    assert type_hint("blob") is None


def test_a_name_in_the_place_of_a_word_is_no_word_of_sql() -> None:
    # Quoted, and in a place where any name may stand.
    parse(f"{HEAD}from S select a as `where` insert into T;")
    assert "brackets" not in hint_of("from S select a `where` insert into T;")


@pytest.mark.parametrize(
    ("text", "sign", "others"),
    [
        (f"@Plan:name('A') @Plan:trace('true') {QUERY}", "@Plan:name", "@Plan:trace"),
        (f"@App:name('A') @Import('a.b:1.0.0') {QUERY}", "@Import", None),
        (f"@Export ( 'a:1.2.0' ) {QUERY}", "@Export", None),
        ("@From(eventtable='rdbms', table.name='t') define table T (a int);",
         "@From(eventtable=..)", None),
        ("define stream S (a int); from S insert overwrite T on T.a == a;", "insert overwrite",
         None),
    ],
)  # fmt: skip
def test_the_version_is_the_only_error(text: str, sign: str, others: str | None) -> None:
    with pytest.raises(MeshError) as raised:
        parse(text)
    (error,) = all_errors(raised.value)
    assert error.code == "MESH-L110"
    assert error.message == f"the text is of Siddhi 3: it has {sign}"
    assert (error.detail or "").startswith(f"It has {others}" if others else "")
    at = error.position
    assert at is not None
    assert (
        text[at.column - 1 :].replace(" ", "").lower().startswith(sign[:5].replace(" ", "").lower())
    )


@pytest.mark.parametrize(
    "text",
    [
        f"-- @Plan:name('A')\n/* @Import('a:1.0.0') */ {QUERY}",
        f"@note('@Plan:name') @Import('a') {QUERY}",
        "define stream S (a string); from S[a == '@Plan:name'] select a insert into T;",
    ],
)
def test_comments_strings_and_other_annotations_are_no_signs(text: str) -> None:
    parse(text)
