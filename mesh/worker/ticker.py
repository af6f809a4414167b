"""Trigger in a cluster: an instance that publishes an event at each of its times.

It needs no Spark.  Each event, with its due time, is published in one atomic batch with a marker,
as the sink's rows are (``pyspark_nats.sink.markers``).  The marker has the last published time, the
epoch, and the trigger's start.  A new owner continues after the last event, with the original due
times; events that were due in between are published late.  The next marker of an older epoch is
refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Final

import orjson
from nats.js.errors import NotFoundError

from mesh.errors import MeshError
from mesh.jetstream.connection import UNREACHABLE, answer_of
from mesh.model import names
from mesh.model.cluster import InstanceState, InstanceStatus
from mesh.operators.dataflow.trigger import TriggerSchedule
from mesh.plan.bind.apps import bind_group
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.retries import Retries
    from mesh.spark.instance_io import InstanceIO

log = logging.getLogger(__name__)

#: Events of one atomic batch; the server accepts a thousand messages.
_BATCH_MAX: Final = 500
#: Longest interval between two reports, and between two looks at the clock.
_REPORT_S: Final = 1.0
#: Interval of marker renewals, so that the stream's ``max_age`` doesn't remove the marker.
_REFRESH_S: Final = 600.0
_TIMEOUT_S: Final = 5.0
#: Distance of the clock from the last event that is reported; those of workers differ by less.
_BEHIND_MS: Final = 10_000
#: Markers after which the older ones are purged.
_MARKERS_MAX: Final = 256
#: Error code: the last message on a subject is not the expected one.
_WRONG_LAST: Final = (10071, 10164)


@dataclass(frozen=True, slots=True)
class _Marker:
    """Progress of the trigger."""

    #: Start of the trigger.
    start_ms: int
    #: The last published time; -1 for none.
    position: int = -1
    epoch: int = -1
    #: The marker's sequence in the stream; 0 if there is none.
    sequence: int = 0

    def next_ms(self, schedule: TriggerSchedule) -> int | None:
        """The next due time of the trigger."""
        if self.position < 0:
            return schedule.first(self.start_ms)
        return schedule.after(self.position)


@dataclass(eq=False, repr=False)
class Ticker:
    """A task that runs one trigger until it is stopped; has ``Instance``'s interface."""

    _client: Client
    io: InstanceIO
    _report: Callable[[InstanceStatus], None]
    _clock: Clock
    _: KW_ONLY
    worker: str
    retries: Retries
    refresh_s: float = _REFRESH_S
    report_s: float = _REPORT_S
    markers_max: int = _MARKERS_MAX
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    task: asyncio.Task[None] | None = None
    _restarts: int = 0
    #: Markers that this ticker has written.
    _written: int = 0
    _ticks: int = 0
    #: Of the marker that has refused this one; 0 for none.
    _newer_epoch: int = 0

    def __post_init__(self) -> None:
        (self._trigger,) = bind_group(self.io.group).triggers
        (self._channel,) = self.io.group.outputs
        self._schedule = TriggerSchedule(self._trigger)
        prefix = names.marker_subject(self._channel.js_stream())
        self.marker_subject = f"{prefix}.{self.io.producer('0')}"

    def __repr__(self) -> str:
        assignment = self.io.assignment
        return f"Ticker({assignment.instance}, epoch={assignment.epoch})"

    def start(self) -> None:
        """Begin; returns at once.  To be called in the event loop, as ``stop``."""
        self.task = asyncio.create_task(self._run(), name=self.io.assignment.instance)

    def stop(self, *, settle: bool = False) -> None:
        """Request the end; a ``STOPPED`` report follows, also if the trigger has already ended.

        The next owner can always continue, as the marker holds all of the state.
        """
        self._stopping.set()
        if self._ended.is_set():
            self._say(InstanceState.STOPPED)

    def join(self) -> None:
        """Wait until the trigger has ended; not to be called in the loop's thread."""
        self._ended.wait()

    async def _run(self) -> None:
        name = self.io.assignment.instance
        error: str | None = None
        try:
            while not self._stopping.is_set():
                self._say(InstanceState.STARTING, error)
                try:
                    await self._run_once()
                except _TakenOverError:
                    log.warning(
                        "trigger was replaced by a newer epoch", extra=fields(instance=name)
                    )
                    break
                # A stranger's marker, or what no check has foreseen: the next try may do better.
                except Exception as failure:
                    error = str(failure) or type(failure).__name__
                    if isinstance(failure, MeshError):
                        error = failure.one_line()
                    log.warning("trigger failed", extra=fields(instance=name, error=error))
                    self._restarts += 1
                    self.retries = self.retries.failed(
                        self._clock.monotonic_s(), has_waited=isinstance(failure, TimeoutError)
                    )
                    rest_s = self.retries.rest_s
                    self._say(InstanceState.RETRYING, error, rest_s)
                    await self._wait(rest_s)
        finally:
            self._say(InstanceState.STOPPED, error)
            self._ended.set()

    async def _run_once(self) -> None:
        # Makes the server refuse batches that an older epoch is about to publish.
        marker = await self._write([], await self._read())
        written_s = self._clock.monotonic_s()
        self.retries = self.retries.running(written_s)
        self._say(InstanceState.RUNNING)
        reported_s = written_s
        while not self._stopping.is_set():
            next_ms = marker.next_ms(self._schedule)
            due = self._schedule.due(next_ms, self._clock.wall_ms(), _BATCH_MAX)
            now_s = self._clock.monotonic_s()
            if due or now_s - written_s >= self.refresh_s:
                marker = await self._write(due, marker)
                self._ticks += len(due)
                written_s = now_s
            if now_s - reported_s >= self.report_s:
                self._say_whether_late(marker)
                reported_s = now_s
            if not due:
                left_s = self.report_s
                if next_ms is not None:
                    left_s = min(left_s, (next_ms - self._clock.wall_ms()) / 1000)
                await self._wait(left_s)

    def _say_whether_late(self, marker: _Marker) -> None:
        """Report that it runs, or that it waits for a clock that was set back."""
        behind_ms = marker.position - self._clock.wall_ms()
        if behind_ms < _BEHIND_MS:
            self._say(InstanceState.RUNNING)
            return
        error = (
            f"the worker's clock is {behind_ms // 1000} s earlier than the last event: a clock was "
            "ahead, or this one was set back; the trigger continues at its next time"
        )
        self._say(InstanceState.RETRYING, error, behind_ms / 1000)

    async def _wait(self, seconds: float) -> None:
        """Wait for a stop request, for at most ``seconds``."""
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _read(self) -> _Marker:
        """The marker in the stream, or the initial one."""
        js = self._client.jetstream()
        try:
            stored = await js.get_last_msg(self._channel.js_stream(), self.marker_subject)
        except NotFoundError:
            return _Marker(self._clock.wall_ms())
        values = orjson.loads(stored.data or b"{}")
        marker = _Marker(values["start_ms"], values["position"], values["epoch"], stored.seq or 0)
        if marker.epoch > self.io.assignment.epoch:
            self._newer_epoch = marker.epoch
            raise _TakenOverError
        return marker

    async def _write(self, due: Sequence[int], before: _Marker) -> _Marker:
        """Publish events that are due, and the marker that says so, both or neither."""
        epoch = self.io.assignment.epoch
        after = replace(before, position=due[-1] if due else before.position, epoch=epoch)
        batch = secrets.token_hex(8)
        for number, due_ms in enumerate(due, 1):
            headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            headers["Content-Type"] = "application/json"
            event = orjson.dumps({self._trigger.schema.names[0]: due_ms})
            await self._client.publish(self._channel.subject(), event, headers=headers)
        headers = {"Nats-Expected-Last-Subject-Sequence": str(before.sequence)}
        if due:
            headers |= {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(len(due) + 1)}
            headers |= {"Nats-Batch-Commit": "1"}
        values = {"position": after.position, "epoch": epoch, "start_ms": after.start_ms}
        reply = await self._client.request(
            self.marker_subject, orjson.dumps(values), timeout=_TIMEOUT_S, headers=headers
        )
        answer = orjson.loads(reply.data)
        error = answer.get("error")
        if error is None:
            await self._purge_markers()
            return replace(after, sequence=answer["seq"])
        if error.get("err_code") in _WRONG_LAST:
            # Another epoch has published, or our own reply was lost: the marker tells which.
            return await self._read()
        raise MeshError(
            "MESH-N112",
            f'events of trigger "{self._trigger.schema.name}" were not accepted',
            detail=answer_of(error),
        )

    async def _purge_markers(self) -> None:
        """Purge old markers once there are many; they cost space only, so this may fail."""
        self._written += 1
        if self._written % self.markers_max == 0:
            js = self._client.jetstream()
            with contextlib.suppress(*UNREACHABLE):
                await js.purge_stream(
                    self._channel.js_stream(), subject=self.marker_subject, keep=1
                )

    def _say(
        self, state: InstanceState, error: str | None = None, rest_s: float | None = None
    ) -> None:
        assignment = self.io.assignment
        at_ms = self._clock.wall_ms()
        self._report(
            InstanceStatus(
                instance=assignment.instance,
                app=assignment.app,
                worker=self.worker,
                epoch=assignment.epoch,
                state=state,
                at_ms=at_ms,
                error=error,
                restarts=self._restarts,
                events_out=self._ticks,
                settled=state is InstanceState.STOPPED,
                retry_at_ms=None if rest_s is None else at_ms + round(rest_s * 1000),
                newer_epoch=self._newer_epoch,
            )
        )


class _TakenOverError(Exception):
    """A newer epoch owns the trigger."""
