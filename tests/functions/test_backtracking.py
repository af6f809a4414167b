"""The bound of the steps of a search."""

from __future__ import annotations

import re

import pytest

from mesh.functions.backtracking import longest_text, tree_of


@pytest.mark.parametrize(
    ("pattern", "is_search", "length"),
    [
        ("abc", False, 1 << 30),
        ("a?b?", False, 1 << 30),
        ("a+", False, 999),
        ("a+b", True, 30),
        ("a*b*c*", False, 9),
        ("(ab)*", False, 999),
        ("(a|bc)*", False, 9),
        ("(a+)+", False, 3),
        ("(a?){20}", False, 0),
    ],
)
def test_the_bound_of_steps_is_that_of_the_choices(
    pattern: str, is_search: bool, length: int
) -> None:
    found = longest_text(tree_of(pattern, re.ASCII), 1000.0, is_search=is_search)
    assert found == length
