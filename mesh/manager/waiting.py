"""Waiting for the cluster to be as somebody needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.clock import Clock
    from mesh.jetstream.watch import ClusterView


async def until(
    view: ClusterView, clock: Clock, timeout_s: float, holds: Callable[[], bool]
) -> bool:
    """Whether something holds of what is seen of the cluster, at once or within ``timeout_s``.

    Args:
        view: looked at again whenever it changes.
        clock: measures the time.
        timeout_s: seconds.
        holds: asks the view; what it raises ends the waiting.
    """
    deadline_s = clock.monotonic_s() + timeout_s
    while True:
        version = view.version
        if holds():
            return True
        left_s = deadline_s - clock.monotonic_s()
        if left_s <= 0:
            return False
        await view.changed(version, left_s)
