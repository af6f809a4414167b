"""``UUID()``: identifiers derived from an event's place in the total order, for exact replay."""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mesh.functions.vectors import Vector
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from mesh.functions.vectors import Rows

Words = npt.NDArray[np.uint64]


def splitmix64(words: Words) -> Words:
    """A permutation of 64 bit words in which each bit depends on all: SplitMix64's finaliser."""
    with np.errstate(over="ignore"):
        words = words + np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result: Words = words ^ (words >> np.uint64(31))
        return result


def uuids(rows: Rows, site: str) -> Vector:
    """A pseudo-random UUID (version 4) for each row; ``site`` distinguishes calls."""
    seed = np.frombuffer(hashlib.blake2b(site.encode(), digest_size=16).digest(), dtype=np.uint64)
    numbers = rows.numbers.view(np.uint64)
    with np.errstate(over="ignore"):
        high, low = splitmix64(numbers ^ seed[0]), splitmix64(numbers + seed[1])
    pairs = zip(high.tolist(), low.tolist(), strict=True)
    texts = [str(uuid.UUID(int=(a << 64) | b, version=4)) for a, b in pairs]
    return Vector(AttributeType.STRING, pa.array(texts, pa.string()))
