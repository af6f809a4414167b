"""An instance that runs inside the shared query; one in a query of its own: ``DedicatedInstance``.

It performs the instructions of ``InstanceLifecycle``, which decides.  It has no thread:
``SharedQuery`` calls ``on_outcome``, ``on_query_failed`` and ``tick``, and blocking NATS calls run
on the shared query's thread pools.

The shared query has no common halt: to drain, the instance leaves between two batches and stores
its state.  If some output stems from later input, it joins again with ``until`` set, and leaves at
that position.
"""

from __future__ import annotations

import logging
import random
import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.control import instance_lifecycle as events
from mesh.control.instance_lifecycle import InstanceLifecycle, Phase
from mesh.model.cluster import InstanceState
from mesh.spark import instance_metrics
from mesh.spark.dedicated_query.instance import DedicatedInstance
from mesh.spark.instance_metrics import (
    InstanceMetrics,
    first_line,
    is_nats_timeout,
    is_replaced,
    message_of,
)
from mesh.spark.shared_query import members, pacing
from mesh.spark.shared_query.instance_snapshots import InstanceSnapshots
from mesh.spark.shared_query.members import UNANSWERED
from mesh.telemetry.logs import fields
from pyspark_nats.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor

    from mesh.control.instance_lifecycle import Event, Instruction
    from mesh.model.cluster import InstanceStatus
    from mesh.spark.instance_context import InstanceContext
    from mesh.spark.shared_query.members import Member, Offsets, Outcome
    from mesh.spark.shared_query.query import SharedQuery

log = logging.getLogger(__name__)

#: Time after which the report of a change is followed by one without, so that rates fall to 0,
#: seconds.
_REPORT_IDLE_S: Final = 15.0
#: Interval of further reports without a change, seconds: the last one may have been lost.
_REPORT_AGAIN_S: Final = 60.0


class SharedInstance:
    """An instance in the shared query, from ``start`` until it is stopped or drained."""

    def __init__(self, shared_query: SharedQuery, context: InstanceContext) -> None:
        self.io = context.io
        self._shared_query = shared_query
        self.context = context
        self._clock = context.clock
        self.snapshots = InstanceSnapshots(context)
        #: Guards the following fields; never held while waiting.  Instructions are performed with
        #: it held, so that they are in order; those that wait go to a thread.
        self._lock = threading.RLock()
        options = context.options
        self._life = InstanceLifecycle(
            options.retries(), options.settle_s, context.io.assignment.until
        )
        self._metrics = InstanceMetrics(context)
        self._member: Member | None = None
        self._apart: DedicatedInstance | None = None
        self._run = context.directory
        self._generation = 0
        #: The last restored positions, and the parts with restored state.
        self._restored: tuple[dict[str, Offsets], frozenset[str]] = {}, frozenset()
        #: By part: the last sequences read, those that are not counted yet, and waiting messages.
        self._read: dict[str, Mapping[str, int]] = {}
        self._uncounted: dict[str, Mapping[str, int]] = {}
        self._waiting: dict[str, Mapping[str, int]] = {}
        self._count_next_s: dict[str, float] = {}
        self._counted_at_s, self._report_s = 0.0, pacing.REPORT_S
        self._is_counting = False
        self._is_changed = self._was_changed = False
        self._reported_at_s = self._shared_at_s = 0.0
        #: No tick has anything to do before this time, unless something happens; and whether there
        #: is something to report or to store.
        self._quiet_until_s = 0.0
        self._is_busy = False
        #: Of the interval of reports, so that those of many instances do not come at once.
        self._share = random.uniform(0.75, 1.25)
        self._is_sharing = False
        #: Held while a report is sent, so that the last one says what is.
        self._reporting = threading.Lock()
        self._ended = threading.Event()

    def __repr__(self) -> str:
        assignment = self.io.assignment
        return f"SharedInstance({assignment.instance}, epoch={assignment.epoch}, {self._life})"

    # --- called by the session

    def start(self) -> None:
        """Start; returns at once."""
        self._shared_query.register(self)
        self._take(events.Started())

    def stop(self, *, settle: bool = False) -> None:
        """Request the end; a ``STOPPED`` report follows, also if the instance has already ended.

        Args:
            settle: whether it may delay its end to reach a point where its next owner can continue.
        """
        if self._ended.is_set():
            self._report()
        else:
            self._take(events.StopRequested(drains=settle))

    def join(self) -> None:
        """Wait until the instance has ended."""
        self._ended.wait()

    # --- called by the shared query

    def on_outcome(self, outcome: Outcome) -> None:
        """See ``QueryListener.on_outcome``."""
        with self._lock:
            self._quiet_until_s = 0.0
            if outcome.generation != self._generation:
                return
            match outcome.kind:
                case members.ADMITTED:
                    assert outcome.ends is not None
                    self._note_read(outcome)
                    if self.snapshots.admitted(outcome.part, outcome.ends):
                        self._take(events.Up())
                case members.REMOVED:
                    self._member = None
                    self._take(events.Left())
                case members.FAILED:
                    self._member = None
                    reason = str(outcome.failure)
                    waited = reason.startswith(UNANSWERED) or UnavailableError.code in reason
                    self._fail(reason, has_waited=waited)
                case _:
                    if outcome.ends is not None:
                        self.snapshots.moved(outcome.part, outcome.ends)
                    self._count(outcome)

    def on_query_failed(self, error: str, *, is_suspect: bool) -> None:
        """See ``QueryListener.on_query_failed``."""
        with self._lock:
            self._member = None
            if is_suspect:
                self.context.failures.note(first_line(error))
                self._take(events.Failed(first_line(error), is_suspect=True))
            else:
                self._take(events.QueryLost())

    def tick(self, now_s: float, busy: int = 0) -> bool:
        """See ``QueryListener.tick``."""
        # Four times a second for each instance: one with nothing to do must cost nothing.
        if now_s < self._quiet_until_s:
            return self._is_busy
        with self._lock:
            self._report_s = report_s = pacing.report_s(busy)
            self._take(events.Ticked())
            self._is_busy = False
            if self._life.phase is not Phase.RUNNING:
                return False
            since_s = now_s - self._reported_at_s
            rest_s = _REPORT_IDLE_S if self._was_changed else _REPORT_AGAIN_S
            busy_s = pacing.REPORT_S + (report_s - pacing.REPORT_S) * self._share
            if since_s >= rest_s or (self._is_changed and since_s >= busy_s):
                self._reported_at_s = now_s
                self._shared_query.errands.submit(self._report)
            # One whose slot is stuck has no outcomes, and its backlog grows.
            count_s = 2 * pacing.REPORT_S if self._metrics.behind else rest_s
            if now_s - self._counted_at_s >= count_s:
                self._count_waiting(self._read)
            snapshot_s = pacing.snapshot_s(self.context.options.snapshot_interval_s, busy)
            is_due = now_s - self._shared_at_s >= snapshot_s
            if is_due and not self._is_sharing and self.snapshots.is_dirty:
                self._is_sharing, self._shared_at_s = True, now_s
                self._schedule(self._share_now, self._shared_query.pool)
            is_dirty = self.snapshots.is_dirty
            self._is_busy = self._is_changed or self._life.is_stopping or is_dirty
            if not self._life.is_stopping:
                next_s = busy_s if self._is_changed else rest_s
                due_s = [self._reported_at_s + next_s, self._counted_at_s + count_s]
                if self._is_busy:
                    # The interval of reports may be another one then.
                    due_s.append(now_s + pacing.REPORT_S)
                if is_dirty and not self._is_sharing:
                    due_s.append(self._shared_at_s + snapshot_s)
                self._quiet_until_s = min(due_s)
            return True

    # --- events and instructions

    def _take(self, event: Event) -> None:
        with self._lock:
            self._quiet_until_s = 0.0
            for instruction in self._life.handle(event, self._clock.monotonic_s()):
                self._perform(instruction)

    def _perform(self, instruction: Instruction) -> None:
        match instruction:
            case events.Restore():
                self._schedule(self._restore, self._shared_query.pool)
            case events.Run(until, continues):
                self._schedule(lambda: self._join(until, continues=continues))
            case events.Leave():
                # One that is not a member yet finds out when it joins.
                if self._member is not None:
                    self._shared_query.release(self._member)
            case events.Settle(drains):
                self._schedule(lambda: self._settle(drains=drains))
            case events.Isolate(why):
                extra = fields(instance=self.io.assignment.instance, why=why.value)
                log.info("instance moves to a dedicated query", extra=extra)
                self._generation = next(self._shared_query.generations)
                directory = self.context.directory / f"apart-{self._generation}"
                context = replace(self.context, directory=directory, report=self._on_isolated)
                self._apart = DedicatedInstance(self._shared_query.session, context)
                self._apart.start()
            case events.StopIsolated(drains):
                if self._apart is not None:
                    self._apart.stop(settle=drains)
            case events.Relay(status):
                self.context.report(self._metrics.with_counts(status, self._life.failures))
            case events.ReportState():
                self._shared_query.errands.submit(self._report)
            case events.End():
                self._shared_query.errands.submit(self._end)

    def _schedule(self, job: Callable[[], object], pool: Executor | None = None) -> None:
        """Run a job in a thread; its failure is the instance's."""

        def guarded() -> None:
            try:
                job()
            except Exception as failure:
                log.debug("all of it", exc_info=failure)
                self._fail(message_of(failure), has_waited=is_nats_timeout(failure))

        (pool or self._shared_query.errands).submit(guarded)

    def _restore(self) -> None:
        with self._lock:
            self._generation = next(self._shared_query.generations)
            old = self._run
            name = f"{self.io.assignment.epoch}-{self._generation}"
            self._run = run = self.context.directory / name
        if old != self.context.directory:
            shutil.rmtree(old, ignore_errors=True)
        self.snapshots.begin(run)
        self._restored = self.snapshots.restore()
        self.io = self.context.io_of(run, *self._restored, lambda: self._life.is_stopping)
        self._take(events.Restored())

    def _join(self, until: Mapping[str, int] | None, *, continues: bool) -> None:
        """Join the shared query, at the restored positions or at the present ones."""
        starts, restored = self.snapshots.starts() if continues else self._restored
        with self._lock:
            if continues:
                self._generation = next(self._shared_query.generations)
            member = members.member(
                self.io,
                self._generation,
                self._run,
                nats=self.context.options.nats,
                starts=starts,
                restored=restored,
                until=until,
                message=self.context.options.message,
                states=self.snapshots.states,
            )
            if self._life.phase is Phase.JOINING:
                self._member = member
                self._shared_query.admit(self, member)
            else:
                self._take(events.Left())

    def _settle(self, *, drains: bool) -> None:
        is_shared = self._try_share()
        if not drains:
            self._take(events.Settled())
        elif not is_shared:
            self._fail("its state could not be stored")
        elif (position := self.snapshots.drained()) is not None:
            self._take(events.Settled(position))
        else:
            self._take(events.Unsettled(self.snapshots.required_until()))

    def _on_isolated(self, status: InstanceStatus) -> None:
        """Take a report of the dedicated query."""
        with self._lock:
            if status.state is InstanceState.STOPPED:
                self._apart = None
                self._metrics.add(status)
            self._take(events.IsolatedReported(status))

    def _fail(self, reason: str, *, has_waited: bool = False) -> None:
        if is_replaced(reason):
            self._was_replaced(reason, has_ended=True)
            return
        name, epoch = self.io.assignment.instance, self.io.assignment.epoch
        log.warning("instance failed", extra=fields(instance=name, epoch=epoch, error=reason))
        self.context.failures.note(reason)
        self._take(
            events.Failed(
                reason, has_waited=has_waited, is_unanswered=reason.startswith(UNANSWERED)
            )
        )

    def _was_replaced(self, reason: str, *, has_ended: bool) -> None:
        name, epoch = self.io.assignment.instance, self.io.assignment.epoch
        extra = fields(instance=name, epoch=epoch)
        log.warning("instance was replaced by a newer epoch", extra=extra)
        self._take(events.Replaced(reason, has_ended))

    def _end(self) -> None:
        self._shared_query.unregister(self)
        with self._lock:
            run = self._run
        if run != self.context.directory:
            shutil.rmtree(run, ignore_errors=True)
        self._report()
        self._ended.set()

    # --- snapshots

    def _share_now(self) -> None:
        try:
            self._try_share()
        finally:
            self._is_sharing = False

    def _try_share(self) -> bool:
        """Store the snapshots of changed parts; whether all are stored."""
        try:
            return self.snapshots.share()
        # A snapshot that is not stored costs a longer replay, or is stored the next time.
        except Exception as failure:
            reason = message_of(failure)
            if is_replaced(reason):
                self._was_replaced(reason, has_ended=False)
                return False
            extra = fields(instance=self.io.assignment.instance, error=reason)
            log.warning("snapshot was not stored", extra=extra)
            return False

    # --- reports

    def _count(self, done: Outcome) -> None:
        is_first = bool(done.messages) and not self._metrics.messages_in
        each_ms = done.took_ms / done.runs if done.runs else None
        self._metrics.count(done.messages, done.events_in, done.events_out, done.errors, each_ms)
        self._metrics.count_runs(
            done.batches, done.took_ms / 1000, done.latencies, done.latencies_sum_s
        )
        self._metrics.count_elements(done.part, done.elements)
        self._metrics.state_bytes = self.snapshots.state_bytes
        self._note_read(done)
        self._is_changed = True
        if is_first:
            # People wait for it, and so does the warm-up.
            self._shared_query.errands.submit(self._report)

    # --- backlog

    def _note_read(self, done: Outcome) -> None:
        self._read[done.part] = done.read
        now_s = self._clock.monotonic_s()
        # Of many busy instances each reports less often.  A count that is left out here follows.
        if now_s >= self._count_next_s.get(done.part, 0.0):
            self._count_next_s[done.part] = now_s + self._report_s - pacing.REPORT_S
            self._count_waiting({done.part: done.read})

    def _count_waiting(self, read: Mapping[str, Mapping[str, int]]) -> None:
        """Have the server count the messages for parts that have read up to there."""
        self._uncounted.update(read)
        self._counted_at_s = self._clock.monotonic_s()
        if not self._is_counting:
            self._is_counting = True
            self._schedule(self._count_all, self._shared_query.pool)

    def _count_all(self) -> None:
        while True:
            with self._lock:
                read, self._uncounted = self._uncounted, {}
                if not read:
                    self._is_counting = False
                    return
            counts = {part: instance_metrics.waiting(self.context, at) for part, at in read.items()}
            with self._lock:
                self._waiting |= {part: one for part, one in counts.items() if one is not None}
                behind = instance_metrics.total(self._waiting.values())
                self._is_changed |= behind != self._metrics.behind
                self._metrics.behind = behind
                self._quiet_until_s = 0.0

    def _report(self) -> None:
        with self._reporting:
            with self._lock:
                self._is_changed, self._was_changed = False, self._is_changed
                self._reported_at_s = self._clock.monotonic_s()
                status = self._metrics.status(self._life)
            self.context.report(status)
