"""Messages that a broker has pushed: taken together, and acknowledged once they are stored."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

from mesh.connect.contract import UnavailableError

T = TypeVar("T")


class Arrivals(Generic[T]):
    """A queue of messages between a client's callbacks and ``Source.read``."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._news = asyncio.Event()
        self._failure = ""
        #: Batches that are not acknowledged, by number.
        self._open: deque[tuple[int, list[T]]] = deque()

    def put(self, message: T) -> None:
        """Add a message."""
        self._waiting.append(message)
        self._news.set()

    def fail(self, reason: str) -> None:
        """Let the next ``take`` raise; the connection is lost."""
        self._failure = self._failure or reason or "the connection is lost"
        self._news.set()

    async def take(self, number: int, limit: int, wait_s: float) -> list[T]:
        """Up to ``limit`` messages as batch ``number``; none after ``wait_s``.

        Raises:
            UnavailableError: the connection is lost.
        """
        if not self._waiting and not self._failure:
            self._news.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                return []
        if self._failure:
            raise UnavailableError(self._failure)
        count = min(limit, len(self._waiting))
        found = [self._waiting.popleft() for _ in range(count)]
        self._open.append((number, found))
        return found

    def stored(self, number: int) -> list[T]:
        """The messages of all batches up to ``number``, which may be acknowledged."""
        found: list[T] = []
        while self._open and self._open[0][0] <= number:
            found += self._open.popleft()[1]
        return found
