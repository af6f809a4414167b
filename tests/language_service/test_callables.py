"""Functions and windows as an editor proposes them."""

from __future__ import annotations

from mesh.language_service.callables import (
    ALL_STREAM_FUNCTIONS,
    ALL_WINDOWS,
    EXPRESSIONS,
    sentence,
    sentences,
)


def test_each_function_and_window_has_a_sentence() -> None:
    known = {**EXPRESSIONS, **ALL_WINDOWS, **ALL_STREAM_FUNCTIONS}
    assert {name for table in sentences().values() for name in table} == set(known)
    assert all(sentence(one).endswith(".") for one in known.values())
