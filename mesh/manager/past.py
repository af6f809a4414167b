"""Questions about an app's past, answered by a process with bounded time and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from anyio import CapacityLimiter

from mesh.errors import MeshError
from mesh.functions.script_switch import OF_MANAGERS
from mesh.http.bounds import Bound
from mesh.processes.bounded_process import BoundedProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.manager.desired_state import DesiredState
    from mesh.model.begin import StartPosition
    from mesh.model.cluster import AppRecord
    from mesh.model.lineage import StoredStream
    from mesh.processes.bounded_process import Process
    from mesh.settings import Settings


#: Time for one answer, the start of the process among it, seconds.
ANSWER_S: Final = 120.0
_MODULE: Final = "mesh.lineage.process"

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


def _exceeded(detail: str) -> MeshError:
    return MeshError(
        "MESH-C153",
        "the answer takes too much work",
        detail=detail,
        hint="Fork the app from a place shortly before the event, and ask about the fork's.",
    )


#: Of this Python process, so that it is started once.
_PROCESS: Final = BoundedProcess(_MODULE, _exceeded, OF_MANAGERS)


class PastQuestions:
    """Lineage and comparisons, as any manager answers.

    ``process`` computes the answers; tests give one of their own.
    """

    def __init__(
        self, desired: DesiredState, settings: Settings, process: Process | None = None
    ) -> None:
        self._desired = desired
        self._nats, self._store = settings.nats, settings.state.store
        self._questions = FunctionCalls(
            process or _PROCESS, ANSWER_S, "questions about the past wait"
        )

    async def why(self, app: str, stream: str, sequence: int, index: int) -> object:
        """The lineage of an event of ``app``, as the values of ``mesh.model.lineage.Cause``.

        Raises:
            MeshError: MESH-A404 for an app, a stream or a message that isn't there, MESH-C152 and
                MESH-C153 for an event that can't be recomputed.
        """
        record = self._desired.get(app).value
        return await self._ask(f"{_MODULE}:why", record, self._store, stream, sequence, index)

    async def compare(
        self,
        app: str,
        other: str,
        streams: Sequence[str],
        key: Sequence[str],
        ignored: Sequence[str] = (),
    ) -> Any:
        """The differences of the outputs of two apps; see ``mesh.lineage.outputs``.

        Raises:
            MeshError: MESH-A404 for an app or a stream that isn't there, MESH-C153 for outputs that
                are too large.
        """
        before, after = self._desired.get(app).value, self._desired.get(other).value
        arguments = before, after, list(streams), list(key), list(ignored)
        return await self._ask(f"{_MODULE}:compare", *arguments)

    async def adopt(
        self, record: AppRecord, group: str, number: int, base: str, end: str, files: str
    ) -> str:
        """The manifest of a fork's state where the app's is; see ``mesh.lineage.process``.

        Raises:
            MeshError: MESH-C153 for too much input; what ``mesh.lineage.process.adopt`` raises.
        """
        manifest = await self._ask(f"{_MODULE}:adopt", record, group, number, base, end, files)
        return str(manifest)

    async def stored(
        self,
        streams: Sequence[StoredStream],
        last: int,
        since: StartPosition | None,
        until: StartPosition | None,
    ) -> Any:
        """The last events of streams in a range, and notes; see ``mesh.lineage.process``."""
        return await self._ask(f"{_MODULE}:stored", list(streams), last, since, until)

    async def _ask(self, function: str, *arguments: object) -> Any:
        return await self._questions.ask(function, self._nats, *arguments)
