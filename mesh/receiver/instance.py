"""An instance of the connector host: the part that sources and sinks have in common."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from nats.errors import Error as NatsError

from mesh.connect.contract import UnavailableError
from mesh.errors import MeshError
from mesh.model.access import check_inputs
from mesh.model.cluster import InstanceState, InstanceStatus
from mesh.model.secrets import masked
from mesh.processes.signals import end
from mesh.receiver.opened import Opened, with_schema
from mesh.receiver.outcomes import described, is_outage, reason_of
from mesh.receiver.positions import PositionStore, TakenOverError, listen
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nats.aio.subscription import Subscription

    from mesh.model.app import GroupSpec
    from mesh.model.cluster import Assignment, ConnectorStatus
    from mesh.model.values import JsonObject
    from mesh.receiver.environment import HostEnvironment
    from mesh.receiver.positions import Replayed

log = logging.getLogger(__name__)

#: Interval of reports; time for a write under way when the instance stops, seconds.
_REPORT_S: Final = 1.0
_STOP_S: Final = 5.0
#: Equal failures for a reason that no connector foresees, after which the status names them.
_ALIKE_MAX: Final = 5


class ConnectorInstance(ABC):
    """A task that runs one source or sink until it is stopped."""

    def __init__(
        self, environment: HostEnvironment, group: GroupSpec, assignment: Assignment
    ) -> None:
        self.environment = environment.of_app(group.app, group.reads or ())
        self.group = group
        self.assignment = assignment
        #: Set before each ``_run``.
        self.opened: Opened
        self._state = InstanceState.STARTING
        self._error: str | None = None
        self._secrets: Mapping[str, str] = {}
        self._retry_at_ms: int | None = None
        self._restarts = 0
        #: The last error that the connector does not foresee, and how often it came alike.
        self._unforeseen, self._alike = "", 0
        self._newer_epoch = 0
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; returns at once."""
        self._task = asyncio.create_task(self._supervise(), name=self.assignment.instance)

    async def stop(self, *, is_removed: bool = False) -> None:
        """Stop; a ``STOPPED`` report precedes the return.

        If the source or sink ``is_removed`` from its app, what it has created elsewhere goes too.
        """
        has_ended = self._task is None or self._task.done()
        self._stopping.set()
        self._request_stop()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_STOP_S)
            await end([self._task])
        if is_removed:
            await self._remove()
        # One that has ended by itself has reported that before it was asked.
        if has_ended or self._state is not InstanceState.STOPPED:
            self._state = InstanceState.STOPPED
            self._report()

    async def abandon(self) -> None:
        """End the tasks without reports, as if the process had ended."""
        self._stopping.set()
        if self._task is not None:
            await end([self._task])

    def status(self) -> InstanceStatus:
        """The report on it as it is now."""
        assignment = self.assignment
        connectors = self._connectors()
        away = [f"{d.name}: {d.error}" for d in connectors if d.error]
        counts = self._counts()
        if self._state is InstanceState.STOPPED and "position" not in counts:
            counts["position"] = {}
        return InstanceStatus(
            instance=assignment.instance,
            app=assignment.app,
            worker=self.environment.worker,
            epoch=assignment.epoch,
            state=self._state,
            at_ms=self.environment.clock.wall_ms(),
            error=self._error or ("; ".join(away) or None),
            restarts=self._restarts,
            settled=self._state is InstanceState.STOPPED,
            retry_at_ms=self._retry_at_ms,
            newer_epoch=self._newer_epoch,
            connectors=connectors,
            **counts,
        )

    def positions(self, js_stream: str, part: str) -> PositionStore:
        """The store of one position of this instance; it outlives moves and edits."""
        name = f"{self.group.name}-{part}"
        assignment = self.assignment
        return PositionStore(
            self.environment.client, js_stream, name, assignment.app_incarnation, assignment.epoch
        )

    # --- of sources and sinks

    @abstractmethod
    async def _run(self) -> None:
        """Work until ``_request_stop``, or until an error."""

    def _request_stop(self) -> None:
        """End ``_run`` soon; one that may be cancelled anywhere needs no request."""
        return

    async def _replay(self, replayed: Replayed) -> str | None:
        """Take a payload again; see ``mesh.receiver.positions.listen``."""
        raise UnavailableError(f"{replayed.connector} takes nothing again")

    async def _remove(self) -> None:
        """Delete what it has created on the other side."""
        return

    def _connectors(self) -> tuple[ConnectorStatus, ...]:
        return ()

    def _counts(self) -> JsonObject:
        return {}

    # ---

    async def _supervise(self) -> None:
        retries = self.environment.retries()
        reporting = asyncio.create_task(self._report_often())
        assignment = self.assignment
        replays: Subscription | None = None
        try:
            while not self._stopping.is_set():
                try:
                    client = self.environment.client
                    replays = replays or await listen(
                        client, assignment.app, assignment.group, self._replay
                    )
                    check_inputs(self.group)
                    opened = Opened.of_group(self.group)
                    self.opened = await with_schema(opened, self.environment.access)
                    names = opened.secrets(self.environment)
                    environment = self.environment
                    self._secrets = (
                        await environment.secrets(names, environment.app) if names else {}
                    )
                    await self._run()
                except TakenOverError as error:
                    extra = fields(instance=self.assignment.instance, epoch=error.epoch)
                    log.warning("instance was replaced by a newer epoch", extra=extra)
                    self._newer_epoch = error.epoch
                    return
                # A connector is code of others, and its failure must not end the host.
                except Exception as error:
                    self._error = self._explain(error)
                    extra = fields(instance=self.assignment.instance, error=self._error)
                    is_named = self._alike == _ALIKE_MAX
                    log.warning("instance failed", extra=extra, exc_info=is_named)
                    self._restarts += 1
                    retries = retries.failed(self.environment.clock.monotonic_s())
                    self._retry_at_ms = self.environment.clock.wall_ms() + round(
                        retries.rest_s * 1000
                    )
                    self._state = InstanceState.RETRYING
                    self._report()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(retries.rest_s):
                            await self._stopping.wait()
        finally:
            reporting.cancel()
            with contextlib.suppress(NatsError, OSError):
                if replays is not None:
                    await replays.unsubscribe()
            self._state = InstanceState.STOPPED
            self._report()

    def _explain(self, error: Exception) -> str:
        """The error as the status shows it; with a code and a remedy once it came often alike."""
        if isinstance(error, MeshError):
            return masked(error.one_line())
        if is_outage(error):
            return masked(reason_of(error))
        text = described(error)
        self._alike = self._alike + 1 if text == self._unforeseen else 1
        self._unforeseen = text
        if self._alike < _ALIKE_MAX:
            return text
        (connector, *_) = self.group.connectors
        failure = MeshError(
            "MESH-C136",
            f'source or sink "{connector}" failed {self._alike} times alike: {text}',
            detail=f"It is tried again.  The log of {self.environment.worker} has the place.",
        )
        return failure.one_line()

    def _running(self) -> None:
        """Record and report that it runs."""
        if self._state is not InstanceState.RUNNING:
            self._state, self._error, self._retry_at_ms = InstanceState.RUNNING, None, None
            self._report()

    async def _count_waiting(self) -> None:  # noqa: B027
        """Update the number of messages that wait."""

    async def _report_often(self) -> None:
        while True:
            await self._count_waiting()
            self._report()
            await asyncio.sleep(_REPORT_S)

    def _report(self) -> None:
        self.environment.report(self.status())


class UnloadedInstance(ConnectorInstance):
    """Instance of a connector that can't be loaded: it reports the reason until it is stopped."""

    def __init__(
        self,
        environment: HostEnvironment,
        group: GroupSpec,
        assignment: Assignment,
        reason: Exception,
    ) -> None:
        super().__init__(environment, group, assignment)
        self._reason = reason

    async def _run(self) -> None:
        raise MeshError(
            "MESH-C130",
            f'connector "{self.group.connectors[0]}" can\'t be loaded on this worker',
            detail=f"{type(self._reason).__name__}: {self._reason}.",
            hint="Correct its package, and restart the worker.",
        )
