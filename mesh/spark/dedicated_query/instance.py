"""An instance with a dedicated query: the query is started, watched and restarted.

``InstanceLifecycle`` decides; a thread performs its instructions and watches the query.

Everything that Spark keeps on disk for the query is scratch.  A start, whether the first, after a
failure, or on another worker, restores the last uploaded snapshot.  It reads the log from the
snapshot's position, and the sink skips output that is already published.  A snapshot is uploaded
only for a position that the sink has committed, so nothing between the two can be lost.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from mesh.control import instance_lifecycle as events
from mesh.control.instance_lifecycle import InstanceLifecycle, Phase
from mesh.spark import drain, instance_metrics, snapshot_migration
from mesh.spark.dedicated_query import observing, query
from mesh.spark.drain import check_input, start_offsets, with_newest
from mesh.spark.instance_io import InputPosition, LocalState, Manifest, newest_of
from mesh.spark.instance_metrics import InstanceMetrics, is_nats_timeout, is_replaced, reason_of
from mesh.spark.part_states import mirror, restore_parts, state_of, write_wakeups
from mesh.spark.shared_query import members, pacing
from mesh.spark.task_states import RemoteState, TaskStates
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mesh.control.instance_lifecycle import Event, Instruction
    from mesh.spark.dedicated_query.observing import Samples
    from mesh.spark.instance_context import InstanceContext

log = logging.getLogger(__name__)

#: Polling intervals of a running query and of a starting one.
LOOK_S = 0.25
LOOK_STARTING_S = 0.03
#: Polling interval of a query that is to halt.
LOOK_HALTING_S = 0.02


@dataclass(slots=True)
class _Run:
    """A start of the query, from a snapshot."""

    directory: Path
    offsets: dict[str, dict[str, int]] | None = None
    restored: frozenset[int] = frozenset()
    #: Place of the states if the tasks run on other machines.
    states: TaskStates | None = None
    query: StreamingQuery | None = None
    is_up: bool = False
    #: Times that its tasks have sampled.
    samples: Accumulator[Samples] | None = None
    #: The ``haltPath`` of each source.
    halts: Sequence[Path] = ()
    halt: drain.Drain | None = None
    #: The positions at which all sources have halted.
    halted: drain.Places | None = None
    seen_batch: tuple[int, str] | None = None
    shared: InputPosition | None = None
    #: Monotonic, seconds.
    reported_at_s: float = 0.0
    shared_at_s: float = 0.0


class DedicatedInstance:
    """A thread that keeps one instance running until ``stop``."""

    def __init__(self, session: SparkSession, context: InstanceContext) -> None:
        self.io = context.io
        self._session = session
        self._context = context
        self._options = context.options
        self._store = context.store
        self._clock = context.clock
        self._metrics = InstanceMetrics(context)
        #: Guards the following fields; never held while waiting, nor while reporting.
        self._lock = threading.Lock()
        self._life = InstanceLifecycle(
            context.options.retries(), context.options.settle_s, context.io.assignment.until
        )
        self._instructions: deque[Instruction] = deque()
        self._has_ended = False
        #: Set when there are new instructions.
        self._woken = threading.Event()
        # --- of the thread
        self._run = _Run(context.directory)
        self._runs = 0
        self._thread = threading.Thread(
            target=self._work, name=context.io.assignment.instance, daemon=True
        )

    def __repr__(self) -> str:
        assignment = self.io.assignment
        return f"DedicatedInstance({assignment.instance}, epoch={assignment.epoch}, {self._life})"

    def start(self) -> None:
        """Start; returns at once."""
        self._take(events.Started())
        self._thread.start()

    def stop(self, *, settle: bool = False) -> None:
        """Request the end; a ``STOPPED`` report follows, also if the instance has already ended.

        Args:
            settle: whether it may delay its end to reach a point where its next owner can continue.
        """
        self._take(events.StopRequested(drains=settle))
        with self._lock:
            if not self._has_ended:
                return
        self._report()

    def join(self) -> None:
        """Wait until the instance has ended."""
        self._thread.join()

    # --- events and instructions

    def _take(self, event: Event) -> None:
        with self._lock:
            self._instructions += self._life.handle(event, self._clock.monotonic_s())
        self._woken.set()

    def _work(self) -> None:
        while True:
            with self._lock:
                instruction = self._instructions.popleft() if self._instructions else None
                if instruction is None and self._life.phase is Phase.STOPPED:
                    self._has_ended = True
                    return
            try:
                if instruction is not None:
                    self._perform(instruction)
                else:
                    self._look()
            # Every failure of a query is reported and retried: the thread must outlive it.
            except Exception as failure:
                self._failed(failure)

    def _failed(self, failure: Exception) -> None:
        extra = fields(instance=self.io.assignment.instance, epoch=self.io.assignment.epoch)
        if is_replaced(str(failure)):
            log.warning("instance was replaced by a newer epoch", extra=extra)
            self._take(events.Replaced(reason_of(failure), has_ended=True))
            return
        reason = reason_of(failure)
        log.warning("instance failed", extra=extra | fields(error=reason))
        log.debug("all of it", exc_info=failure)
        self._context.failures.note(reason)
        self._forget()
        self._take(events.Failed(reason, has_waited=is_nats_timeout(failure)))

    def _perform(self, instruction: Instruction) -> None:
        match instruction:
            case events.Restore():
                self._forget()
                self._runs += 1
                name = f"{self.io.assignment.epoch}-{self._runs}"
                self._run = _Run(self._context.directory / name)
                self._run = self._restore(self._run.directory)
                self._search()
                self._take(events.Restored())
            case events.Run(until):
                self._start(until)
            case events.Leave(at_once):
                if at_once:
                    self._forget()
                    self._take(events.Left())
                elif self._run.halt is None:
                    self._run.halt = drain.Drain(self._run.halts, {})
            case events.Settle(drains):
                self._settle(drains=drains)
            case events.ReportState():
                self._report()
            case events.End():
                self._forget()
                self._report()
            case other:
                raise RuntimeError(f"{other} is for the shared query")

    def _forget(self) -> None:
        """Stop the query, and delete what it kept on disk."""
        run, self._run = self._run, _Run(self._context.directory)
        try:
            if run.query is not None:
                run.query.stop()
        # Without its JVM, the session ends soon.
        except Exception as failure:
            extra = fields(instance=self.io.assignment.instance, error=reason_of(failure))
            log.warning("query could not be stopped", extra=extra)
        if run.directory != self._context.directory:
            shutil.rmtree(run.directory, ignore_errors=True)

    def _restore(self, directory: Path) -> _Run:
        """Restore the last snapshot into a new directory."""
        states = None
        if self._options.task_store is not None and self.io.group.stateful:
            states = TaskStates.begin(self.io, self._options.task_store)
        manifests = restore_parts(self.io, directory, self.io.partitions, self._store, states)
        reached = {number: manifest.position_of for number, manifest in manifests.items()}
        starts = [manifest.starts for manifest in manifests.values()]
        offsets = with_newest(start_offsets(self.io, reached), starts)
        check_input(self.io, offsets, self._options.nats)
        return _Run(directory, offsets or None, frozenset(reached), states)

    def _search(self) -> None:
        """Leave out the messages at fault, after equal failures."""
        run, offsets = self._run, self._run.offsets or {}
        starts = {
            key: {stream: offsets[stream] for stream in streams}
            for key, streams in members.partition_keys(self.io).items()
            if all(stream in offsets for stream in streams)
        }
        restored = [str(number) for number in run.restored] if self.io.group.stateful else []
        self.io = self._context.io_of(
            run.directory, starts, restored, lambda: self._life.is_stopping
        )

    def _start(self, until: Mapping[str, int] | None) -> None:
        """Start the query, or let it read on to ``until``."""
        run = self._run
        if run.query is None:
            run.query, run.halts, run.samples = query.start(
                self._session,
                self.io,
                run.directory,
                nats=self._options.nats,
                batch_rows_max=self._options.batch_rows_max,
                message=self._options.message,
                offsets=run.offsets,
                restored=run.restored,
                states=run.states,
            )
            run.reported_at_s = run.shared_at_s = self._clock.monotonic_s()
        if until is None:
            return
        if run.halt is None:
            run.halt = drain.Drain(run.halts, until)
        else:
            run.halt.advance(until)

    def _look(self) -> None:
        """Wait until something happens, for a moment."""
        run = self._run
        self._take(events.Ticked())
        if run.query is None:
            self._woken.wait(LOOK_S)
            self._woken.clear()
            return
        look_s = LOOK_S if run.is_up else LOOK_STARTING_S
        if run.halt is not None:
            look_s = LOOK_HALTING_S
            run.halted = run.halt.places()
            if run.halted is not None:
                self._take(events.Left())
                return
        # Raises the error that ended the query, if any.
        if run.query.awaitTermination(look_s):  # type: ignore[arg-type]
            self._take(events.QueryLost())
        elif (progress := run.query.lastProgress) is not None:
            self._observe(run, progress)

    def _observe(self, run: _Run, progress: Any) -> None:
        now_s = self._clock.monotonic_s()
        if (progress["batchId"], progress["timestamp"]) != run.seen_batch:
            run.seen_batch = (progress["batchId"], progress["timestamp"])
            self._count(progress)
            if run.samples is not None:
                ended_ms = observing.end_ms(progress)
                counts, latencies = observing.take_counts(
                    run.samples, progress["batchId"], ended_ms
                )
                self._metrics.count(
                    counts.messages, counts.events_in, counts.events_out, counts.errors, None
                )
                self._metrics.count_runs((), 0.0, *latencies)
            if run.states is not None:
                write_wakeups(self.io, run.directory, run.states)
        if not run.is_up:
            run.is_up = True
            self._take(events.Up())
        if now_s - run.shared_at_s >= self._options.snapshot_interval_s:
            run.shared = self._share(_end_offsets(progress), run.directory, run.shared)
            run.shared_at_s = now_s
        if now_s - run.reported_at_s >= pacing.REPORT_S:
            counted = instance_metrics.waiting(self._context, _consumed(progress))
            self._metrics.behind = (
                instance_metrics.total([counted]) if counted else self._metrics.behind
            )
            self._report()
            run.reported_at_s = now_s

    def _count(self, progress: Any) -> None:
        took_ms = progress["durationMs"].get("triggerExecution")
        if progress["numInputRows"] and took_ms is not None:
            self._metrics.count(0, 0, 0, 0, took_ms)
            self._metrics.observe_batch(took_ms)

    def _settle(self, *, drains: bool) -> None:
        """Store the reached state, if the instance drains."""
        places, directory = self._run.halted, self._run.directory
        if not drains or places is None:
            self._take(events.Settled())
            return
        reached = {stream: place["sequence"] for stream, place in places.items()}
        everywhere = dict.fromkeys(self.io.partitions, places)
        nats, states = self._options.nats, self._run.states
        if not drain.has_no_output_beyond(self.io, directory, everywhere, nats, states):
            # A killed predecessor may have read further, but not past the end of the streams.
            ends = self._store.ends(places)
            is_more = any(ends.get(stream, 0) > at for stream, at in reached.items())
            self._take(events.Unsettled(ends if is_more else None))
        elif self._has_run(directory) and self._share(places, directory, None) is None:
            # The batch under way has dropped what was to be stored; the next look finds newer.
            self._take(events.Unsettled(reached))
        else:
            self._take(events.Settled(reached))

    def _has_run(self, run: Path) -> bool:
        """Whether a batch of this run has state; a stateless group has only a position."""
        states = self._run.states
        return not self.io.group.stateful or any(
            state_of(self.io, run, p, states).has_run() for p in self.io.partitions
        )

    def _share(
        self, ends: drain.Places, run: Path, shared: InputPosition | None
    ) -> InputPosition | None:
        """Store the snapshot of the last committed batch, unless it is already stored."""
        if not ends:
            return shared
        whole = InputPosition.of(ends, ends)
        if whole == shared:
            return shared
        for partition in self.io.partitions:
            streams = self.io.input_streams(partition)
            position = InputPosition.of(ends, streams)
            newest = newest_of({s: at for s, at in ends.items() if s in streams})
            local = state_of(self.io, run, partition, self._run.states)
            if self.io.group.stateful:
                manifest = local.manifest(position)
                if manifest is None:
                    # Later batches have already dropped it; the next poll finds a newer one.
                    return shared
            else:
                manifest = Manifest(position, {}, {}, ())
            signed = snapshot_migration.sign_manifest(manifest, self.io.group)
            try:
                self._store.save(
                    self.io.part(partition),
                    replace(signed, newest=newest).to_bytes(),
                    local.pieces_of(manifest),
                )
                if isinstance(local, RemoteState):
                    self._store.discard(local.part, local.dropped())
                    mirror(LocalState(run / str(partition)), local, manifest)
            except FileNotFoundError:
                return shared
        return whole

    def _report(self) -> None:
        with self._lock:
            status = self._metrics.status(self._life)
        self._context.report(status)


def _end_offsets(progress: Any) -> dict[str, dict[str, int]]:
    """End of the batch; for a stream that several sources read, the lowest."""
    ends: dict[str, dict[str, int]] = {}
    for source in progress["sources"]:
        end = source["endOffset"]
        offsets = orjson.loads(end) if isinstance(end, str) else end
        for stream, offset in (offsets or {}).items():
            if stream not in ends or offset["sequence"] < ends[stream]["sequence"]:
                ends[stream] = offset
    return ends


def _consumed(progress: object) -> dict[str, int]:
    return {stream: offset["sequence"] for stream, offset in _end_offsets(progress).items()}
