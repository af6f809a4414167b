"""Keys that are chosen to collide."""

from __future__ import annotations

from typing import Any

import numpy as np

BITS = 2**64
KEYS = 4096


def unscattered(hashed: int) -> int:
    """The number with the hash ``hashed``, without a seed: ``scatter`` can be inverted."""
    for factor in (0xC4CEB9FE1A85EC53, 0xFF51AFD7ED558CCD):
        hashed = (hashed ^ (hashed >> 33)) * pow(factor, -1, BITS) % BITS
    return hashed ^ (hashed >> 33)


def longest_run(is_used: Any) -> int:
    """The longest run of used slots: as many are compared in the longest search."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_used.astype(np.int8), [0]])))
    return int((edges[1::2] - edges[::2]).max())


def colliding() -> list[int]:
    """Hashes that are 0 in a table of any length here."""
    return [number << 32 for number in range(1, KEYS + 1)]
