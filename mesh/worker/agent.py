"""A worker's agent: the shell of ``mesh.control.agent_state``.

The agent is a process of its own so that nothing Spark does can keep it from sending heartbeats.
All inputs become events of one queue.  The state machine responds with instructions.  The agent
performs them at once, or starts tasks whose results are events again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nats.js.errors import NoStreamResponseError, NotFoundError

from mesh.connect import registry
from mesh.control import membership
from mesh.control.agent_events import (
    AgentView,
    Event,
    HeartbeatConflicted,
    HeartbeatFailed,
    HeartbeatStored,
    InstanceReported,
    Instruction,
    KillSession,
    LeaveCluster,
    Membership,
    ReadRecord,
    RecordRead,
    Reject,
    ReportWritten,
    SessionEnded,
    SessionPhase,
    SessionReady,
    StartSession,
    TimeReached,
    ViewChanged,
    WorkerStopRequested,
    WriteHeartbeat,
    WriteReport,
)
from mesh.control.agent_state import AgentState
from mesh.control.journal import JournalEntry
from mesh.control.readiness import worker_reasons
from mesh.control.standby import Hold, Release
from mesh.control.worker_reconcile import Start, Stop
from mesh.errors import MeshError
from mesh.jetstream import kv
from mesh.jetstream.connection import UNREACHABLE
from mesh.jetstream.journal import Journal
from mesh.jetstream.watch import ClusterView
from mesh.model import codec, names
from mesh.model.cluster import InstanceStatus, NodeRecord, NodeRole, StandbyStatus, StatisticsLevel
from mesh.processes import machine
from mesh.processes.signals import end
from mesh.telemetry.logs import fields
from mesh.worker.children import SessionProcess
from mesh.worker.metrics import Placed, WorkerValues
from mesh.worker.protocol import (
    Figures,
    HoldState,
    Ready,
    ReleaseState,
    Report,
    StandbyReport,
    StartInstance,
    StopInstance,
)
from mesh.worker.questions import Questions

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.model.cluster import Assignment
    from mesh.settings import Settings

log = logging.getLogger(__name__)


@dataclass
class Agent:
    """The shell of one worker's state machine."""

    id: str
    settings: Settings
    client: Client
    view: ClusterView
    clock: Clock
    session: SessionProcess
    journal: Journal
    questions: Questions
    state: AgentState = field(init=False)
    _load: machine.Load = field(default_factory=machine.Load)
    #: Events in order of arrival; an exception ends the agent.
    _events: asyncio.Queue[Event | BaseException] = field(default_factory=asyncio.Queue)
    #: Tasks of instructions that are not performed at once.
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _error: MeshError | None = None
    #: Of the session's JVM and Spark, as reported last.
    figures: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        worker = self.settings.worker
        identity = NodeRecord(
            id=self.id,
            role=NodeRole.WORKER,
            incarnation=secrets.token_hex(4),
            address="",
            beat=0,
            pid=os.getpid(),
            labels=membership.labels(worker.labels),
            capacity=worker.capacity,
            takes_receivers=worker.takes_receivers,
            takes_queries=worker.takes_queries,
            connectors=registry.transports(),
            has_spark=worker.spark,
            machine=machine.name(),
            process_started=machine.started(os.getpid()),
        )
        self.state = AgentState(identity, self.settings, self.clock.monotonic_s())
        #: Apps with statistics DETAIL, and when that was looked up.
        self._detailed: tuple[float, frozenset[str]] = float("-inf"), frozenset()

    async def claim(self) -> None:
        """Wait until this worker's name is free.

        Raises:
            MeshError: MESH-C110 when another process of this name sends heartbeats.
        """
        while self._error is None:
            version = self.view.version
            self._handle(ViewChanged())
            if self.state.membership is not Membership.CLAIMING:
                break
            # Heartbeats of another process are no news, but they change the version.
            await self.view.changed(version, self.state.wake_s - self.clock.monotonic_s())
        if self._error is not None:
            raise self._error

    async def run(self) -> None:
        """Run as a member of the cluster until the instances are handed over.

        Raises:
            MeshError: MESH-C110 when another process has taken this worker's name.
        """
        self._begin(self._watch())
        self._begin(self._listen())
        for task in (*self.view.tasks.values(), *self.journal.tasks.values()):
            task.add_done_callback(self._ended)
        while not self.state.is_final:
            self._handle(await self._next_event())
        if self._error is not None:
            raise self._error

    def metrics(self) -> WorkerValues:
        """Input of this worker's metrics."""
        apps = {a.value.spec.name: a.value.statistics for a in self.view.snapshot().apps}
        return WorkerValues(
            self.id,
            not worker_reasons(self.state),
            [
                Placed(one.app, one.group, one.instance, one.epoch, apps[one.app])
                for one in self.state.running.values()
                if one.app in apps
            ],
            self.session.instances(),
            self.session.pid,
            self.figures,
        )

    def hand_over(self) -> None:
        """Request that the instances move away; ``run`` ends then, or if no worker accepts them."""
        self._events.put_nowait(WorkerStopRequested())

    async def leave(self) -> None:
        """Stop the instances and delete this worker's record, so that they move at once."""
        await end(list(self._tasks))
        if self.state.session is SessionPhase.READY:
            await self.session.stop()
        else:
            # No instance runs yet, and the session would read its end of input only once Spark is
            # up.
            await self.session.kill()
        with contextlib.suppress(kv.RevisionConflict, *UNREACHABLE):
            await kv.write(
                self.client.jetstream(),
                names.CONTROL_BUCKET,
                self._key,
                None,
                revision=self.state.revision,
            )

    @property
    def _key(self) -> str:
        return names.node_key(NodeRole.WORKER, self.id)

    async def _next_event(self) -> Event:
        wait_s = max(0.0, self.state.wake_s - self.clock.monotonic_s())
        try:
            async with asyncio.timeout(wait_s):
                event = await self._events.get()
        except TimeoutError:
            return TimeReached()
        if isinstance(event, BaseException):
            raise event
        return event

    def _handle(self, event: Event) -> None:
        snapshot = self.view.snapshot()
        holder = None
        if self.state.membership is Membership.CLAIMING:
            holder = snapshot.node(NodeRole.WORKER, self.id)
        view = AgentView(
            snapshot,
            self.view.revision(names.CONTROL_BUCKET, self._key),
            self.clock.wall_ms(),
            holder_has_ended=holder is not None and machine.has_ended(holder.value),
        )
        was_out = self.state.membership is Membership.OUT
        for instruction in self.state.handle(event, view):
            self._perform(instruction)
        if self.state.membership is Membership.OUT and not was_out:
            log.warning("term is over, instances stopped", extra=fields(worker=self.id))

    def _perform(self, instruction: Instruction) -> None:
        """Perform an instruction, or start it; commands reach the session in this order."""
        match instruction:
            case WriteHeartbeat():
                self._begin(self._write_heartbeat(instruction))
            case ReadRecord(limit_s):
                self._begin(self._read_record(limit_s))
            case WriteReport(status):
                self._begin(self._write_report(status))
            case Start(assignment, group):
                self.questions.began(assignment, group)
                self.session.send(StartInstance(assignment, group))
            case Stop(assignment, settle):
                self.questions.ended(assignment)
                is_removed = was_removed(assignment, self.view.snapshot())
                self.session.send(
                    StopInstance(assignment.instance, assignment.epoch, settle, is_removed)
                )
            case Hold(standby, group):
                self.session.send(HoldState(standby, group))
            case Release(instance):
                self.session.send(ReleaseState(instance))
            case StartSession():
                log.warning("session ended, starting another", extra=fields(worker=self.id))
                self._begin(self._start_session())
            case KillSession(stuck):
                extra = fields(worker=self.id, instances=stuck)
                log.warning("session is stuck, killed", extra=extra)
                self._begin(self.session.kill())
            case Reject(pid, was_member):
                self._error = membership.rejection(
                    NodeRole.WORKER, self.id, pid, was_member=was_member
                )
            case LeaveCluster(was_in_time):
                if not was_in_time:
                    text = "ends with instances that were not taken over"
                    log.warning(text, extra=fields(worker=self.id))
            case JournalEntry():
                self.journal.note(instruction)

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._events.put_nowait(error)

    async def _watch(self) -> None:
        news = self.view.news
        while True:
            news = await self.view.news_after(news, self.settings.worker.ttl_s)
            self._events.put_nowait(ViewChanged())

    async def _listen(self) -> None:
        """Forward the session's replies until it ends."""
        async for reply in self.session.replies():
            match reply:
                case Ready(spark_version, started_in_s):
                    extra = fields(worker=self.id, spark=spark_version, started_in_s=started_in_s)
                    log.info("session ready", extra=extra)
                    self._events.put_nowait(SessionReady(started_in_s))
                case Report(status):
                    self._events.put_nowait(InstanceReported(status))
                case StandbyReport(holds):
                    self._begin(self._put_status(names.standby_key(holds.instance), holds))
                case Figures(values):
                    self.figures = values
        self.figures = {}
        self._events.put_nowait(SessionEnded())

    async def _start_session(self) -> None:
        await self.session.start()
        await self._listen()

    async def _write_heartbeat(self, instruction: WriteHeartbeat) -> None:
        event: Event = HeartbeatFailed()
        load = self._load.measure(self.clock.monotonic_s(), self.session.pid)
        data = codec.encode(replace(instruction.record, metrics=load))
        js, bucket = self.client.jetstream(), names.CONTROL_BUCKET
        try:
            async with asyncio.timeout(instruction.limit_s):
                revision = await kv.write(
                    js, bucket, self._key, data, revision=instruction.revision
                )
            event = HeartbeatStored(revision)
        except kv.RevisionConflict:
            event = HeartbeatConflicted()
        except UNREACHABLE as error:
            event = HeartbeatFailed(is_leaderless=isinstance(error, NoStreamResponseError))
            log.debug("heartbeat not stored", extra=fields(error=error))
        self._events.put_nowait(event)

    async def _read_record(self, limit_s: float) -> None:
        event: Event = HeartbeatFailed()
        subject = kv.subject(names.CONTROL_BUCKET, self._key)
        try:
            async with asyncio.timeout(limit_s):
                stream = f"KV_{names.CONTROL_BUCKET}"
                message = await self.client.jetstream().get_last_msg(stream, subject)
            is_deleted = kv.OPERATION in (message.headers or {})
            record = None if is_deleted else codec.decode(NodeRecord, message.data or b"")
            has_ended = record is not None and machine.has_ended(record)
            event = RecordRead(message.seq or 0, record, has_ended)
        except NotFoundError:
            # The bucket has lost the record; the next heartbeat is the first again.
            event = RecordRead(0, None)
        except MeshError as error:
            # The next heartbeat replaces it.
            log.warning("own record can't be read", extra=fields(key=self._key, error=error))
            event = RecordRead(message.seq or 0, None)
        except UNREACHABLE as error:
            log.debug("heartbeat not read", extra=fields(error=error))
        self._events.put_nowait(event)

    async def _write_report(self, status: InstanceStatus) -> None:
        if status.elements and status.app not in self._detailed_apps():
            status = replace(status, elements=())
        await self._put_status(names.status_key(status.instance), status)
        self._events.put_nowait(ReportWritten(status))

    def _detailed_apps(self) -> frozenset[str]:
        """The apps with statistics DETAIL, as of a second ago at most."""
        now_s = self.clock.monotonic_s()
        if now_s - self._detailed[0] >= 1.0:
            apps = (one.value for one in self.view.snapshot().apps)
            detail_apps = frozenset(
                a.spec.name for a in apps if a.statistics is StatisticsLevel.DETAIL
            )
            self._detailed = now_s, detail_apps
        return self._detailed[1]

    async def _put_status(self, key: str, status: InstanceStatus | StandbyStatus) -> None:
        try:
            js, data = self.client.jetstream(), codec.encode(status)
            revision = await kv.put(js, names.STATUS_BUCKET, key, data)
            self.view.took_write(names.STATUS_BUCKET, key, status, revision)
        except UNREACHABLE as error:
            extra = fields(instance=status.instance, error=error)
            log.debug("report not stored", extra=extra)


def was_removed(assignment: Assignment, snapshot: ClusterSnapshot) -> bool:
    """Whether the app of an instance is being removed, or no longer has its group."""
    app = snapshot.app(assignment.app)
    if app is None or app.value.incarnation != assignment.app_incarnation:
        return False
    return app.value.deleting or app.value.spec.group(assignment.group) is None
