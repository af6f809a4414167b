"""Messages that a broker has pushed: taken together, and acknowledged once they are stored."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from mesh.connect.contract import Batch, UnavailableError

if TYPE_CHECKING:
    from mesh.model.values import JsonMapping

T = TypeVar("T")
_TOGETHER: Final = 1000
_WAIT_S: Final = 0.5
#: Bytes of messages that a client may hand over before they are stored.
BYTES_MAX: Final = 256 << 20


class Arrivals(Generic[T]):
    """A queue of messages between a client's callbacks and ``Source.read``."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._news = asyncio.Event()
        self._failure = ""
        #: Batches that are not acknowledged, by number.
        self._open: deque[tuple[int, list[T]]] = deque()
        #: Size of each message that is not stored, in the order of arrival, and their sum.
        self._sizes: deque[int] = deque()
        self.unstored_bytes = 0
        #: Most of these bytes.
        self.bytes_max = BYTES_MAX
        self._freed = asyncio.Event()

    def put(self, message: T, size: int = 0) -> None:
        """Add a message of ``size`` bytes; with too many bytes the next ``take`` raises.

        No broker is asked to wait by a client that has taken its messages, so the connection is
        given up before the host's memory is full: other sources and sinks share it.
        """
        if self.unstored_bytes + size > self.bytes_max:
            self.fail(
                f"more than {self.bytes_max >> 20} MB have come that are not stored: the broker "
                "sends again what it keeps, and loses messages of quality 0"
            )
            return
        self._waiting.append(message)
        self._sizes.append(size)
        self.unstored_bytes += size
        self._news.set()

    async def room(self) -> None:
        """Wait until a quarter of the bytes at most is not stored: for clients that can pause."""
        while self.unstored_bytes > self.bytes_max // 4:
            self._freed.clear()
            await self._freed.wait()

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
        messages = [self._waiting.popleft() for _ in range(count)]
        self._open.append((number, messages))
        return messages

    def stored(self, number: int) -> list[T]:
        """The messages of all batches up to ``number``, which may be acknowledged."""
        messages: list[T] = []
        while self._open and self._open[0][0] <= number:
            messages += self._open.popleft()[1]
        self.unstored_bytes -= sum(self._sizes.popleft() for _ in messages)
        self._freed.set()
        return messages


class PushedPayloads:
    """The part of a ``Source`` that reads payloads that need no acknowledgement."""

    def begin(self) -> None:
        """Start without payloads; their names are those of no other start."""
        self._salt, self._number = secrets.token_hex(4), 0
        self.arrived: Arrivals[bytes] = Arrivals()

    async def put(self, payload: bytes) -> None:
        """Add a payload; the other side has to wait where there is no room."""
        self.arrived.put(payload, len(payload))
        await self.arrived.room()

    async def read(self) -> Batch | None:
        """The payloads that have arrived."""
        self._number += 1
        payloads = await self.arrived.take(self._number, _TOGETHER, _WAIT_S)
        if not payloads:
            return None
        names = [f"{self._salt}-{self._number}-{at}" for at in range(len(payloads))]
        return Batch(payloads, {"batch": self._number}, None, names)

    async def committed(self, position: JsonMapping) -> None:
        """Make room for other payloads."""
        self.arrived.stored(position["batch"])
