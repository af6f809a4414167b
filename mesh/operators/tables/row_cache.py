"""Which rows of a table in a database stay at hand: ``@cache``, by size, policy and age.

It knows keys only; the rows are those of the table.  Each step costs what changed, not what is
there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.model.stored import CachePolicy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.model.stored import CacheOptions
    from mesh.operators.tables.order import Key


@dataclass(slots=True, eq=False)
class _Entry:
    key: Key
    #: Uses that count: those of the policy LFU.
    uses: int = 0


class RowCache:
    """The keys of a cache, in the order in which they would leave."""

    def __init__(self, options: CacheOptions) -> None:
        self._options = options
        self._entries: dict[Key, _Entry] = {}
        #: By uses, the keys: the oldest first, or that not used for longest.
        self._order: dict[int, dict[Key, None]] = {}
        self._new: list[_Entry] = []
        #: When each entry was met by ``leaving`` first.
        self._ages: deque[tuple[int, _Entry]] = deque()

    def __repr__(self) -> str:
        return f"RowCache({len(self._entries)} keys)"

    @property
    def counts_use(self) -> bool:
        """Whether ``used`` changes anything."""
        return self._options.policy is not CachePolicy.FIFO

    def came(self, keys: Iterable[Key]) -> None:
        """Enter keys whose rows are at hand now."""
        for key in keys:
            if key not in self._entries:
                entry = self._entries[key] = _Entry(key)
                self._order.setdefault(0, {})[key] = None
                self._new.append(entry)

    def went(self, key: Key) -> None:
        """Forget a key whose row is gone."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._unlink(entry)

    def used(self, keys: Iterable[Key]) -> None:
        """Note that rows were found."""
        if not self.counts_use:
            return
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None:
                self._unlink(entry)
                entry.uses += self._options.policy is CachePolicy.LFU
                self._order.setdefault(entry.uses, {})[key] = None

    def leaving(self, now_ms: int) -> list[Key]:
        """The keys whose rows leave at ``now_ms``, which never falls; they are forgotten."""
        self._ages.extend((now_ms, entry) for entry in self._new)
        self._new.clear()
        gone: list[Key] = []
        retention_ms = self._options.retention_ms
        while self._ages and self._is_over(*self._ages[0], now_ms, retention_ms):
            entry = self._ages.popleft()[1]
            if self._entries.get(entry.key) is entry:
                gone.append(entry.key)
                self.went(entry.key)
        while len(self._entries) > self._options.size:
            key = next(iter(self._order[min(self._order)]))
            gone.append(key)
            self.went(key)
        return gone

    def _is_over(self, since_ms: int, entry: _Entry, now_ms: int, retention_ms: int | None) -> bool:
        """Whether an entry is too old, or is no entry any more."""
        is_old = retention_ms is not None and now_ms - since_ms >= retention_ms
        return is_old or self._entries.get(entry.key) is not entry

    def _unlink(self, entry: _Entry) -> None:
        keys = self._order[entry.uses]
        del keys[entry.key]
        if not keys:
            del self._order[entry.uses]
