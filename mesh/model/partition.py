"""Virtual partition of a key, over whole columns, by the same function as the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt


_OFFSET = np.uint32(2166136261)
_PRIME = np.uint32(16777619)
#: Below this number of rows a loop over the bytes of each is faster than array operations.
_FEW = 100


def partitions(keys: Sequence[object], count: int) -> npt.NDArray[np.int64]:
    """The partition, 0 to ``count - 1``, of each row.

    Args:
        keys: the key's columns, all of length n; their values' texts are joined by ``_``, a null
        counts as
            the empty text.
        count: how many partitions there are, at least 1.

    Returns:
        int64[n].

    Source:
        FNV-1a, 32 bits, modulo ``count``: what nats-server's ``{{partition(n,..)}}`` subject
        mapping does.
    """
    texts = [kernels.fill_null(kernels.cast(key, pa.string()), "") for key in keys]
    joined = texts[0] if len(texts) == 1 else kernels.binary_join_element_wise(*texts, "_")
    if isinstance(joined, pa.ChunkedArray):
        joined = joined.combine_chunks()
    hashes = fnv1a_32(joined.cast(pa.binary()))
    return (hashes % np.uint32(count)).astype(np.int64)


def few_partitions(keys: Sequence[Sequence[object]], count: int) -> list[int] | None:
    """``partitions`` of few rows, by the values of each column.

    Returns:
        None if a value is anything but text, a whole number, a truth value or null: only Arrow's
        cast knows its text.
    """
    places = []
    for row in zip(*keys, strict=True):
        if not {type(value) for value in row} <= _TEXTS.keys():
            return None
        text = "_".join([_TEXTS[type(value)](value) for value in row])
        places.append(_hash_on(int(_OFFSET), text.encode()) % count)
    return places


#: By type of a value, its text as Arrow's cast gives it.
_TEXTS: Final[Mapping[type, Callable[[Any], str]]] = {
    str: str,
    int: str,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "",
}


def fnv1a_32(values: Any) -> npt.NDArray[np.uint32]:
    """FNV-1a of each value.

    It goes byte position by byte position over all rows at once, while there are many; then row by
    row.  So one long key does not cost a pass over arrays for each of its bytes.
    """
    n = len(values)
    offsets = np.frombuffer(values.buffers()[1], np.int32, n + 1, values.offset * 4)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    hashes = np.full(n, _OFFSET, np.uint32)
    # Sorted by length, longest first, the rows that still have a byte at a place are a prefix.
    by_length = np.argsort(-lengths, kind="stable")
    starts = offsets[:-1][by_length]
    sorted_lengths = lengths[by_length]
    current = hashes[by_length]
    longest = int(lengths.max(initial=0))
    place, alive = 0, n
    with np.errstate(over="ignore"):
        while place < longest:
            alive = int(np.searchsorted(-sorted_lengths, -place, side="left"))
            if alive < _FEW:
                break
            current[:alive] = (current[:alive] ^ data[starts[:alive] + place]) * _PRIME
            place += 1
    if place < longest:
        for row in range(alive):
            rest = data[starts[row] + place : starts[row] + sorted_lengths[row]].tobytes()
            current[row] = _hash_on(int(current[row]), rest)
    hashes[by_length] = current
    return hashes


def _hash_on(hashed: int, data: bytes) -> int:
    """FNV-1a of more bytes after those with the hash ``hashed``."""
    prime = int(_PRIME)
    for byte in data:
        hashed = (hashed ^ byte) * prime & 0xFFFFFFFF
    return hashed
