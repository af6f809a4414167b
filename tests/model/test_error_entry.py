"""Entries of failed events."""

from __future__ import annotations

import pytest

from mesh.model.error_entry import event_of, from_json, of_unreadable


@pytest.mark.parametrize(
    ("data", "index", "event"),
    [
        ('{"a": 1}', 0, b'{"a": 1}'),
        ('[{"a": 1}, {"a": 2}]', 1, b'{"a":2}'),
        ('{"a": 1}\n\n{"a": x}\n', 1, b'{"a": x}'),
        ("no json", 0, b"no json"),
        ("[1", 3, b"[1"),
    ],
)
def test_the_event_of_an_entry_is_the_one_that_failed(data: str, index: int, event: bytes) -> None:
    assert event_of({"data": data, "index": index}) == event


def test_bytes_that_are_no_text_hold_no_event_that_is_known() -> None:
    assert event_of({"data_base64": "AAAA"}) is None


def test_texts_that_have_no_encoding_are_stored_with_question_marks() -> None:
    entry = of_unreadable(
        "S", 1, 0, 0, None, "g", "bad \udce9", b"x", options={"file.name": "caf\udce9.csv"}
    )
    assert from_json(entry)["reason"] == "bad ?"
    assert from_json(entry)["options"] == {"file.name": "caf?.csv"}
