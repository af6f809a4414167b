"""The cache of a table in a database: which keys leave, by policy, size and age."""

from __future__ import annotations

import pytest

from mesh.model.stored import CacheOptions, CachePolicy
from mesh.operators.tables.lookup_table import RowCache


@pytest.mark.parametrize(
    ("policy", "gone"),
    [(CachePolicy.FIFO, ["a"]), (CachePolicy.LRU, ["b"]), (CachePolicy.LFU, ["c"])],
)
def test_a_full_cache_gives_up_one_by_its_policy(policy: CachePolicy, gone: list[str]) -> None:
    cache = RowCache(CacheOptions(3, policy))
    cache.came("abc")
    cache.used("bbbcaax")
    assert cache.leaving(0) == []
    cache.used("ca")
    # The newest has no uses yet, and is not the first to go among rows that are used.
    cache.came("d")
    cache.used("ddd")
    assert cache.leaving(1) == gone


def test_rows_grow_too_old_whatever_their_use() -> None:
    cache = RowCache(CacheOptions(3, CachePolicy.LRU, retention_ms=10))
    cache.came("a")
    assert cache.leaving(100) == []
    cache.came("b")
    cache.went("a")
    cache.came("a")
    assert cache.leaving(105) == []
    cache.used("ab")
    assert cache.leaving(114) == []
    assert sorted(cache.leaving(115)) == ["a", "b"]
    assert cache.leaving(10_000) == []
