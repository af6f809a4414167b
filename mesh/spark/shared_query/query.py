"""Shared query: one streaming query that runs many instances of a worker in real time.

A dedicated query costs an instance a planner process of 50 MB, a start of half a second, 0.4 % of a
core while idle, and 60 ms for each micro-batch.  So instances share one query, whose tasks stay:
each is a *slot* (``slot``) that serves parts of the instances as their messages come.  It reads,
computes and publishes a range of a part at once, and reports to this module now and then.  Offsets,
state, snapshots and producers are separate for each instance, as in a dedicated query.  A failure
affects one instance: it is removed, and starts again from its snapshot while the others continue.

Outcomes of a member arrive in order.  A member's last outcome, ``REMOVED`` or ``FAILED``, arrives
when none of the slots works for it any more.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from mesh.spark.session import UNLOGGED, socket_directory
from mesh.spark.shared_query import members
from mesh.spark.shared_query.keep_alive import KeepAlive, interpreted, keep_alive_rows
from mesh.spark.shared_query.members import FAILED, REMOVED, Outcome
from mesh.spark.shared_query.slot_network import Address, Admit, LocalListener, Remove, TlsListener
from mesh.spark.shared_query.slots import SlotLink, Slots, distribute
from mesh.telemetry.logs import fields
from pyspark_nats.errors import UnavailableError
from pyspark_nats.protocol.connection_options import connection_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mesh.clock import Clock
    from mesh.spark.shared_query.members import Member
    from mesh.spark.shared_query.slot_network import SlotListener

log = logging.getLogger(__name__)

#: Failure of a member whose listener failed at a report; the log has the reason.
_NOT_TAKEN: Final = "a report on it was not understood"
#: Interval of the members' timed work, seconds.
_LOOK_S: Final = 0.25
#: Time for a member to leave before the query is stopped: its slot hangs, or NATS is unavailable.
_LEAVE_S: Final = 5.0
#: Duration of one run after which its member is suspected to hang; a slot that waits for NATS gives
#: up earlier.
_HANGS_S: Final = 45.0
#: Time for all slots to start, seconds: Spark starts processes for them.
_STARTS_S: Final = 90.0
#: Name of the query of instances without functions of users, and of those with some.
SHARED: Final = "mesh-shared-query"
SCRIPTS: Final = "mesh-script-query"
#: Number of threads that restore and store snapshots of running instances; as many serve all other
#: waits.
_THREADS: Final = 8


class QueryListener(Protocol):
    """Callbacks of the shared query to an instance; they must not block."""

    def on_outcome(self, outcome: Outcome) -> None:
        """Process an outcome; called in order."""
        ...

    def on_query_failed(self, error: str, *, is_suspect: bool) -> None:
        """The shared query failed.

        ``is_suspect`` is true if a slot was working for this instance at the time.
        """
        ...

    def tick(self, now_s: float, busy: int = 0) -> bool:
        """Do the timed work that is due (monotonic, seconds); whether it has any.

        So many instances had some the last time: of many, each reports less often.
        """
        ...


class _NotLeavingError(Exception):
    """A member has not left in time."""


class _HangsError(Exception):
    """A slot works for one instance for too long."""

    def __init__(self, instance: str, reason: str) -> None:
        super().__init__(f"work for {instance} {reason}")
        self.instance = instance


@dataclass(eq=False, slots=True)
class _Admitted:
    """A member in the shared query."""

    listener: QueryListener
    member: Member
    #: The slots that serve parts of it, and how many; empty until all slots are there.
    links: dict[SlotLink, int] = field(default_factory=dict)
    #: Since when it is to leave, monotonic, seconds.
    leaves_s: float | None = None
    #: The failure in the first slot in which it failed.
    failed: Outcome | None = None


class SharedQuery:
    """The query, which is kept running, and its members."""

    def __init__(
        self,
        session: SparkSession,
        directory: Path,
        clock: Clock,
        *,
        nats: dict[str, str],
        slot_count: Callable[[], int],
        retry_s: float,
        name: str = SHARED,
        elsewhere: Address | None = None,
        report_s: float = 1.0,
    ) -> None:
        """Create a shared query that is not started.

        Args:
            session: the worker's.
            directory: for scratch; exclusive to this query.
            clock: for timed work.
            nats: options of the NATS connection.
            slot_count: the number of slots for the next start; Spark runs a task for each all the
                time.
            retry_s: pause before the query is started again.
            name: of the query; no other one of the session has the same.
            elsewhere: where slots on other machines reach the session; None if they are here.
            report_s: interval of such slots' reports on a busy part, seconds.
        """
        #: Unique numbers: a member that is admitted again gets a new one.
        self.generations = itertools.count(1)
        #: For snapshots: a slow store must not delay the end or the reports of other instances.
        self.pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="shared-query-snapshots")
        self.errands = ThreadPoolExecutor(_THREADS, thread_name_prefix="shared-query")
        self.session = session
        self.directory = directory
        self._clock = clock
        self._nats = nats
        self._slot_count = slot_count
        self._name = name
        self._retry_s = retry_s
        self._elsewhere, self._report_s = elsewhere, report_s
        #: Guards the following fields; never held while a listener is called.
        self._lock = threading.Lock()
        self._members: dict[str, _Admitted] = {}
        self._listeners: set[QueryListener] = set()
        #: Held while a listener is called, so that it sees its outcomes in order.
        self._delivery = threading.RLock()
        self._run = directory
        self._slots: Slots | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="shared-query", daemon=True)

    def start(self) -> None:
        """Start; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the query, and wait until it has ended."""
        self._ending.set()
        self._thread.join()
        self.pool.shutdown()
        self.errands.shutdown()

    def register(self, listener: QueryListener) -> None:
        """Call ``tick`` of ``listener`` from now on, whether or not it is a member."""
        with self._lock:
            self._listeners.add(listener)

    def unregister(self, listener: QueryListener) -> None:
        """Undo ``register``."""
        with self._lock:
            self._listeners.discard(listener)

    def admit(self, listener: QueryListener, member: Member) -> None:
        """Admit a member; ``listener`` receives its outcomes."""
        with self._lock:
            admitted = self._members[member.file_name] = _Admitted(listener, member)
            if self._slots is not None and self._slots.is_ready:
                _assign(admitted, self._slots.links)

    def release(self, member: Member) -> None:
        """Remove a member; an outcome ``REMOVED`` follows when it does no more work."""
        name = member.file_name
        with self._lock:
            admitted = self._members.get(name)
            if admitted is None or admitted.leaves_s is not None:
                return
            admitted.leaves_s = self._clock.monotonic_s()
            for link in admitted.links:
                link.send(Remove(name))
            if admitted.links:
                return
            # It waits for the slots.
            del self._members[name]
        gone = Outcome(REMOVED, member.name, member.generation)
        self.errands.submit(admitted.listener.on_outcome, gone)

    def _on_ready(self, links: Sequence[SlotLink]) -> None:
        with self._lock:
            for admitted in self._members.values():
                if not admitted.links:
                    _assign(admitted, links)

    def _on_outcomes(self, link: SlotLink, outcomes: Sequence[Outcome]) -> None:
        with self._delivery:
            for outcome in outcomes:
                with self._lock:
                    reported = self._outcome(link, outcome)
                if reported is not None:
                    listener, final = reported
                    with _faults_logged(outcome.instance, partial(self._fail, outcome)):
                        listener.on_outcome(final)

    def _fail(self, outcome: Outcome) -> None:
        """Remove a member whose listener failed at an outcome; the failure follows."""
        name, generation = outcome.instance, outcome.generation
        with self._lock:
            admitted = self._members.get(members.file_name(name, generation))
            if admitted is not None and admitted.failed is None:
                self._remove(admitted, Outcome(FAILED, name, generation, failure=_NOT_TAKEN))

    def _outcome(self, link: SlotLink, outcome: Outcome) -> tuple[QueryListener, Outcome] | None:
        """Listener and outcome to tell it, for a slot's outcome; called with the lock held."""
        name = members.file_name(outcome.instance, outcome.generation)
        admitted = self._members.get(name)
        if admitted is None or link not in admitted.links:
            return None
        if outcome.kind not in _FINAL:
            return admitted.listener, outcome
        link.add_load(admitted.member, -admitted.links.pop(link))
        if outcome.kind == FAILED and admitted.failed is None:
            self._remove(admitted, outcome)
        if admitted.links:
            return None
        del self._members[name]
        return admitted.listener, admitted.failed or outcome

    def _remove(self, admitted: _Admitted, failed: Outcome) -> None:
        """Have the slots remove a member that has failed; called with the lock held."""
        admitted.failed = failed
        admitted.leaves_s = self._clock.monotonic_s()
        for link in admitted.links:
            link.send(Remove(admitted.member.file_name))

    # --- the query

    def _supervise(self) -> None:
        for number in itertools.count():
            run = self.directory / f"run-{number}"
            error = "the shared query ended"
            suspects: frozenset[str] = frozenset()
            accepting: Slots | None = None
            try:
                run.mkdir(parents=True, mode=0o700)
                count = self._slot_count()
                listener = (
                    TlsListener(self._elsewhere)
                    if self._elsewhere is not None
                    else LocalListener(socket_directory(run) / f"slots-{secrets.token_hex(3)}")
                )
                accepting = Slots(listener, count, self._on_ready, self._on_outcomes)
                with self._lock:
                    self._slots = accepting
                try:
                    running = self._start(run, count, listener)
                except BaseException:
                    accepting.close()
                    raise
                self._watch(running, accepting)
            except _HangsError as failure:
                error, suspects = str(failure), frozenset([failure.instance])
            # A failure of the query is reported to its members, and the query is started again.
            except Exception as failure:
                error = str(failure)
                # No member is to blame for a server that is unavailable.
                if UnavailableError.code not in error and accepting is not None:
                    suspects = accepting.suspects()
            if self._ending.is_set():
                return
            log.warning("shared query failed", extra=fields(error=error[:500]))
            self._fail_members(error, suspects)
            shutil.rmtree(run, ignore_errors=True)
            self._ending.wait(self._retry_s)

    def _start(self, run: Path, count: int, listener: SlotListener) -> StreamingQuery:
        self.session.sparkContext.setLocalProperty("spark.scheduler.pool", "shared-query")
        # Here the driver reads files of credentials; executors have none.
        nats = connection_options(self._nats)
        keep_alive = KeepAlive(count, listener.address, str(run), nats)
        if listener.secret is not None:
            # Slots elsewhere have no directory of the session's.
            keep_alive = replace(
                keep_alive, directory="", secret=listener.secret, report_s=self._report_s
            )
        query = (
            keep_alive_rows(self.session, keep_alive, self._name)
            .writeStream.format("noop")
            .options(**UNLOGGED)
            .option("checkpointLocation", str(run / "checkpoint"))
            .queryName(f"{self._name}-{run.name}")
        )
        with interpreted(self.session):
            return query.start()

    def _watch(self, running: StreamingQuery, accepting: Slots) -> None:
        started_s = self._clock.monotonic_s()
        busy = 0
        try:
            # Raises the error that ended the query, if any.
            while not running.awaitTermination(_LOOK_S):  # type: ignore[arg-type]
                if self._ending.is_set():
                    return
                now_s = self._clock.monotonic_s()
                self._check(accepting, now_s, started_s)
                if accepting.is_lost:
                    # Spark knows why.
                    running.awaitTermination(_LEAVE_S)  # type: ignore[arg-type]
                    raise RuntimeError("a slot of the shared query ended")
                with self._lock:
                    listeners = list(self._listeners)
                busy_before, busy = busy, 0
                for listener in listeners:
                    # Of a thousand at rest, a context manager for each would take most of the time.
                    try:
                        busy += listener.tick(now_s, busy_before)
                    except Exception:
                        _log_fault(listener)
        finally:
            accepting.close()
            running.stop()

    def _check(self, accepting: Slots, now_s: float, started_s: float) -> None:
        """Raise an error if a slot or a member hangs."""
        for link in accepting.links:
            work = link.work()
            if work is not None and now_s - work.since_s > _HANGS_S:
                link.kill()
                raise _HangsError(work.instance, f"was not finished after {_HANGS_S:g} s")
        with self._lock:
            leaving = {n: m.leaves_s for n, m in self._members.items() if m.leaves_s is not None}
        stuck = [name for name, since_s in leaving.items() if now_s - since_s > _LEAVE_S]
        if stuck:
            raise _NotLeavingError(f"was not removed within {_LEAVE_S:g} s: {', '.join(stuck)}")
        if not accepting.is_ready and now_s - started_s > _STARTS_S:
            raise TimeoutError(f"its slots did not start within {_STARTS_S:g} s")

    def _fail_members(self, error: str, suspects: frozenset[str]) -> None:
        with self._lock:
            out = list(self._members.values())
            self._members.clear()
            self._slots = None
        with self._delivery:
            for one in out:
                name = one.member.name
                with _faults_logged(name):
                    one.listener.on_query_failed(error, is_suspect=name in suspects)


@contextmanager
def _faults_logged(instance: object, then: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Log an exception of a listener: the query and its threads serve other members, too.

    Args:
        instance: its text is made only for the log.
        then: called after an exception.
    """
    try:
        yield
    except Exception:
        _log_fault(instance)
        then()


def _log_fault(instance: object) -> None:
    extra = fields(instance=str(instance))
    log.exception("instance failed at a report of its query", extra=extra)


def _assign(admitted: _Admitted, links: Sequence[SlotLink]) -> None:
    for link, keys in distribute(admitted.member, links).items():
        admitted.links[link] = len(keys)
        link.add_load(admitted.member, len(keys))
        link.send(Admit(admitted.member, keys))


#: Final outcomes: afterwards a member does no more work.
_FINAL: Final = (FAILED, REMOVED)
