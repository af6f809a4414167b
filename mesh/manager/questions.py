"""Questions that a process with bounded time and memory answers, one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from anyio import CapacityLimiter

from mesh.http.bounds import Bound

if TYPE_CHECKING:
    from mesh.processes.bounded_process import Process

#: Questions of a kind that wait.
WAITING_MAX: Final = 4


class FunctionCalls:
    """Calls of functions in a process beside this one.

    Args:
        process: answers.
        limit_s: time for one answer, the start of the process among it, seconds.
        waiting: the message of the error when too many wait.
    """

    def __init__(self, process: Process, limit_s: float, waiting: str) -> None:
        self._process = process
        self._limit_s = limit_s
        self._limiter = CapacityLimiter(1)
        self._bound = Bound(WAITING_MAX, waiting)

    async def ask(self, function: str, *arguments: object) -> Any:
        """The result of ``module:function``, called with these arguments.

        Raises:
            MeshError: MESH-A429 when too many questions wait; what the function raises, and the
                error of the process for one that exceeds its limits.
        """
        with self._bound.turn():
            return await anyio.to_thread.run_sync(
                self._process.call,
                self._limit_s,
                function,
                *arguments,
                limiter=self._limiter,
                abandon_on_cancel=True,
            )
