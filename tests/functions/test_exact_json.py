"""Numbers of JSON documents that are read as texts keep their digits.

Calls of functions with such documents are in tests/cases/functions/documented.txt.
"""

from __future__ import annotations

import copy

import pytest

from mesh.functions.documents import find, read_json, write_json
from mesh.functions.exact_json import JsonReal, read_exact, write_exact
from mesh.functions.objects import identity, object_text, pack, unpack

DOCUMENT = '{"a":1.10,"b":[12345678901234567890123,1e400,-0,0.1,5,1E5],"c":{"d":null,"e":"1.0"}}'


def test_a_document_is_written_as_it_was_read() -> None:
    assert write_exact(read_exact(DOCUMENT)) == DOCUMENT
    assert write_json(read_json(DOCUMENT)) == DOCUMENT


def test_objects_keep_their_digits_where_they_are_stored_and_copied() -> None:
    value = read_json(DOCUMENT)
    assert write_json(unpack(pack(value))) == DOCUMENT
    assert write_json(copy.deepcopy(value)) == DOCUMENT
    assert identity(value["a"]) == identity(1.1)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("$.a", "1.10"),
        ("$.b[0]", "12345678901234567890123"),
        ("$.b[1]", "1e400"),
        ("$.b[3]", "0.1"),
    ],
)
def test_paths_give_the_text_of_a_number(path: str, text: str) -> None:
    assert object_text(find(DOCUMENT, path)) == text


@pytest.mark.parametrize("text", ["NaN", '{"a":Infinity}', '{"a":1e400,"b":NaN}', "01", "[1e400"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # one of two parsers refuses it
        read_exact(text)


def test_a_number_is_a_float_with_a_text() -> None:
    number = JsonReal("1.10")
    assert (number, repr(number), number + 1) == (1.1, "1.10", 2.1)
