"""References that have the type of a source or a sink."""

from __future__ import annotations

import pytest

from mesh.errors import MeshError
from mesh.language.substitution import substitute
from mesh.plan.build import plan
from mesh.plan.connectors import needs_types, with_types

TEXT = """@App:name('A')
-- ref='x' of a comment
@source( ref='orders', @map(type='json'))
define stream S (a int);
@Sink(REF = "out", @map(type='json', @payload("ref='x'"))) @sink(type='log', ref='other')
define stream T (a int);
from S select b insert into T;
"""
TYPES = {"orders": "inMemory", "out": "log", "other": "http"}


def test_a_reference_without_a_type_gets_that_of_the_file() -> None:
    assert needs_types(TEXT)
    typed = with_types(TEXT, TYPES)
    assert typed.splitlines()[2] == "@source(type='inMemory',  ref='orders', @map(type='json'))"
    assert typed.splitlines()[4].startswith("@Sink(type='log', REF = \"out\"")
    assert "@sink(type='log', ref='other')" in typed
    assert not needs_types(typed)


def test_errors_have_their_place_in_the_text_as_written() -> None:
    text = TEXT.replace(
        "@map(type='json'))\ndefine stream S", "@map(type='${M}'))\ndefine stream S"
    )
    for name, found in (("jsn", (3, 24)), ("json", (7, 15))):
        with pytest.raises(MeshError) as raised:
            plan(with_types(substitute(text, {"M": name}), TYPES))
        at = raised.value.position
        assert at is not None
        assert (at.line, at.column) == found, raised.value


def test_a_reference_whose_type_is_not_known_is_named() -> None:
    with pytest.raises(MeshError, match='reference "orders" has none here') as raised:
        plan(with_types(TEXT.replace("select b", "select a"), {"out": "log"}))
    assert "receiver.refs_file of each manager" in (raised.value.hint or "")
