"""An instance that runs inside the shared query; one in a query of its own: ``DedicatedInstance``.

States: RESTORING → JOINING → RUNNING → DRAINING → STOPPED; ISOLATED and RETRYING branch off
RUNNING.  The file is longer than 400 lines because it holds this life cycle and its driver; the
life cycle is to become a table of states in one pure module, with two drivers.  Reports show only
the coarser states of ``InstanceState``.

The instance has no thread: ``SharedQuery`` calls ``on_outcome``, ``on_query_failed`` and ``tick``.
Blocking NATS calls run on the shared query's thread pools.

To drain, the instance leaves between two batches and stores its state.  No output may stem from
later input.  If some does, the instance joins again with ``until`` set, and leaves at that
position.

An instance that would slow down or break others is isolated in a dedicated query (``isolation``).
"""

from __future__ import annotations

import logging
import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.logs import fields
from mesh.model.cluster import InstanceState
from mesh.spark.dedicated_query.instance import FENCED, REPORT_S, DedicatedInstance, is_nats_timeout
from mesh.spark.instance_metrics import InstanceMetrics
from mesh.spark.isolation import IsolationPeriod, IsolationReason
from mesh.spark.shared_query import members
from mesh.spark.shared_query.instance_snapshots import InstanceSnapshots
from mesh.spark.shared_query.work import ADMITTED, FAILED, REMOVED, UNANSWERED
from pyspark_nats.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor

    from mesh.model.cluster import InstanceStatus
    from mesh.spark.instance_context import InstanceContext
    from mesh.spark.shared_query.members import Member, Offsets
    from mesh.spark.shared_query.query import SharedQuery
    from mesh.spark.shared_query.work import Outcome

log = logging.getLogger(__name__)

#: Longest interval between two reports, seconds: the report of a change may have been lost.
_REPORT_IDLE_S: Final = 15.0
#: An instance is isolated if a stream does not answer twice within this time, seconds.
_UNANSWERED_S: Final = 120.0


class SharedInstance:
    """An instance in the shared query, from ``start`` until it is stopped or drained."""

    def __init__(self, shared_query: SharedQuery, context: InstanceContext) -> None:
        self.io = context.io
        self._shared_query = shared_query
        self._given = context
        self._clock = context.clock
        self._parts = InstanceSnapshots(context)
        #: Guards the following fields; never held while waiting.
        self._lock = threading.Lock()
        self._tally = InstanceMetrics(context)
        self._retries = context.options.retries()
        self._stopping = False
        #: Deadline for draining once the instance is to stop, monotonic, seconds.
        self._settles_until_s = float("inf")
        #: The sequences at which to halt and drain, by JetStream stream; None for no end.
        self._until: Mapping[str, int] | None = context.io.assignment.until
        #: The drained position.
        self._settled: Mapping[str, int] | None = None
        self._member: Member | None = None
        self._run = context.directory
        self._generation = 0
        self._state = InstanceState.STARTING
        self._error: str | None = None
        #: Time of the next start, monotonic, seconds.
        self._retry_at_s: float | None = None
        self._behind: dict[str, int] = {}
        self._is_changed = False
        self._said_at_s = self._shared_at_s = 0.0
        self._is_sharing = False
        #: When a stream last did not answer, and how often the instance was a suspect.
        self._unanswered_at_s = -float("inf")
        self._suspected = 0
        #: Reason and duration of the isolation; None while in the shared query.
        self._term: IsolationPeriod | None = None
        self._apart: DedicatedInstance | None = None
        self._ended = threading.Event()

    def __repr__(self) -> str:
        assignment = self.io.assignment
        return f"SharedInstance({assignment.instance}, epoch={assignment.epoch})"

    # --- called by the session

    def start(self) -> None:
        """Start; returns at once."""
        self._report(InstanceState.STARTING)
        self._shared_query.register(self)
        self._restart()

    def stop(self, *, settle: bool = False) -> None:
        """Request the end; a ``STOPPED`` report follows, also if the instance has already ended.

        Args:
            settle: whether it may delay its end to reach a point where its next owner can continue.
        """
        ends_s = self._clock.monotonic_s() + self._given.options.settle_s
        with self._lock:
            self._stopping = True
            self._settles_until_s = min(self._settles_until_s, ends_s if settle else 0.0)
            member, is_resting, apart = self._member, self._retry_at_s is not None, self._apart
            self._retry_at_s = None
        if self._ended.is_set():
            self._report(InstanceState.STOPPED)
        elif apart is not None:
            apart.stop(settle=settle)
        elif member is not None:
            # An instance that already drains continues, while there is time.
            if not settle or member.until is None:
                self._shared_query.release(member)
        elif is_resting:
            self._schedule(self._end)

    def join(self) -> None:
        """Wait until the instance has ended."""
        self._ended.wait()

    # --- called by the shared query

    def on_outcome(self, outcome: Outcome) -> None:
        """See ``QueryListener.on_outcome``."""
        with self._lock:
            if outcome.generation != self._generation:
                return
            if outcome.kind not in (ADMITTED, FAILED, REMOVED):
                if outcome.ends is not None:
                    self._parts.moved(outcome.part, outcome.ends)
                self._count(outcome)
                return
            if outcome.kind == ADMITTED:
                assert outcome.ends is not None
                if self._parts.admitted(outcome.part, outcome.ends):
                    self._schedule(lambda: self._report(InstanceState.RUNNING))
                return
            self._member = None
        if outcome.kind == REMOVED:
            self._schedule(self._left)
        else:
            reason = str(outcome.failure)
            waited = reason.startswith(UNANSWERED) or UnavailableError.code in reason
            self._schedule(lambda: self._failed(reason, has_waited=waited))

    def on_query_failed(self, error: str, *, is_suspect: bool) -> None:
        """See ``QueryListener.on_query_failed``."""
        with self._lock:
            self._member = None
            if is_suspect:
                self._suspected += 1
                self._term = IsolationPeriod(IsolationReason.SUSPECT, self._suspected)
        if is_suspect:
            self._schedule(lambda: self._failed(_first_line(error)))
        else:
            self._restart()

    def tick(self, now_s: float) -> None:
        """See ``QueryListener.tick``."""
        with self._lock:
            again = self._retry_at_s is not None and now_s >= self._retry_at_s
            if again:
                self._retry_at_s = None
            is_in = self._member is not None and self._state is InstanceState.RUNNING
            leaving = None
            if is_in and self._stopping and now_s >= self._settles_until_s:
                leaving = self._member
            since_s = now_s - self._said_at_s
            tells = is_in and (
                since_s >= _REPORT_IDLE_S or (self._is_changed and since_s >= REPORT_S)
            )
            if tells:
                self._said_at_s = now_s
            interval_s = self._given.options.snapshot_interval_s
            is_due = not self._is_sharing and now_s - self._shared_at_s >= interval_s
            shares = is_in and is_due and self._parts.is_dirty
            if shares:
                self._is_sharing, self._shared_at_s = True, now_s
        if again:
            self._restart()
        if leaving is not None:
            self._shared_query.release(leaving)
        if tells:
            self._report(InstanceState.RUNNING)
        if shares:
            self._schedule(self._share_now, self._shared_query.pool)

    # --- in the shared query's threads

    def _schedule(self, job: Callable[[], object], pool: Executor | None = None) -> None:
        """Run a job in a thread; its failure is reported and the instance is retried."""

        def guarded() -> None:
            try:
                job()
            except Exception as failure:
                log.debug("all of it", exc_info=failure)
                self._failed(_error_message(failure), has_waited=is_nats_timeout(failure))

        (pool or self._shared_query.errands).submit(guarded)

    def _restart(self) -> None:
        self._schedule(self._enter, self._shared_query.pool)

    def _enter(self) -> None:
        """Restore the last snapshot, and join the shared query."""
        if self._is_stopping():
            self._end()
            return
        if self._term is not None:
            self._isolate(self._term)
            return
        with self._lock:
            self._generation = next(self._shared_query.generations)
            old = self._run
            name = f"{self.io.assignment.epoch}-{self._generation}"
            self._run = run = self._given.directory / name
        if old != self._given.directory:
            shutil.rmtree(old, ignore_errors=True)
        self._parts.begin(run)
        self._admit(*self._parts.restore())

    def _continue(self, until: Mapping[str, int]) -> None:
        """Join the shared query again at the present positions, up to ``until``."""
        with self._lock:
            self._generation = next(self._shared_query.generations)
            self._until = until
        self._admit(*self._parts.starts())

    def _admit(self, starts: dict[str, Offsets], restored: frozenset[str]) -> None:
        member = members.member(
            self.io,
            self._generation,
            self._run,
            nats=self._given.options.nats,
            starts=starts,
            restored=restored,
            until=self._until,
            message=self._given.options.message,
        )
        with self._lock:
            # An instance that has never run has nothing to drain.
            is_over = self._stopping and (self._until is None or not self._may_drain())
            if not is_over:
                self._member = member
                self._shared_query.admit(self, member)
        if is_over:
            self._end()

    def _left(self) -> None:
        """Continue after the removal of the member, between batches or at its halt."""
        is_shared = self._try_share()
        with self._lock:
            is_over = self._stopping
            settles = (is_over or self._until is not None) and self._may_drain()
        if settles and self._term is None:
            self._drain(is_shared)
        elif is_over:
            self._end()
        else:
            self._restart()

    def _drain(self, is_shared: bool) -> None:
        if not is_shared:
            self._failed("its state could not be stored")
            return
        settled = self._parts.drained()
        if settled is not None:
            with self._lock:
                self._settled = settled
            self._end()
            return
        until = self._parts.required_until()
        if until is None:
            self._failed(
                "output exists beyond the last committed input position; "
                "restore a backup or reset the group"
            )
            return
        self._continue(until)

    def _isolate(self, term: IsolationPeriod) -> None:
        """Run the instance in a dedicated query, from the last snapshot."""
        name = self.io.assignment.instance
        log.info(
            "instance moves to a dedicated query", extra=fields(instance=name, why=term.why.value)
        )
        self._generation = next(self._shared_query.generations)
        directory = self._given.directory / f"apart-{self._generation}"
        apart = DedicatedInstance(
            self._shared_query.session,
            replace(self._given, directory=directory, report=self._relay),
        )
        with self._lock:
            self._apart = apart
            is_over = self._stopping
        apart.start()
        if is_over:
            apart.stop()

    def _relay(self, status: InstanceStatus) -> None:
        """Report the status of the dedicated query; end that query when the isolation is over."""
        if status.state is InstanceState.STOPPED:
            self._isolation_ended(status)
            return
        with self._lock:
            told = self._tally.with_counts(status)
            if status.state is InstanceState.RUNNING:
                self._retries = self._retries.running(self._clock.monotonic_s())
            is_over = self._term is not None and self._term.is_over(
                status, self._clock.monotonic_s()
            )
            if is_over:
                self._term = None
            apart = self._apart
        self._given.report(told)
        if is_over and apart is not None:
            # The drain stores the state, so that little is processed again.
            apart.stop(settle=True)

    def _isolation_ended(self, status: InstanceStatus) -> None:
        with self._lock:
            self._apart = None
            self._tally.add(status)
            self._error = status.error
            # A query that ended unasked was replaced by a newer epoch, or has drained.
            returns = not self._stopping and self._term is None and self._until is None
            if status.settled and not returns:
                self._settled = status.position
        if returns:
            self._restart()
        else:
            self._schedule(self._end)

    def _may_drain(self) -> bool:
        """Whether there is time to drain; called with the lock held."""
        return self._clock.monotonic_s() < self._settles_until_s

    def _is_stopping(self) -> bool:
        with self._lock:
            return self._stopping

    def _failed(self, reason: str, *, has_waited: bool = False) -> None:
        name, epoch = self.io.assignment.instance, self.io.assignment.epoch
        if _is_taken_over(reason):
            self._was_taken_over(reason)
            self._end()
            return
        log.warning("instance failed", extra=fields(instance=name, epoch=epoch, error=reason))
        with self._lock:
            self._tally.restarts += 1
            self._error = reason[:500]
            now_s = self._clock.monotonic_s()
            if reason.startswith(UNANSWERED):
                if now_s - self._unanswered_at_s < _UNANSWERED_S:
                    self._term = IsolationPeriod(IsolationReason.UNANSWERED)
                self._unanswered_at_s = now_s
            is_over = self._stopping
            self._retries = self._retries.failed(now_s, has_waited=has_waited)
            rest_s = self._retries.rest_s
            if not is_over:
                self._retry_at_s = now_s + rest_s
        if is_over:
            self._end()
        else:
            self._report(InstanceState.RETRYING, rest_s)

    def _was_taken_over(self, reason: str) -> None:
        """Leave the shared query for good: a newer epoch has replaced this instance."""
        name, epoch = self.io.assignment.instance, self.io.assignment.epoch
        with self._lock:
            is_known, self._stopping = self._stopping, True
            self._settles_until_s = 0.0
            self._error = reason[:500]
            member = self._member
        if member is not None:
            self._shared_query.release(member)
        if not is_known:
            log.warning(
                "instance was replaced by a newer epoch", extra=fields(instance=name, epoch=epoch)
            )

    def _end(self) -> None:
        self._shared_query.unregister(self)
        with self._lock:
            run = self._run
        if run != self._given.directory:
            shutil.rmtree(run, ignore_errors=True)
        self._report(InstanceState.STOPPED)
        self._ended.set()

    def _share_now(self) -> None:
        try:
            self._try_share()
        finally:
            self._is_sharing = False

    def _try_share(self) -> bool:
        """Store the snapshots of changed parts; whether all are stored."""
        try:
            return self._parts.share()
        # A snapshot that is not stored costs a longer replay, or is stored the next time.
        except Exception as failure:
            reason = _error_message(failure)
            if _is_taken_over(reason):
                self._was_taken_over(reason)
                return False
            extra = fields(instance=self.io.assignment.instance, error=reason)
            log.warning("snapshot was not stored", extra=extra)
            return False

    # --- reports

    def _count(self, done: Outcome) -> None:
        each_ms = done.took_ms / done.runs if done.runs else None
        self._tally.count(done.messages, done.rows, done.errors, each_ms)
        self._behind[done.part] = done.behind
        self._tally.behind = sum(self._behind.values())
        self._is_changed = True

    def _report(self, state: InstanceState, rest_s: float | None = None) -> None:
        with self._lock:
            self._state = state
            if state is InstanceState.RUNNING:
                self._retries = self._retries.running(self._clock.monotonic_s())
            self._is_changed = False
            self._said_at_s = self._clock.monotonic_s()
            error = None if state is InstanceState.RUNNING else self._error
            status = self._tally.status(state, error, self._settled, rest_s)
        self._given.report(status)


def _is_taken_over(reason: str) -> bool:
    return FENCED in reason or "StaleWriterError" in reason or "MESH-S110" in reason


def _error_message(failure: Exception) -> str:
    return str(failure) or type(failure).__name__


def _first_line(error: str) -> str:
    return next((line.strip() for line in error.splitlines() if line.strip()), "unknown")[:500]
