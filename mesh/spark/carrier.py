"""Shared query: one streaming query that runs many instances of a worker.

A dedicated query costs an instance a planner process of 50 MB, a start of half a second, and 0.4 %
of a core while idle.  So instances share one.  Its source waits for messages for all of them at
once (``carrier_plan``).  A batch holds work for the instances that have messages.  Each part's
range is read, computed and published in one task (``carrier_task``), whose rows report the outcomes
to this module.  Offsets, state, snapshots and producers are separate for each instance, as in a
dedicated query.  A failure affects one instance: it is removed, and starts again from its snapshot
while the others continue.

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
from mesh.spark import carrier_member
from mesh.spark.carrier_source import NAME, CarrierSource
from mesh.spark.carrier_work import ADMITTED, FAILED, REMOVED, WORK
from mesh.spark.session import UNLOGGED
from pyspark_nats.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mesh.clock import Clock
    from mesh.spark.carrier_member import Member

log = logging.getLogger(__name__)

#: Interval of the members' timed work, seconds.
_LOOK_S: Final = 0.25
#: Time for a member to leave before the query is ended for it: its batch hangs, or NATS is away.
_LEAVE_S: Final = 5.0
#: Duration of a batch after which its members are suspected to hang; a task that waits for NATS
#: gives up earlier.
_HANGS_S: Final = 45.0
#: Threads for restoring and storing snapshots while instances run; and as many for all other waits.
_THREADS: Final = 8


class Passenger(Protocol):
    """Callbacks of an instance, called by the shared query."""

    def take(self, row: Row) -> None:
        """A work item is done, or failed; called in order, must not wait."""
        ...

    def thrown_out(self, error: str, *, is_suspect: bool) -> None:
        """The shared query failed; ``is_suspect``: a work item of this instance was running."""
        ...

    def look(self, now_s: float) -> None:
        """Do the work due at ``now_s`` (monotonic, seconds); must not wait."""
        ...


class _NotLeavingError(Exception):
    """A member has not left in time."""


class Carrier:
    """The shared query, restarted when it fails, and its members."""

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
        #: Unique numbers: a member that enters again gets a new one.
        self.generations = itertools.count(1)
        #: For snapshots: a slow store must not block the end or the reports of other instances.
        self.pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="carrier-snapshots")
        self.errands = ThreadPoolExecutor(_THREADS, thread_name_prefix="carrier")
        self.session = session
        self._directory = directory
        self._clock = clock
        self._nats = nats
        self._nudge_subject = nudge_subject
        self._nudge = nudge
        self._tasks = tasks
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._passengers: dict[str, tuple[Passenger, Member]] = {}
        #: When each leaving member was asked to leave, by file name.
        self._leaving: dict[str, float] = {}
        self._everybody: set[Passenger] = set()
        self._run = directory
        #: Start of the current batch, monotonic, seconds; None while there is none.
        self._batch_at_s: float | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="carrier", daemon=True)

    def start(self) -> None:
        """Start; returns at once."""
        self.session.dataSource.register(CarrierSource)
        self._begin_run(0)
        self._thread.start()

    def stop(self) -> None:
        """End the query, and wait until it has."""
        self._ending.set()
        self._thread.join()
        self.pool.shutdown()
        self.errands.shutdown()

    def board(self, passenger: Passenger) -> None:
        """Call ``passenger.look`` periodically from now on, whether or not it is a member."""
        with self._lock:
            self._everybody.add(passenger)

    def alight(self, passenger: Passenger) -> None:
        """Undo ``board``."""
        with self._lock:
            self._everybody.discard(passenger)

    def enter(self, passenger: Passenger, member: Member) -> None:
        """Add a member; ``passenger`` receives its outcomes."""
        with self._lock:
            self._passengers[member.file_name] = (passenger, member)
            carrier_member.write(self._run, member)
        self._nudge()

    def leave(self, member: Member) -> None:
        """Request a member's removal; ``REMOVED`` follows when it does no more work."""
        with self._lock:
            if member.file_name not in self._passengers or member.file_name in self._leaving:
                return
            self._leaving[member.file_name] = self._clock.monotonic_s()
            carrier_member.send_out(self._run, member)
        self._nudge()

    # --- the query

    def _keep(self) -> None:
        for number in itertools.count(1):
            error, is_their_fault = "the carrier query ended", False
            try:
                self._watch(self._start())
            # A failure of the query is reported to its members, and the query is started again.
            except Exception as failure:
                error = str(failure)
                is_their_fault = not isinstance(failure, _NotLeavingError)
                log.warning("carrier failed", extra=fields(error=error[:500]))
            old = self._run
            if self._ending.is_set():
                return
            # No member is suspected if the server stays away.
            self._throw_out(error, number, is_their_fault and UnavailableError.code not in error)
            shutil.rmtree(old, ignore_errors=True)
            self._ending.wait(self._retry_s)

    def _begin_run(self, number: int) -> None:
        self._run = self._directory / f"run-{number}"
        self._run.mkdir(parents=True)

    def _start(self) -> StreamingQuery:
        self.session.sparkContext.setLocalProperty("spark.scheduler.pool", "carrier")
        source = (
            self.session.readStream.format(NAME)
            .option("directory", str(self._run))
            .option("nudge", self._nudge_subject)
            .option("tasks", str(self._tasks))
            .option("nats", orjson.dumps(self._nats).decode())
            .load()
        )
        return (
            source.writeStream.foreachBatch(self._each)
            .options(**UNLOGGED)
            .option("checkpointLocation", str(self._directory / f"{self._run.name}-checkpoint"))
            .queryName(f"carrier-{self._run.name}")
            .start()
        )

    def _each(self, frame: DataFrame, _batch: int) -> None:
        """Run a batch, and report the outcomes to the members."""
        self._batch_at_s = self._clock.monotonic_s()
        rows = frame.collect()
        self._batch_at_s = None
        # Several tasks may report on one member; the final outcome is reported last.
        for row in sorted(rows, key=lambda row: _ORDER.index(row.kind)):
            with self._lock:
                found = self._passengers.get(carrier_member.file_name(row.instance, row.generation))
                if found is None:
                    continue
                passenger, member = found
                if row.kind in _OUT:
                    # Must precede the planning of the next batch.
                    carrier_member.remove(self._run, member)
                    del self._passengers[member.file_name]
                    self._leaving.pop(member.file_name, None)
            passenger.take(row)

    def _watch(self, running: StreamingQuery) -> None:
        try:
            # Raises the error that ended the query, if any.
            while not running.awaitTermination(_LOOK_S):  # type: ignore[arg-type]
                if self._ending.is_set():
                    return
                now_s = self._clock.monotonic_s()
                with self._lock:
                    everybody = list(self._everybody)
                    stuck = [n for n, since in self._leaving.items() if now_s - since > _LEAVE_S]
                if stuck:
                    raise _NotLeavingError(
                        f"did not leave within {_LEAVE_S:g} s: {', '.join(stuck)}"
                    )
                if self._batch_at_s is not None and now_s - self._batch_at_s > _HANGS_S:
                    raise TimeoutError(f"its batch was not done after {_HANGS_S:g} s")
                for passenger in everybody:
                    passenger.look(now_s)
        finally:
            # The query stops only after its planner has answered.
            carrier_member.end(self._run)
            self._nudge()
            running.stop()

    def _throw_out(self, error: str, number: int, is_their_fault: bool) -> None:
        self._batch_at_s = None
        suspects = carrier_member.at_work(self._run)
        with self._lock:
            out = list(self._passengers.values())
            self._passengers.clear()
            self._leaving.clear()
            self._begin_run(number)
        for passenger, member in out:
            passenger.thrown_out(error, is_suspect=is_their_fault and member.name in suspects)


#: After these a member does no more work.
_OUT: Final = (FAILED, REMOVED)
#: Order of the reports on one member in a batch.
_ORDER: Final = (ADMITTED, WORK, *_OUT)
