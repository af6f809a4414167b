"""A worker's agent: it beats, and keeps a Spark session that runs what is assigned to it.

The agent is a process of its own so that nothing Spark does can keep it from beating.  When it has
not been able to renew its record for its term, it stops its instances: by then a manager may have
placed them elsewhere.  It keeps trying, and takes up again what is still assigned to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mesh import machine
from mesh.clock import SystemClock
from mesh.control import duties, membership, standby
from mesh.control.journal import Entry, of_report
from mesh.errors import MeshError
from mesh.jetstream import channels, kv
from mesh.jetstream.connection import UNREACHABLE, close, connect
from mesh.jetstream.journal import Journal
from mesh.jetstream.watch import ClusterView
from mesh.logs import fields
from mesh.model import codec, names
from mesh.model.cluster import (
    Assignment,
    InstanceState,
    InstanceStatus,
    NodeRecord,
    Role,
    Standby,
    StandbyStatus,
)
from mesh.signals import end, signalled
from mesh.worker.child import SessionProcess
from mesh.worker.protocol import (
    Held,
    HoldState,
    Ready,
    ReleaseState,
    Report,
    SessionConfig,
    StartInstance,
    StopInstance,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client

    from mesh.clock import Clock
    from mesh.control.snapshot import Seen
    from mesh.settings import Settings
    from mesh.worker.protocol import Reply

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Stopping:
    """What the session was told to stop: in which epoch, and since when, seconds."""

    epoch: int
    since_s: float


@dataclass
class Agent:
    """The loops of one worker."""

    id: str
    settings: Settings
    client: Client
    view: ClusterView
    clock: Clock
    session: SessionProcess
    journal: Journal
    incarnation: str = field(default_factory=lambda: secrets.token_hex(4))
    #: What the session was told to run, by instance.
    _running: dict[str, Assignment] = field(default_factory=dict)
    #: What the session was told to stop, and has not said that it has.
    _stopping: dict[str, _Stopping] = field(default_factory=dict)
    #: What the journal was last told of each instance.
    _noted: dict[str, tuple[int, InstanceState]] = field(default_factory=dict)
    #: What the session was told to hold for others, by instance.
    _holding: dict[str, Standby] = field(default_factory=dict)
    _ready: bool = False
    #: Whether a session of this process has been ready.
    _was_ready: bool = False
    #: Since when the session is not ready, seconds.
    _unready_s: float = 0.0
    #: Set when this worker is to end.
    _leaving: bool = False
    _load: machine.Load = field(default_factory=machine.Load)
    #: When a heartbeat was last sent that the server took, seconds.
    _renewed_s: float = 0.0
    _revision: int = 0
    #: Whether its term was over, and no heartbeat has been taken since.
    _is_out: bool = False
    #: Revision of the first heartbeat that was taken after that.
    _rejoined: int = 0
    _beats: int = 0
    _beat_now: asyncio.Event = field(default_factory=asyncio.Event)

    async def claim(self) -> None:
        """Wait until this worker's name is free.

        Raises:
            MeshError: MESH-C110 when another process of this name beats.
        """
        worker = self.settings.worker
        self._unready_s = self.clock.monotonic_s()
        first = self._record()
        while True:
            record, version = self._record(), self.view.version
            now_s = self.clock.monotonic_s()
            ended = record is not None and machine.has_ended(record.value)
            if ended or not membership.is_taken(
                record, self.incarnation, now_s, worker.ttl_s, worker.margin_s
            ):
                self._revision = self.view.revision(names.CONTROL_BUCKET, self._key)
                self._note("began", f"process {os.getpid()}")
                return
            assert record is not None
            if first is not None and record.revision != first.revision:
                me = f"process {os.getpid()}"
                text = f"was refused the name {self.id}"
                cause = f"process {record.value.pid} is alive under it"
                self.journal.note(Entry(text, cause, by=me, worker=self.id))
                raise MeshError(
                    "MESH-C110",
                    f'another worker is called "{self.id}"',
                    detail=f"Its process id is {record.value.pid}.",
                    hint="Give this one another name with --id or MESH_WORKER_ID.",
                )
            await self.view.changed(version, worker.ttl_s / membership.BEATS_PER_TERM)

    async def beat(self) -> None:
        """Renew this worker's record for ever, and stop everything when that fails for a term."""
        ttl_s = self.settings.worker.ttl_s
        self._renewed_s = self.clock.monotonic_s()
        while True:
            # Also before an attempt, which may take its time.
            await self._stop_if_over()
            sent_s = self.clock.monotonic_s()
            try:
                # An attempt must not outlast the term, or the instances would stop too late.
                left_s = self._renewed_s + ttl_s - sent_s
                async with asyncio.timeout(min(left_s, ttl_s / 2) if left_s > 0 else ttl_s / 2):
                    await self._renew()
                self._renewed_s = sent_s
                if self._is_out:
                    self._rejoined, self._is_out = self._revision, False
            except kv.RevisionConflict:
                await self._after_conflict()
            except UNREACHABLE as error:
                log.debug("heartbeat not stored", extra=fields(error=error))
            await self._stop_if_over()
            await self._end_stuck_session()
            # Not past the end of the term: what runs is to be stopped then.
            left_s = self._renewed_s + ttl_s - self.clock.monotonic_s()
            period_s = ttl_s / membership.BEATS_PER_TERM
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(period_s, left_s) if left_s > 0 else period_s):
                    await self._beat_now.wait()
            self._beat_now.clear()

    async def work(self) -> None:
        """Make the session run what is assigned, for ever."""
        while True:
            news = self.view.news
            await self._reconcile()
            await self.view.news_after(news, self.settings.worker.ttl_s)

    async def listen(self) -> None:
        """Take what the session says, for ever, and start it again when it ends."""
        while True:
            async for reply in self.session.replies():
                await self._take(reply)
            log.warning("session ended, starting another", extra=fields(worker=self.id))
            self._note("starts another session", "the Spark session ended")
            self._ready, self._unready_s = False, self.clock.monotonic_s()
            self._stopping.clear()
            self._holding.clear()
            lost, self._running = self._running, {}
            for assignment in lost.values():
                await self._report(self._interrupted(assignment))
            await self.session.start()

    async def hand_over(self) -> None:
        """Wait until the instances have been moved away, as far as somebody moves and takes them.

        Returns at once where nobody would: no manager leads, or there is no other place for them.
        """
        self._leaving = True
        self._beat_now.set()
        self._note("hands over and ends", "it received a signal to end")
        worker = self.settings.worker
        started_s = self.clock.monotonic_s()
        passed_s = 0.0
        while passed_s < worker.leave_s:
            version, snapshot = self.view.version, self.view.snapshot()
            record = self._record()
            is_known = record is not None and record.value.leaving
            if is_known and not duties.will_be_taken(snapshot, self.id, self.settings):
                return
            if not is_known and passed_s >= worker.ttl_s:
                # It can't say that it is leaving.
                return
            # Presence changes by time alone, so a look is short.
            await self.view.changed(version, 0.2)
            passed_s = self.clock.monotonic_s() - started_s
        log.warning("ends with instances that were not moved", extra=fields(worker=self.id))

    async def leave(self) -> None:
        """Stop the instances and delete this worker's record, so that they move at once."""
        if self._ready:
            await self.session.stop()
        else:
            # It runs nothing yet, and would hear of its end only when Spark is up.
            await self.session.kill()
        with contextlib.suppress(kv.RevisionConflict, *UNREACHABLE):
            await kv.write(
                self.client.jetstream(),
                names.CONTROL_BUCKET,
                self._key,
                None,
                revision=self._revision,
            )

    @property
    def _key(self) -> str:
        return names.node_key(Role.WORKER, self.id)

    @property
    def _is_member(self) -> bool:
        return self.clock.monotonic_s() - self._renewed_s < self.settings.worker.ttl_s

    @property
    def _has_caught_up(self) -> bool:
        """Whether its view is as new as its return: what it had may have gone elsewhere before."""
        heard = self.view.revision(names.CONTROL_BUCKET, self._key)
        return not self._is_out and heard >= self._rejoined

    def _record(self) -> Seen[NodeRecord] | None:
        nodes = self.view.snapshot().nodes
        return next(
            (n for n in nodes if n.value.role is Role.WORKER and n.value.id == self.id), None
        )

    async def _renew(self) -> None:
        self._beats += 1
        worker = self.settings.worker
        record = NodeRecord(
            id=self.id,
            role=Role.WORKER,
            incarnation=self.incarnation,
            address="",
            beat=self._beats,
            pid=os.getpid(),
            ready=self._ready,
            metrics=self._load.measure(self.clock.monotonic_s(), self.session.pid),
            starting_s=0.0 if self._ready else self.clock.monotonic_s() - self._unready_s,
            cold=not self._was_ready,
            leaving=self._leaving,
            labels=membership.labels(worker.labels),
            capacity=worker.capacity,
            takes_receivers=worker.takes_receivers,
            takes_queries=worker.takes_queries,
            machine=machine.name(),
            process_started=machine.started(os.getpid()),
        )
        self._revision = await kv.write(
            self.client.jetstream(),
            names.CONTROL_BUCKET,
            self._key,
            codec.encode(record),
            revision=self._revision,
        )

    async def _after_conflict(self) -> None:
        """Our record has changed under us: forgotten by the leader, taken over, or written by us.

        A write that timed out may have been stored after all.
        """
        stored = await self._stored_record()
        if stored is None:
            return
        revision, record = stored
        # What an earlier process of ours wrote last may arrive after its end.
        is_other = record is not None and record.incarnation != self.incarnation
        if is_other and record is not None and not machine.has_ended(record):
            await self._stop_all()
            self._note("ends", f"process {record.pid} took its name while it was cut off")
            raise MeshError(
                "MESH-C110",
                f'another worker is called "{self.id}"',
                detail="It took this worker's name while this one was cut off.",
            )
        self._revision = revision

    async def _stored_record(self) -> tuple[int, NodeRecord | None] | None:
        try:
            message = await self.client.jetstream().get_last_msg(
                f"KV_{names.CONTROL_BUCKET}", kv.subject(names.CONTROL_BUCKET, self._key)
            )
        except UNREACHABLE:
            return None
        deleted = kv.OPERATION in (message.headers or {})
        record = None if deleted else codec.decode(NodeRecord, message.data or b"")
        return message.seq or 0, record

    async def _reconcile(self) -> None:
        wanted = duties.decide(
            self.view.snapshot(),
            self.id,
            self.incarnation,
            self._running,
            self._stopping,
            may_start=self._ready and self._is_member and self._has_caught_up,
            at_ms=self.clock.wall_ms(),
        )
        for duty in list(wanted):
            match duty:
                case duties.Stop(assignment, settle):
                    await self._stop(assignment, settle=settle)
                case duties.Start(assignment, group):
                    self._running[assignment.instance] = assignment
                    await self.session.send(StartInstance(assignment, group))
                case duties.Tell(status):
                    await self._report(status)
        # Behind what it starts: that takes what it has held.
        told = standby.duties(
            self.view.snapshot(), self.id, self.incarnation, self._holding, may_start=self._ready
        )
        for one in list(told):
            match one:
                case standby.Hold(record, group):
                    self._holding[record.instance] = record
                    await self.session.send(HoldState(record, group))
                case standby.Release(instance):
                    del self._holding[instance]
                    await self.session.send(ReleaseState(instance))

    async def _stop(self, assignment: Assignment, *, settle: bool = False) -> None:
        # Before the session can answer, or the answer would be forgotten.
        now_s = self.clock.monotonic_s()
        self._stopping[assignment.instance] = _Stopping(assignment.epoch, now_s)
        self._running.pop(assignment.instance, None)
        await self.session.send(StopInstance(assignment.instance, assignment.epoch, settle))

    async def _stop_all(self) -> None:
        for assignment in list(self._running.values()):
            await self._stop(assignment)

    async def _stop_if_over(self) -> None:
        """Stop everything when no heartbeat was accepted for a term: it may be placed elsewhere."""
        ttl_s = self.settings.worker.ttl_s
        is_over = self.clock.monotonic_s() - self._renewed_s >= ttl_s
        self._is_out = self._is_out or is_over
        if is_over and self._running:
            log.warning("term is over, instances stopped", extra=fields(worker=self.id))
            told = ", ".join(sorted(self._running))
            self._note(f"stops {told}", f"no heartbeat was accepted for {ttl_s:g} s")
            await self._stop_all()

    async def _end_stuck_session(self) -> None:
        """Kill a session that does not stop what it was told to; ``listen`` starts another."""
        now_s, limit_s = self.clock.monotonic_s(), self.settings.worker.stop_s
        stuck = sorted(
            name for name, one in self._stopping.items() if now_s - one.since_s > limit_s
        )
        if stuck:
            log.warning("session is stuck, killed", extra=fields(worker=self.id, instances=stuck))
            self._note("kills its session", f"{', '.join(stuck)} did not stop in {limit_s:g} s")
            await self.session.kill()
            self._stopping.clear()

    async def _take(self, reply: Reply) -> None:
        match reply:
            case Ready(spark_version, started_in_s):
                log.info(
                    "session ready",
                    extra=fields(worker=self.id, spark=spark_version, started_in_s=started_in_s),
                )
                self._ready = self._was_ready = True
                self._note("is ready", f"its session started in {started_in_s:g} s")
                self._beat_now.set()
                await self._reconcile()
            case Report(status):
                await self._report(status)
                known = self._running.get(status.instance)
                if known is not None and duties.has_ended(status, known):
                    del self._running[status.instance]
                # Not before: what is told in its place would not say where it has settled.
                told = self._stopping.get(status.instance)
                if told is not None and duties.has_stopped(status, told.epoch):
                    del self._stopping[status.instance]
                if status.state is InstanceState.STOPPED:
                    await self._reconcile()
            case Held(holds):
                await self._report_held(holds)

    async def _report_held(self, holds: StandbyStatus) -> None:
        key = names.standby_key(holds.instance)
        with contextlib.suppress(*UNREACHABLE):
            data = codec.encode(holds)
            revision = await kv.put(self.client.jetstream(), names.STATUS_BUCKET, key, data)
            self.view.took_write(names.STATUS_BUCKET, key, holds, revision)

    async def _report(self, status: InstanceStatus) -> None:
        key = names.status_key(status.instance)
        known = self.view.snapshot()
        newest = next(
            (s.value for s in known.statuses if s.value.instance == status.instance), None
        )
        if newest is not None and newest.epoch > status.epoch:
            return
        told = status.epoch, status.state
        is_known = newest is not None and (newest.epoch, newest.state) == told
        # What is known here comes behind what is written, and two may be about to say the same.
        if not is_known and self._noted.get(status.instance) != told:
            self._noted[status.instance] = told
            self.journal.note(of_report(status))
        try:
            data = codec.encode(status)
            revision = await kv.put(self.client.jetstream(), names.STATUS_BUCKET, key, data)
            self.view.took_write(names.STATUS_BUCKET, key, status, revision)
        except UNREACHABLE as error:
            log.debug("report not stored", extra=fields(instance=status.instance, error=error))

    def _note(self, text: str, cause: str) -> None:
        self.journal.note(Entry(text, cause, worker=self.id))

    def _interrupted(self, assignment: Assignment) -> InstanceStatus:
        return InstanceStatus(
            assignment.instance,
            assignment.app,
            self.id,
            assignment.epoch,
            InstanceState.RETRYING,
            self.clock.wall_ms(),
            error="the Spark session ended; another one is starting",
        )


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[asyncio.Task[None]]:
    """A worker at work; the task ends only by an error."""
    clock = SystemClock()
    name = settings.worker.id or f"{socket.gethostname()}-{os.getpid()}"
    root = settings.worker.state_dir or str(Path(tempfile.gettempdir()) / f"mesh-worker-{name}")
    settings = replace(settings, worker=replace(settings.worker, id=name, state_dir=root))
    session = SessionProcess(SessionConfig(name, root, settings))
    # Spark takes the longest to start, so it starts first.
    await session.start()
    client = await connect(settings.nats, f"mesh worker {name}")
    await channels.ensure_buckets(client.jetstream(), settings.channels)
    view = ClusterView(client, clock, quiet_s=settings.worker.ttl_s / 2)
    await view.start()
    journal = Journal(client, f"worker {name}", clock, worker=name)
    journal.start()
    agent = Agent(name, settings, client, view, clock, session, journal)
    try:
        await agent.claim()
    except MeshError:
        await journal.stop()
        raise

    async def loops() -> None:
        tasks = [asyncio.create_task(c) for c in (agent.beat(), agent.work(), agent.listen())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            await end(tasks)

    task = asyncio.create_task(loops())
    try:
        yield task
        if not task.done():
            await agent.hand_over()
    finally:
        await end([task])
        await agent.leave()
        await journal.stop()
        await view.stop()
        await close(client)


async def run(settings: Settings) -> None:
    """Be a worker until SIGTERM or SIGINT; its instances are handed over then."""
    async with running(settings) as task:
        # Its loops go on: they beat, and stop what is moved away.
        await signalled(task)
