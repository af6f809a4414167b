"""Wait for several connections at once."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_nats.protocol.connection import Connection


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
