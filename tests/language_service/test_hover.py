"""Functions and windows as an editor proposes them."""

from __future__ import annotations

from mesh.language_service.hover import ALL_STREAM_FUNCTIONS, ALL_WINDOWS, EXPRESSIONS


def test_each_function_and_window_has_a_sentence() -> None:
    names = {**EXPRESSIONS, **ALL_WINDOWS, **ALL_STREAM_FUNCTIONS}
    assert [name for name, one in names.items() if not one.doc.endswith(".")] == []
