"""Values as errors show them."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_nats.decode.values import shown


@pytest.mark.parametrize("value", [b"x" * 10_000, {1: "a" * 9999}, [[[[[[[[1]]]]]]]], {(1,): 2}])
def test_any_value_is_shown_in_a_few_characters(value: Any) -> None:
    assert 0 < len(shown(value)) <= 60
