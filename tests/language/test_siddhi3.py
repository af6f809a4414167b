"""Texts of Siddhi 3 are named as the cause, once, and texts of later versions never are."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError, all_errors
from mesh.language.parser import parse

QUERY = "define stream S (a int); from S select a insert into T;"


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
