"""Virtual partition of a key, over whole columns, by the same function as the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

#: The stubs know each function of Arrow by a dozen overloads, and reject most honest calls.
_kernels: Any = pyarrow.compute

_OFFSET = np.uint32(2166136261)
_PRIME = np.uint32(16777619)


def partitions(keys: Sequence[Any], count: int) -> npt.NDArray[np.int64]:
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
    texts = [_kernels.fill_null(_kernels.cast(key, pa.string()), "") for key in keys]
    joined = texts[0] if len(texts) == 1 else _kernels.binary_join_element_wise(*texts, "_")
    if isinstance(joined, pa.ChunkedArray):
        joined = joined.combine_chunks()
    hashes = fnv1a_32(joined.cast(pa.binary()))
    return (hashes % np.uint32(count)).astype(np.int64)


def fnv1a_32(values: Any) -> npt.NDArray[np.uint32]:
    """FNV-1a of each value, byte position by byte position over all rows at once."""
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
    with np.errstate(over="ignore"):
        for place in range(int(lengths.max(initial=0))):
            alive = int(np.searchsorted(-sorted_lengths, -place, side="left"))
            current[:alive] = (current[:alive] ^ data[starts[:alive] + place]) * _PRIME
    hashes[by_length] = current
    return hashes
