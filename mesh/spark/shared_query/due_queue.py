"""Times at which items are due: a slot with many parts looks only at those that are due."""

from __future__ import annotations

import itertools
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

K = TypeVar("K", bound="Hashable")

#: Obsolete entries, beyond as many as there are items, before all of them are removed.
_OLD_MAX: Final = 64


class DueQueue(Generic[K]):
    """Items with one time each, monotonic, seconds.

    >>> queue = DueQueue()
    >>> queue.set("a", 5.0), queue.set("b", 3.0), queue.set("a", 1.0)
    (None, None, None)
    >>> queue.next_s, queue.take(2.0), queue.next_s
    (1.0, ['a'], 3.0)
    """

    def __init__(self) -> None:
        self._at_s: dict[K, float] = {}
        #: The times of all items, with earlier ones that do not count any more.
        self._heap: list[tuple[float, int, K]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._at_s)

    def __contains__(self, item: object) -> bool:
        return item in self._at_s

    def set(self, item: K, at_s: float | None) -> None:
        """Have an item be due at a time instead of an earlier one given for it; None for never."""
        if at_s is None:
            self._at_s.pop(item, None)
        elif self._at_s.get(item) != at_s:
            self._at_s[item] = at_s
            heappush(self._heap, (at_s, next(self._numbers), item))
            if len(self._heap) > 2 * len(self._at_s) + _OLD_MAX:
                self._heap = [(s, next(self._numbers), one) for one, s in self._at_s.items()]
                heapify(self._heap)

    @property
    def next_s(self) -> float:
        """The earliest time; infinite without items."""
        while self._heap and self._at_s.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else float("inf")

    def take(self, now_s: float, most: int | None = None) -> list[K]:
        """Remove the items that are due by now, the longest due first; at most ``most``."""
        items: list[K] = []
        while self.next_s <= now_s and (most is None or len(items) < most):
            item = heappop(self._heap)[2]
            del self._at_s[item]
            items.append(item)
        return items
