"""Places of keys in the order of a table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mesh.model.types import AttributeType
from mesh.operators.tables.order import bucket, places_of_texts


@pytest.mark.parametrize("keys", [["a", "", "key-17", None, "x" * 40], [], ["abc"] * 3])
def test_places_of_many_keys_are_those_of_each(keys: list[str | None]) -> None:
    array = pa.array(["before", *keys], pa.string()).slice(1)
    found = places_of_texts(array, 64)
    assert found is not None
    # A null key and an empty one have the same hash code.
    assert found.tolist() == [bucket(key, (AttributeType.STRING,), 64) for key in keys]


def test_keys_beyond_ascii_have_no_such_places() -> None:
    assert places_of_texts(pa.array(["a", "ä"]), 16) is None
