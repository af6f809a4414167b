"""Matches of a pattern by their keys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mesh.operators.patterns import match_index, memory_layout
from mesh.operators.select import hashing
from tests.support.collisions import KEYS, colliding, longest_run, unscattered


@pytest.mark.parametrize("way", ["high bits", "inverted"])
def test_matches_of_a_pattern_by_keys_chosen_to_collide_do_not(way: str) -> None:
    high = [number << 47 for number in range(KEYS)]
    given = high if way == "high bits" else [unscattered(hashed) for hashed in colliding()]
    keys = np.array(given, dtype=np.uint64).view(np.int64)
    scalars = np.zeros(memory_layout.SCALARS, dtype=np.int64)
    scalars[memory_layout.SEED] = hashing.SEED.astype(np.int64)
    memory: Any = SimpleNamespace(
        scalars=scalars,
        hashes=np.full(4 * KEYS, memory_layout.NONE, dtype=np.int64),
        buckets=np.zeros((KEYS, memory_layout.BUCKET_COLUMNS), dtype=np.int64),
    )
    find: Any = match_index.bucket_of
    found = [find.py_func(memory, 0, key, True) for key in keys]
    assert found == list(range(KEYS))
    assert longest_run(memory.hashes != memory_layout.NONE) < 200
