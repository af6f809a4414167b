"""Wait for several connections at once."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_nats.protocol.connection import Connection


def wait_any(connections: Iterable[Connection], others: Iterable[int], wait_s: float) -> None:
    """Wait until one of several connections or file descriptors is readable.

    Args:
        connections: those that are closed are left out.
        others: file descriptors.
        wait_s: longest wait, seconds.
    """
    poll = select.poll()
    for connection in connections:
        # Encrypted bytes may have been received already.
        if connection.is_readable():
            return
        descriptor = connection.fileno()
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
    for descriptor in others:
        poll.register(descriptor, select.POLLIN)
    # Rounded up, so that a short wait is not zero.
    poll.poll(max(0, -int(-wait_s * 1000 // 1)))
