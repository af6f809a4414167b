"""Iteration order of the reference engine's hash maps.

It is visible where a window expires several keys at once.  A map iterates over its table; a key's
place is its hash code modulo the table's length, which grows with the number of keys.
"""

from __future__ import annotations

from functools import lru_cache

_TABLE = 16


@lru_cache(maxsize=65_536)
def spread(text: str) -> int:
    """The hash code of a Java string, with its upper half mixed in."""
    code = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        code = (31 * code + units[at] * 256 + units[at + 1]) & 0xFFFFFFFF
    return code ^ (code >> 16)


def table_of(count: int, length: int = _TABLE) -> int:
    """The length of the table of a concurrent map that has ``count`` keys, ``length`` before."""
    while count >= length - length // 4:
        length *= 2
    return length
