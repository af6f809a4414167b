"""Hash tables under keys that are chosen to collide, and texts beyond 2 GB."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.operators.patterns import match_index, memory_layout
from mesh.operators.select import hashing
from mesh.operators.select.hashing import RowNumbers, TextNumbers

_BITS = 2**64
_KEYS = 4096


def unscattered(hashed: int) -> int:
    """The number with the hash ``hashed``, without a seed: ``scatter`` can be inverted."""
    for factor in (0xC4CEB9FE1A85EC53, 0xFF51AFD7ED558CCD):
        hashed = (hashed ^ (hashed >> 33)) * pow(factor, -1, _BITS) % _BITS
    return hashed ^ (hashed >> 33)


def longest_run(is_used: Any) -> int:
    """The longest run of used slots: as many are compared in the longest search."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_used.astype(np.int8), [0]])))
    return int((edges[1::2] - edges[::2]).max())


def colliding() -> list[int]:
    """Hashes that are 0 in a table of any length here."""
    return [number << 32 for number in range(1, _KEYS + 1)]


def test_numbers_chosen_to_collide_do_not() -> None:
    values = np.array([unscattered(hashed) for hashed in colliding()], dtype=np.uint64)
    rows = RowNumbers(3)
    none = np.zeros(_KEYS, dtype=np.bool_)
    assert rows.number_longs(values.view(np.int64), none).tolist() == list(range(_KEYS))
    assert longest_run(rows._slots != 0) < 200


def test_texts_chosen_to_collide_do_not() -> None:
    words = []
    for hashed in colliding():
        mixed = unscattered(hashed) * pow(31, -1, _BITS) % _BITS
        words.append((unscattered(mixed) - 8 * 31) % _BITS)
    data = b"".join(word.to_bytes(8, "big") for word in words)
    offsets: Any = np.arange(0, 8 * _KEYS + 1, 8, dtype=np.int32)
    given = pa.StringArray.from_buffers(_KEYS, pa.py_buffer(offsets), pa.py_buffer(data))
    texts = TextNumbers()
    assert texts.number(given).tolist() == list(range(_KEYS))
    assert longest_run(texts._slots != 0) < 200


def test_numbers_do_not_depend_on_the_seed(monkeypatch: Any) -> None:
    values = np.random.default_rng(1).integers(-50, 50, 500)
    keys = pa.array([str(value) for value in values])
    none = np.zeros(len(values), dtype=np.bool_)

    def numbers() -> tuple[list[int], list[int]]:
        return RowNumbers(2).number_longs(values, none).tolist(), TextNumbers().number(
            keys
        ).tolist()

    first = numbers()
    monkeypatch.setattr(hashing, "SEED", hashing.SEED ^ np.uint64(0x1234567890ABCDEF))
    assert numbers() == first


@pytest.mark.parametrize("way", ["high bits", "inverted"])
def test_matches_of_a_pattern_by_keys_chosen_to_collide_do_not(way: str) -> None:
    high = [number << 47 for number in range(_KEYS)]
    given = high if way == "high bits" else [unscattered(hashed) for hashed in colliding()]
    keys = np.array(given, dtype=np.uint64).view(np.int64)
    scalars = np.zeros(memory_layout.SCALARS, dtype=np.int64)
    scalars[memory_layout.SEED] = hashing.SEED.astype(np.int64)
    memory: Any = SimpleNamespace(
        scalars=scalars,
        hashes=np.full(4 * _KEYS, memory_layout.NONE, dtype=np.int64),
        buckets=np.zeros((_KEYS, memory_layout.BUCKET_COLUMNS), dtype=np.int64),
    )
    find: Any = match_index.bucket_of
    found = [find.py_func(memory, 0, key, True) for key in keys]
    assert found == list(range(_KEYS))
    assert longest_run(memory.hashes != memory_layout.NONE) < 200


def test_texts_beyond_two_gigabytes_are_not_cut() -> None:
    texts = TextNumbers()
    start = 2**31 + 10
    # Zeros take no memory until they are written.
    texts._arena = np.zeros(start + 3, dtype=np.uint8)
    texts._arena[start:] = list(b"abc")
    texts._ends = np.array([0, start, start + 3], dtype=np.int64)
    texts._count = 2
    assert texts.take(pa.array([1, None])).to_pylist() == ["abc", None]
