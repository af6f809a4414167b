"""Notification about new messages in many streams over one dedicated connection.

Each subject is subscribed for one message and subscribed again after it fired, so a busy stream
costs one message per poll.

Several connections can be waited for at once.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark_nats.protocol.connection import DisconnectedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark_nats.protocol.connection import Connection


T = TypeVar("T")

#: Timeout of the echo, seconds.
_ECHO_S: Final = 2.0
#: Polling interval for an account that may not subscribe, seconds.
_POLL_S: Final = 0.1


class MessageListener:
    """Subscriptions by name, each to some subjects, and the names that received a message."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sids: dict[int, str] = {}
        self._listening: dict[str, tuple[int, ...]] = {}
        self._notified: set[str] = set()
        #: Number of the connection that the subscriptions were made over.
        self._connection_number = 0
        self._echo = (0, "")
        #: Whether this account may subscribe to the subjects.
        self._may_listen = True

    def listen(self, subjects: Mapping[str, tuple[str, ...]]) -> set[str]:
        """Subscribe the names that are not subscribed, and return them.

        Messages published from now on are noticed; the caller has to look for earlier ones.
        """

        def step() -> set[str]:
            fresh = subjects.keys() - self._listening.keys()
            for name in fresh:
                sids = tuple(self._connection.subscribe(s, most=1) for s in subjects[name])
                self._listening[name] = sids
                self._sids |= dict.fromkeys(sids, name)
            if fresh:
                self._give_back()
                # An account may read a stream without seeing the messages published to it.
                self._may_listen = not self._connection.has_denied
            return fresh

        return self._retrying(step)

    def forget(self, name: str) -> None:
        """Remove ``name`` and its subscriptions."""
        self._notified.discard(name)
        self._end(name)

    def poll(self) -> set[str]:
        """Return the names that received a message since the last poll; they are unsubscribed."""

        def step() -> None:
            while self._take() or self._connection.receive_now():
                pass

        self._retrying(step)
        names, self._notified = self._notified, set()
        if not self._may_listen:
            names |= self._listening.keys()
        return names

    def wait(self, wait_s: float) -> None:
        """Return when a message arrives, or after ``wait_s``."""
        wait_s = min(wait_s, self.wait_max_s)

        def step() -> None:
            self._take()
            # A new connection has no subscriptions yet.
            if not self._notified and self._sids and wait_s > 0:
                self._connection.is_readable(wait_s)

        self._retrying(step)

    @property
    def wait_max_s(self) -> float:
        """Longest useful wait for a message: short for an account that may not subscribe."""
        return float("inf") if self._may_listen else _POLL_S

    @property
    def connection(self) -> Connection:
        """Its connection, for ``wait_any``."""
        return self._connection

    @property
    def has_news(self) -> bool:
        """Whether the next poll returns something without waiting for the server."""
        return bool(self._notified)

    def check(self) -> None:
        """Check that the connection is alive, and reconnect if it is not."""
        self._retrying(self._give_back)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _retrying(self, step: Callable[[], T]) -> T:
        def whole() -> T:
            if self._connection.open_count != self._connection_number:
                self._connection_number = self._connection.open_count
                self._sids.clear()
                self._listening.clear()
                self._echo = self._connection.new_inbox()
            return step()

        return self._connection.retry_while_unavailable("listening", whole, is_under_way=True)

    def _give_back(self) -> None:
        """Wait for an echo from the server, which has then processed everything sent before."""
        sid, subject = self._echo
        self._connection.send(f"PUB {subject} 0\r\n\r\n".encode())
        deadline_s = time.monotonic() + _ECHO_S
        while True:
            frame = self._connection.next_frame()
            if frame is None:
                self._connection.receive(deadline_s)
            elif frame[0] == sid:
                return
            else:
                self._note(frame[0])

    def _take(self) -> bool:
        """Record the messages that have arrived, and return whether there were any."""
        has_any = False
        while (frame := self._connection.next_frame()) is not None:
            self._note(frame[0])
            has_any = True
        return has_any

    def _note(self, sid: int) -> None:
        name = self._sids.get(sid)
        if name is not None:
            self._notified.add(name)
            self._end(name)

    def _end(self, name: str) -> None:
        sids = self._listening.pop(name, ())
        for sid in sids:
            self._sids.pop(sid, None)
        if sids and self._connection.is_open:
            try:
                self._connection.unsubscribe(*sids)
            except (DisconnectedError, OSError):
                # The next call reconnects.
                return


def wait_any(
    connections: Iterable[Connection], others: Iterable[int], wait_s: float
) -> list[Connection | int]:
    """Wait until one of several connections or file descriptors is readable.

    Args:
        connections: those that are closed are left out.
        others: file descriptors.
        wait_s: longest wait, seconds.

    Returns:
        Those that are readable; empty after ``wait_s``.
    """
    poll = select.poll()
    by_fd: dict[int, Connection | int] = {}
    # Encrypted bytes may have been received already.
    ready: list[Connection | int] = []
    for connection in connections:
        descriptor = connection.fileno()
        if connection.has_received:
            ready.append(connection)
        elif descriptor is not None:
            by_fd[descriptor] = connection
    by_fd.update((descriptor, descriptor) for descriptor in others)
    for descriptor in by_fd:
        poll.register(descriptor, select.POLLIN)
    # Rounded up, so that a short wait is not zero.
    wait_ms = 0 if ready else max(0, -int(-wait_s * 1000 // 1))
    return [*ready, *(by_fd[at] for at, _ in poll.poll(wait_ms))]
