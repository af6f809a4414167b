"""One instance that a carrier runs: restored, taken in, watched, started again.

It does for its session what ``mesh.spark.instance.Instance`` does for an instance with a query of
its own, without a thread: the carrier tells it what happened, and what waits for NATS is done by
the carrier's few threads.

An instance is set *apart*, in a query of its own, where others would suffer from it: when it keeps
the carrier's tasks busy, until it has been quiet for a while; and for good when the carrier broke
while work of it was under way.
"""

from __future__ import annotations

import logging
import shutil
import statistics
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import orjson

from mesh.logs import fields
from mesh.model.cluster import InstanceState, InstanceStatus
from mesh.spark import carrier_member, editing
from mesh.spark.carrier_work import ADMITTED, FAILED, REMOVED
from mesh.spark.instance import FENCED, REPORT_S, Instance, start_offsets
from mesh.spark.state import LocalState, Manifest, Position

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import Row

    from mesh.clock import Clock
    from mesh.spark.carrier import Carrier
    from mesh.spark.carrier_member import Member, Offsets
    from mesh.spark.instance import InstanceOptions, SnapshotStore
    from mesh.spark.wiring import Wiring

log = logging.getLogger(__name__)

#: A status goes out at least this often, seconds: one that told of a change may have been lost.
_REPORT_IDLE_S: Final = 15.0
#: Of a task's time over so long, for so many times in a row, makes an instance busy.
_BUSY: Final = 0.5
_BUSY_S: Final = 3.0
_BUSY_TIMES: Final = 2
#: How long nothing comes for one that was set apart for being busy until it is carried again.
_QUIET_S: Final = 60.0
#: Batches of which the median duration is told.
_BATCHES: Final = 100


class CarriedInstance:
    """An instance in a carrier, from ``start`` to the end that ``stop`` asks for."""

    def __init__(
        self,
        carrier: Carrier,
        wiring: Wiring,
        options: InstanceOptions,
        directory: Path,
        store: SnapshotStore,
        report: Callable[[InstanceStatus], None],
        clock: Clock,
    ) -> None:
        self.wiring = wiring
        self._carrier = carrier
        self._options = options
        self._directory = directory
        self._store = store
        self._report = report
        self._clock = clock
        self._keys = carrier_member.keys(wiring)
        #: Guards what follows; never held while waiting.
        self._lock = threading.Lock()
        self._stopping = False
        self._member: Member | None = None
        self._run = directory
        self._generation = 0
        #: Where each part is, once it is in.
        self._at: dict[str, Offsets] = {}
        self._shared: dict[str, Offsets] = {}
        self._state = InstanceState.STARTING
        self._error: str | None = None
        #: When it is to be started again, monotonic, seconds.
        self._retry_at_s: float | None = None
        self._restarts = self._messages_in = self._rows_out = self._errors = 0
        self._behind: dict[str, int] = {}
        self._batch_ms: list[float] = []
        self._is_changed = False
        self._said_at_s = self._shared_at_s = 0.0
        #: Milliseconds of work since ``_busy_from_s``, and how often in a row that was much.
        self._busy_ms = 0.0
        self._busy_from_s = clock.monotonic_s()
        self._busy_times = 0
        #: Whether it is to have a query of its own, and whether it may be carried again then.
        self._goes_apart = False
        self._may_return = True
        self._apart: Instance | None = None
        #: What came in before it was set apart, or while it was: since when that is all.
        self._quiet = (0, 0.0)
        #: Held by whoever stores a snapshot.
        self._sharing = threading.Lock()
        self._ended = threading.Event()

    def __repr__(self) -> str:
        assignment = self.wiring.assignment
        return f"CarriedInstance({assignment.instance}, epoch={assignment.epoch})"

    # --- what the session calls

    def start(self) -> None:
        """Begin; returns at once."""
        self._say(InstanceState.STARTING)
        self._carrier.board(self)
        self._carrier.pool.submit(self._enter)

    def stop(self, *, settle: bool = False) -> None:
        """Ask it to end at the border of a batch; a ``STOPPED`` report follows.

        It never says that it has settled: what has to is run by a query of its own.
        """
        with self._lock:
            self._stopping = True
            member, is_resting, apart = self._member, self._retry_at_s is not None, self._apart
            self._retry_at_s = None
        if apart is not None:
            apart.stop()
        elif member is not None:
            self._carrier.leave(member)
        elif is_resting:
            self._carrier.pool.submit(self._end)

    def join(self) -> None:
        """Wait until it has ended."""
        self._ended.wait()

    # --- what the carrier calls

    def take(self, row: Row) -> None:
        """See ``Passenger.take``."""
        with self._lock:
            if row.generation != self._generation:
                return
            if row.ends is not None:
                self._at[row.part] = orjson.loads(row.ends)
            if row.kind not in (ADMITTED, FAILED, REMOVED):
                self._count(row)
                return
            if row.kind == ADMITTED:
                # The stored snapshot is of there, or there is nothing to store.
                self._shared[row.part] = self._at[row.part]
                if len(self._at) == len(self._keys):
                    self._carrier.pool.submit(self._say, InstanceState.RUNNING)
                return
            self._member = None
        if row.kind == REMOVED:
            self._carrier.pool.submit(self._left)
        else:
            self._carrier.pool.submit(self._failed, str(row.failure))

    def thrown_out(self, error: str, *, is_suspect: bool) -> None:
        """See ``Passenger.thrown_out``."""
        with self._lock:
            self._member = None
            if is_suspect:
                self._goes_apart, self._may_return = True, False
        if is_suspect:
            self._carrier.pool.submit(self._failed, _first_line(error))
        else:
            self._carrier.pool.submit(self._enter)

    def look(self, now_s: float) -> None:
        """See ``Passenger.look``."""
        with self._lock:
            again = self._retry_at_s is not None and now_s >= self._retry_at_s
            if again:
                self._retry_at_s = None
            is_in = self._member is not None and self._state is InstanceState.RUNNING
            busy = self._member if is_in and self._is_busy(now_s) else None
            is_dirty = is_in and self._at != self._shared
            since_s = now_s - self._said_at_s
            tells = is_in and (
                since_s >= _REPORT_IDLE_S or (self._is_changed and since_s >= REPORT_S)
            )
            if tells:
                self._said_at_s = now_s
            shares = is_dirty and now_s - self._shared_at_s >= self._options.snapshot_interval_s
            if shares:
                self._shared_at_s = now_s
        if again:
            self._carrier.pool.submit(self._enter)
        if busy is not None:
            self._goes_apart = True
            self._carrier.leave(busy)
        if tells:
            self._say(InstanceState.RUNNING)
        if shares:
            self._carrier.pool.submit(self._try_share)

    # --- in the carrier's threads

    def _enter(self) -> None:
        """Restore the last snapshot, and have the carrier take it in."""
        if self._is_stopping():
            self._end()
            return
        if self._goes_apart:
            self._set_apart()
            return
        with self._lock:
            self._generation = next(self._carrier.generations)
            self._at, self._shared = {}, {}
            generation, old = self._generation, self._run
            epoch = self.wiring.assignment.epoch
            self._run = run = self._directory / f"{epoch}-{generation}"
        if old != self._directory:
            shutil.rmtree(old, ignore_errors=True)
        try:
            starts, restored = self._restore(run)
            member = carrier_member.member(
                self.wiring,
                generation,
                run,
                nats=self._options.nats,
                starts=starts,
                restored=restored,
            )
        # Whatever it is is reported and tried again.
        except Exception as failure:
            self._failed(str(failure) or type(failure).__name__)
            return
        with self._lock:
            is_over = self._stopping
            if not is_over:
                self._member = member
                self._carrier.enter(self, member)
        if is_over:
            self._end()

    def _left(self) -> None:
        """The carrier has let it go, at the border of a batch."""
        self._try_share()
        if self._is_stopping():
            self._end()
        else:
            self._enter()

    def _set_apart(self) -> None:
        """Run it in a query of its own; it goes on from the last snapshot."""
        name = self.wiring.assignment.instance
        log.info("instance gets a query of its own", extra=fields(instance=name))
        self._generation = next(self._carrier.generations)
        apart = Instance(
            self._carrier.session,
            self.wiring,
            self._options,
            self._directory / f"apart-{self._generation}",
            self._store,
            self._relay,
            self._clock,
        )
        with self._lock:
            self._apart = apart
            self._quiet = (-1, 0.0)
            is_over = self._stopping
        apart.start()
        if is_over:
            apart.stop()

    def _relay(self, status: InstanceStatus) -> None:
        """Hand on what the query of its own reports; have it end when nothing comes any more."""
        if status.state is InstanceState.STOPPED:
            with self._lock:
                self._apart = None
                # Where it has ended by itself, it was taken over.
                returns = not self._stopping and not self._goes_apart
                self._error = status.error
            self._carrier.pool.submit(self._enter if returns else self._end)
            return
        self._report(
            replace(
                status,
                restarts=status.restarts + self._restarts,
                messages_in=status.messages_in + self._messages_in,
                rows_out=status.rows_out + self._rows_out,
                errors=status.errors + self._errors,
            )
        )
        now_s = self._clock.monotonic_s()
        if status.messages_in != self._quiet[0] or status.behind:
            self._quiet = (status.messages_in, now_s)
        elif self._may_return and now_s - self._quiet[1] >= _QUIET_S:
            with self._lock:
                self._goes_apart, apart = False, self._apart
            if apart is not None:
                apart.stop()

    def _is_busy(self, now_s: float) -> bool:
        """Whether it has kept tasks busy for a while; called with the lock held."""
        passed_s = now_s - self._busy_from_s
        if passed_s < _BUSY_S:
            return False
        is_much = self._busy_ms > passed_s * 1000 * _BUSY
        self._busy_times = self._busy_times + 1 if is_much else 0
        self._busy_ms, self._busy_from_s = 0.0, now_s
        return self._busy_times >= _BUSY_TIMES

    def _is_stopping(self) -> bool:
        with self._lock:
            return self._stopping

    def _restore(self, run: Path) -> tuple[dict[str, Offsets], frozenset[str]]:
        """Where parts begin, and those whose state is in ``run`` now."""
        if not self.wiring.group.stateful:
            data = self._store.restore(self.wiring.part(0), lambda name: run / name)
            reached = {}
            if data is not None:
                local = LocalState(run)
                manifest = editing.adopted(self.wiring, 0, local, data, self._store)
                reached = {0: manifest.reached}
            position = start_offsets(self.wiring, reached)
            begin = {key: {key: position[key]} for key in self._keys if key in position}
            return begin, frozenset(begin)
        starts, restored = {}, set()
        begun = start_offsets(self.wiring, {})
        for key in self._keys:
            local = self._local(run, key)
            local.directory.mkdir(parents=True)
            data = self._store.restore(self.wiring.part(int(key)), local.piece_path)
            if data is not None:
                manifest = editing.adopted(self.wiring, int(key), local, data, self._store)
                local.put_restored(manifest)
                starts[key] = manifest.reached.offsets
                restored.add(key)
            elif any(stream in begun for stream in self._keys[key]):
                nowhere = {"sequence": 0, "time_ms": 0}
                starts[key] = {stream: begun.get(stream, nowhere) for stream in self._keys[key]}
        return starts, frozenset(restored)

    def _failed(self, reason: str) -> None:
        name, epoch = self.wiring.assignment.instance, self.wiring.assignment.epoch
        if FENCED in reason or "StaleWriterError" in reason or "MESH-S110" in reason:
            self._was_taken_over(reason)
            self._end()
            return
        log.warning("instance failed", extra=fields(instance=name, epoch=epoch, error=reason))
        with self._lock:
            self._restarts += 1
            self._error = reason[:500]
            is_over = self._stopping
            if not is_over:
                self._retry_at_s = self._clock.monotonic_s() + self._options.retry_s
        if is_over:
            self._end()
        else:
            self._say(InstanceState.RETRYING)

    def _was_taken_over(self, reason: str) -> None:
        """It has no more to do here; where it is still carried it leaves."""
        name, epoch = self.wiring.assignment.instance, self.wiring.assignment.epoch
        with self._lock:
            is_known, self._stopping = self._stopping, True
            self._error = reason[:500]
            member = self._member
        if member is not None:
            self._carrier.leave(member)
        if not is_known:
            log.warning("instance was taken over", extra=fields(instance=name, epoch=epoch))

    def _end(self) -> None:
        self._carrier.alight(self)
        with self._lock:
            run = self._run
        if run != self._directory:
            shutil.rmtree(run, ignore_errors=True)
        self._say(InstanceState.STOPPED)
        self._ended.set()

    def _try_share(self) -> None:
        try:
            with self._sharing:
                self._share()
        # A snapshot that isn't stored costs a longer replay, or is stored the next time.
        except Exception as failure:
            reason = str(failure) or type(failure).__name__
            if "MESH-S110" in reason:
                self._was_taken_over(reason)
                return
            extra = fields(instance=self.wiring.assignment.instance, error=reason)
            log.warning("snapshot was not stored", extra=extra)

    def _share(self) -> None:
        """Store the snapshots of parts that have moved on; positions are out, as all told ones."""
        with self._lock:
            moved = {k: at for k, at in self._at.items() if at != self._shared.get(k)}
            whole = dict(self._at)
            run = self._run
        if not self.wiring.group.stateful:
            if moved and len(whole) == len(self._keys):
                offsets = {stream: one for at in whole.values() for stream, one in at.items()}
                self._save(0, LocalState(run), Manifest(Position.of(offsets, offsets), {}, {}, ()))
                self._note(whole)
            return
        for key, at in moved.items():
            local = self._local(run, key)
            manifest = local.manifest(Position.of(at, self._keys[key]))
            # None: later batches have dropped it, or there was none; the next look finds a newer.
            if manifest is not None:
                try:
                    self._save(int(key), local, manifest)
                except FileNotFoundError:
                    continue
                self._note({key: at})

    def _save(self, partition: int, local: LocalState, manifest: Manifest) -> None:
        self._store.save(
            self.wiring.part(partition),
            editing.signed(manifest, self.wiring.group).to_bytes(),
            {name: local.piece_path(name) for name in manifest.pieces},
        )

    def _note(self, shared: dict[str, Offsets]) -> None:
        with self._lock:
            self._shared |= shared

    def _local(self, run: Path, key: str) -> LocalState:
        return LocalState(run / key)

    # --- reports

    def _count(self, row: Row) -> None:
        self._messages_in += row.messages
        self._rows_out += row.rows
        self._errors += row.errors
        self._behind[row.part] = row.behind
        self._busy_ms += row.took_ms
        self._batch_ms = [*self._batch_ms[1 - _BATCHES :], row.took_ms]
        self._is_changed = True

    def _say(self, state: InstanceState) -> None:
        assignment = self.wiring.assignment
        with self._lock:
            self._state = state
            self._is_changed = False
            self._said_at_s = self._clock.monotonic_s()
            status = InstanceStatus(
                instance=assignment.instance,
                app=assignment.app,
                worker=self._options.worker,
                epoch=assignment.epoch,
                state=state,
                at_ms=self._clock.wall_ms(),
                error=None if state is InstanceState.RUNNING else self._error,
                restarts=self._restarts,
                messages_in=self._messages_in,
                rows_out=self._rows_out,
                errors=self._errors,
                behind=sum(self._behind.values()),
                batch_ms_p50=statistics.median(self._batch_ms) if self._batch_ms else None,
            )
        self._report(status)


def _first_line(error: str) -> str:
    return next((line.strip() for line in error.splitlines() if line.strip()), "unknown")[:500]
