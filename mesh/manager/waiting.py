"""Waits for conditions of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.clock import Clock
    from mesh.jetstream.watch import ClusterView


async def until(
    view: ClusterView, clock: Clock, timeout_s: float, holds: Callable[[], bool]
) -> bool:
    """Wait until a condition holds of the view; returns whether it does within ``timeout_s``.

    Args:
        view: the condition is evaluated whenever it changes.
        clock: measures the time.
        timeout_s: seconds.
        holds: the condition; its errors end the wait.
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


async def until_removed(
    view: ClusterView, clock: Clock, app: str, timeout_s: float, hint: str
) -> None:
    """Wait until the removal of channels and groups of earlier texts of ``app`` has ended.

    Returns at once for an app that is not there.

    Args:
        view: the local view of the cluster.
        clock: measures the time.
        app: its name.
        timeout_s: seconds.
        hint: what to do when it takes longer.

    Raises:
        MeshError: MESH-A409 when something is still being removed after ``timeout_s``.
    """

    def is_free() -> bool:
        entry = view.snapshot().app(app)
        return entry is None or entry.value.retired is None or not entry.value.retired.removing

    if not await until(view, clock, timeout_s, is_free):
        raise MeshError(
            "MESH-A409",
            f'parts of an earlier text of app "{app}" are still being removed',
            hint=hint,
        )
