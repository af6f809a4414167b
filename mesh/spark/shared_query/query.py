"""Shared query: one streaming query that runs many instances of a worker.

A dedicated query costs an instance a planner process of 50 MB, a start of half a second, and 0.4 %
of a core while idle.  So instances share one.  Its source waits for messages for all of them at
once (``planner``).  A batch holds work for the instances that have messages.  Each part's range is
read, computed and published in one task (``task``), whose rows report the outcomes to this module.
Offsets, state, snapshots and producers are separate for each instance, as in a dedicated query.  A
failure affects one instance: it is removed, and starts again from its snapshot while the others
continue.

Spark plans the next batch only after the rows of the last one were processed here.  So outcomes of
a member arrive in order, and a removed member does no more work afterwards.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol

import orjson

from mesh.logs import fields
from mesh.spark.session import UNLOGGED
from mesh.spark.shared_query import members
from mesh.spark.shared_query.source import NAME, SharedQuerySource
from mesh.spark.shared_query.work import ADMITTED, FAILED, REMOVED, WORK
from pyspark_nats.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mesh.clock import Clock
    from mesh.spark.shared_query.members import Member

log = logging.getLogger(__name__)

#: Interval of the members' timed work, seconds.
_LOOK_S: Final = 0.25
#: Time for a member to leave before the query is stopped: its batch hangs, or NATS is unavailable.
_LEAVE_S: Final = 5.0
#: Duration of a batch after which its members are suspected to hang; a task that waits for NATS
#: gives up earlier.
_HANGS_S: Final = 45.0
#: Number of threads that restore and store snapshots of running instances; as many serve all other
#: waits.
_THREADS: Final = 8


class QueryListener(Protocol):
    """Callbacks of the shared query to an instance; they must not block."""

    def on_outcome(self, row: Row) -> None:
        """Process the outcome of a work item; called in order."""
        ...

    def on_query_failed(self, error: str, *, is_suspect: bool) -> None:
        """The shared query failed.

        ``is_suspect`` is true if a work item of this instance was running at the time.
        """
        ...

    def tick(self, now_s: float) -> None:
        """Do the timed work that is due (monotonic, seconds)."""
        ...


class _NotLeavingError(Exception):
    """A member has not left in time."""


class SharedQuery:
    """The query, which is kept running, and its members."""

    def __init__(
        self,
        session: SparkSession,
        directory: Path,
        clock: Clock,
        *,
        nats: dict[str, str],
        nudge_subject: str,
        nudge: Callable[[], None],
        tasks: int,
        retry_s: float,
    ) -> None:
        """Create a shared query that is not started.

        Args:
            session: the worker's.
            directory: for members and scratch; exclusive to this query.
            clock: for timed work.
            nats: options of the NATS connection.
            nudge_subject: wakes the planner; ``nudge`` publishes on it, from any thread.
            nudge: see ``nudge_subject``.
            tasks: most tasks of a batch.
            retry_s: pause before the query is started again.
        """
        #: Unique numbers: a member that is admitted again gets a new one.
        self.generations = itertools.count(1)
        #: For snapshots: a slow store must not delay the end or the reports of other instances.
        self.pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="shared-query-snapshots")
        self.errands = ThreadPoolExecutor(_THREADS, thread_name_prefix="shared-query")
        self.session = session
        self._directory = directory
        self._clock = clock
        self._nats = nats
        self._nudge_subject = nudge_subject
        self._nudge = nudge
        self._tasks = tasks
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._listeners: dict[str, tuple[QueryListener, Member]] = {}
        #: Released members that have not left: since when, by file name.
        self._leaving: dict[str, float] = {}
        self._all_listeners: set[QueryListener] = set()
        self._run = directory
        #: Start of the current batch, monotonic, seconds; None without one.
        self._batch_at_s: float | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="shared-query", daemon=True)

    def start(self) -> None:
        """Start; returns at once."""
        self.session.dataSource.register(SharedQuerySource)
        self._begin_run(0)
        self._thread.start()

    def stop(self) -> None:
        """Stop the query, and wait until it has ended."""
        self._ending.set()
        self._thread.join()
        self.pool.shutdown()
        self.errands.shutdown()

    def register(self, listener: QueryListener) -> None:
        """Call ``tick`` of ``passenger`` from now on, whether or not it is a member."""
        with self._lock:
            self._all_listeners.add(listener)

    def unregister(self, listener: QueryListener) -> None:
        """Undo ``register``."""
        with self._lock:
            self._all_listeners.discard(listener)

    def admit(self, listener: QueryListener, member: Member) -> None:
        """Admit a member; ``passenger`` receives its outcomes."""
        with self._lock:
            self._listeners[member.file_name] = (listener, member)
            members.admit(self._run, member)
        self._nudge()

    def release(self, member: Member) -> None:
        """Remove a member; an outcome ``REMOVED`` follows when it does no more work."""
        with self._lock:
            if member.file_name not in self._listeners or member.file_name in self._leaving:
                return
            self._leaving[member.file_name] = self._clock.monotonic_s()
            members.request_removal(self._run, member)
        self._nudge()

    # --- the query

    def _supervise(self) -> None:
        for number in itertools.count(1):
            error, is_their_fault = "the shared query ended", False
            try:
                self._watch(self._start())
            # A failure of the query is reported to its members, and the query is started again.
            except Exception as failure:
                error = str(failure)
                is_their_fault = not isinstance(failure, _NotLeavingError)
                log.warning("shared query failed", extra=fields(error=error[:500]))
            old = self._run
            if self._ending.is_set():
                return
            # No member is to blame for a server that is unavailable.
            self._fail_members(error, number, is_their_fault and UnavailableError.code not in error)
            shutil.rmtree(old, ignore_errors=True)
            self._ending.wait(self._retry_s)

    def _begin_run(self, number: int) -> None:
        self._run = self._directory / f"run-{number}"
        self._run.mkdir(parents=True)

    def _start(self) -> StreamingQuery:
        self.session.sparkContext.setLocalProperty("spark.scheduler.pool", "shared-query")
        source = (
            self.session.readStream.format(NAME)
            .option("directory", str(self._run))
            .option("nudge", self._nudge_subject)
            .option("tasks", str(self._tasks))
            .option("nats", orjson.dumps(self._nats).decode())
            .load()
        )
        return (
            source.writeStream.foreachBatch(self._dispatch)
            .options(**UNLOGGED)
            .option("checkpointLocation", str(self._directory / f"{self._run.name}-checkpoint"))
            .queryName(f"shared-query-{self._run.name}")
            .start()
        )

    def _dispatch(self, frame: DataFrame, _batch: int) -> None:
        """Run a batch, and report the outcomes to the members."""
        self._batch_at_s = self._clock.monotonic_s()
        rows = frame.collect()
        self._batch_at_s = None
        # Several tasks may report on one member; the final outcome is reported last.
        for row in sorted(rows, key=lambda row: _ORDER.index(row.kind)):
            with self._lock:
                found = self._listeners.get(members.file_name(row.instance, row.generation))
                if found is None:
                    continue
                listener, member = found
                if row.kind in _OUT:
                    # Before the next batch is planned.
                    members.remove(self._run, member)
                    del self._listeners[member.file_name]
                    self._leaving.pop(member.file_name, None)
            listener.on_outcome(row)

    def _watch(self, running: StreamingQuery) -> None:
        try:
            # Raises the error that ended the query, if any.
            while not running.awaitTermination(_LOOK_S):  # type: ignore[arg-type]
                if self._ending.is_set():
                    return
                now_s = self._clock.monotonic_s()
                with self._lock:
                    listeners = list(self._all_listeners)
                    stuck = [n for n, since in self._leaving.items() if now_s - since > _LEAVE_S]
                if stuck:
                    raise _NotLeavingError(
                        f"was not removed within {_LEAVE_S:g} s: {', '.join(stuck)}"
                    )
                if self._batch_at_s is not None and now_s - self._batch_at_s > _HANGS_S:
                    raise TimeoutError(f"its batch was not finished after {_HANGS_S:g} s")
                for listener in listeners:
                    listener.tick(now_s)
        finally:
            # A query stops only after its planner has answered.
            members.end(self._run)
            self._nudge()
            running.stop()

    def _fail_members(self, error: str, number: int, is_their_fault: bool) -> None:
        self._batch_at_s = None
        suspects = members.working(self._run)
        with self._lock:
            out = list(self._listeners.values())
            self._listeners.clear()
            self._leaving.clear()
            self._begin_run(number)
        for listener, member in out:
            listener.on_query_failed(error, is_suspect=is_their_fault and member.name in suspects)


#: Final outcomes: afterwards a member does no more work.
_OUT: Final = (FAILED, REMOVED)
#: Order of the reports on one member in a batch.
_ORDER: Final = (ADMITTED, WORK, *_OUT)
