"""Waiting for the cluster to be as somebody needs it."""

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


async def until_removed(
    view: ClusterView, clock: Clock, app: str, timeout_s: float, hint: str
) -> None:
    """Wait until nothing is being removed that an edit took out of ``app``.

    Returns at once for an app that is not there.

    Args:
        view: what is seen of the cluster.
        clock: measures the time.
        app: its name.
        timeout_s: seconds.
        hint: what to do when it takes longer.

    Raises:
        MeshError: MESH-A409 when something is still being removed after ``timeout_s``.
    """

    def is_free() -> bool:
        found = view.snapshot().app(app)
        return found is None or found.value.retired is None or not found.value.retired.removing

    if not await until(view, clock, timeout_s, is_free):
        raise MeshError(
            "MESH-A409",
            f'parts of an earlier text of app "{app}" are still being removed',
            hint=hint,
        )
