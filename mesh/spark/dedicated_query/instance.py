"""Instance with a dedicated query: the query is started, monitored and restarted.

Everything that Spark keeps on disk for the query is scratch.  A start, whether the first, after a
failure, or on another worker, restores the last uploaded snapshot.  It reads the log from the
snapshot's position, and the sink skips output that is already published.  A snapshot is uploaded
only for a position that the sink has committed, so nothing between the two can be lost.
"""

from __future__ import annotations

import logging
import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from mesh.logs import fields
from mesh.model.cluster import InstanceState
from mesh.spark import drain, input_kept, snapshot_migration
from mesh.spark.dedicated_query import query
from mesh.spark.instance_metrics import InstanceMetrics
from mesh.spark.local_state import LocalState, Manifest, Position, newest_of
from pyspark_nats.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from mesh.spark.instance_context import InstanceContext
    from mesh.spark.instance_io import InstanceIO

log = logging.getLogger(__name__)

#: Polling intervals of a running query and of a starting one.
LOOK_S = 0.25
LOOK_STARTING_S = 0.03
#: Polling interval of a query that is to halt.
LOOK_HALTING_S = 0.02
#: Longest interval between two reports.
REPORT_S = 1.0
#: Part of the sink's refusal of a stale writer, unchanged by Spark's wrapping.
FENCED = "PYSPARK-NATS-FENCED"


class DedicatedInstance:
    """A thread that keeps one instance running until ``stop``."""

    def __init__(self, session: SparkSession, context: InstanceContext) -> None:
        self.io = context.io
        self._session = session
        self._options = context.options
        self._directory = context.directory
        self._store = context.store
        self._clock = context.clock
        self._tally = InstanceMetrics(context)
        self._retries = context.options.retries()
        self._stopping = threading.Event()
        #: Set when the instance is to stop without draining.
        self._at_once = threading.Event()
        #: The drained position.
        self._settled: Mapping[str, int] | None = None
        self._error: str | None = None
        self._thread = threading.Thread(
            target=self._run, name=context.io.assignment.instance, daemon=True
        )

    def __repr__(self) -> str:
        assignment = self.io.assignment
        return f"Instance({assignment.instance}, epoch={assignment.epoch})"

    def start(self) -> None:
        """Start; returns at once."""
        self._thread.start()

    def stop(self, *, settle: bool = False) -> None:
        """Request the end; a ``STOPPED`` report follows, also if the instance has already ended.

        Args:
            settle: whether it may delay its end to reach a point where its next owner can continue.
        """
        if not settle:
            self._at_once.set()
        self._stopping.set()
        if not self._thread.is_alive():
            self._report(InstanceState.STOPPED, self._error)

    def join(self) -> None:
        """Wait until the instance has ended."""
        self._thread.join()

    def _run(self) -> None:
        name = self.io.assignment.instance
        epoch = self.io.assignment.epoch
        error: str | None = None
        while not self._stopping.is_set() and self._settled is None:
            self._report(InstanceState.STARTING, error)
            run = self._directory / f"{epoch}-{self._tally.restarts}"
            try:
                self._run_once(run)
            # Every failure of a query is reported and retried: the thread must outlive it.
            except Exception as failure:
                error = _reason(failure)
                if FENCED in str(failure) or "MESH-S110" in str(failure):
                    log.warning(
                        "instance was replaced by a newer epoch",
                        extra=fields(instance=name, epoch=epoch),
                    )
                    break
                log.warning(
                    "instance failed", extra=fields(instance=name, epoch=epoch, error=error)
                )
                log.debug("all of it", exc_info=failure)
                self._tally.restarts += 1
                self._retries = self._retries.failed(
                    self._clock.monotonic_s(), has_waited=is_nats_timeout(failure)
                )
                rest_s = self._retries.rest_s
                self._tally.report(InstanceState.RETRYING, error, None, rest_s)
                self._stopping.wait(rest_s)
            finally:
                shutil.rmtree(run, ignore_errors=True)
        self._error = error
        self._report(InstanceState.STOPPED, error)

    def _run_once(self, run: Path) -> None:
        offsets, restored = self._restore(run)
        running, halts = query.start(
            self._session,
            self.io,
            run,
            nats=self._options.nats,
            batch_rows_max=self._options.batch_rows_max,
            message=self._options.message,
            offsets=offsets,
            restored=restored,
        )
        try:
            self._watch(running, run, halts)
        finally:
            running.stop()

    def _restore(self, run: Path) -> tuple[dict[str, dict[str, int]] | None, frozenset[int]]:
        """Restore the last snapshot; the start offsets, and the partitions with state."""
        reached: dict[int, Position] = {}
        starts: list[dict[str, dict[str, int]]] = []
        for partition in self.io.partitions:
            local = LocalState(run / str(partition))
            local.directory.mkdir(parents=True)
            data = self._store.restore(self.io.part(partition), local.piece_path)
            if data is not None:
                manifest = snapshot_migration.adopt_manifest(
                    self.io, partition, local, data, self._store
                )
                local.put_restored(manifest)
                reached[partition] = manifest.position_of
                starts.append(manifest.starts)
            else:
                local.put_new()
        offsets = with_newest(start_offsets(self.io, reached), starts)
        input_kept.check(self.io, offsets, self._options.nats)
        return offsets or None, frozenset(reached)

    def _watch(self, running: StreamingQuery, run: Path, halts: Sequence[Path]) -> None:
        is_up = False
        until = self.io.assignment.until
        halt = drain.Drain(halts, until) if until is not None else None
        deadline_s = float("inf")
        seen_batch = None
        shared: Position | None = None
        reported_at_s = shared_at_s = self._clock.monotonic_s()
        while True:
            now_s = self._clock.monotonic_s()
            if self._stopping.is_set():
                deadline_s = min(deadline_s, now_s + self._options.settle_s)
                # A query that has not started has nothing to drain.
                if self._at_once.is_set() or not is_up or now_s >= deadline_s:
                    return
                halt = halt or drain.Drain(halts, {})
            # Raises the error that ended the query, if any.
            look_s = LOOK_S if is_up else LOOK_STARTING_S
            if halt is not None:
                look_s = LOOK_HALTING_S
                places = halt.places()
                if places is not None and self._settle(halt, places, run):
                    return
            if running.awaitTermination(look_s):  # type: ignore[arg-type]
                return
            progress = running.lastProgress
            now_s = self._clock.monotonic_s()
            if progress is None:
                continue
            if (progress["batchId"], progress["timestamp"]) != seen_batch:
                seen_batch = (progress["batchId"], progress["timestamp"])
                self._count(progress)
            if not is_up:
                is_up = True
                self._retries = self._retries.running(now_s)
                self._report(InstanceState.RUNNING)
                reported_at_s = now_s
            if now_s - shared_at_s >= self._options.snapshot_interval_s:
                shared = self._share(_end_offsets(progress), run, shared)
                shared_at_s = now_s
            if now_s - reported_at_s >= REPORT_S:
                self._tally.behind = self._store.behind(_consumed(progress))
                self._report(InstanceState.RUNNING)
                reported_at_s = now_s

    def _count(self, progress: Any) -> None:
        if progress["numInputRows"]:
            # The source's rows with range markers hold two for each stream besides the messages.
            edges = 2 * sum(len(self.io.input_streams(p)) for p in self.io.partitions)
            overhead = edges if self.io.group.stateful else 0
            observed = progress["observedMetrics"].get(query.ROWS_OUT)
            rows, errors = (
                (int(observed[query.ROWS_OUT]), int(observed[query.ERRORS]))
                if observed is not None
                else (0, 0)
            )
            messages = max(0, int(progress["numInputRows"]) - overhead)
            took_ms = progress["durationMs"].get("triggerExecution")
            self._tally.count(messages, rows - errors, errors, took_ms)

    def _settle(self, halt: drain.Drain, places: drain.Places, run: Path) -> bool:
        """Store the reached state; False if the instance is not drained yet."""
        everywhere = dict.fromkeys(self.io.partitions, places)
        if not drain.has_no_output_beyond(self.io, run, everywhere, self._options.nats):
            # A killed predecessor may have read further, but not past the end of the streams.
            halt.advance(self._store.ends(places))
            return False
        if self._has_run(run) and self._share(places, run, None) is None:
            return False
        self._settled = {stream: place["sequence"] for stream, place in places.items()}
        return True

    def _has_run(self, run: Path) -> bool:
        """Whether a batch of this run has state; a stateless group has only a position."""
        local = (LocalState(run / str(p)) for p in self.io.partitions)
        return not self.io.group.stateful or any(one.has_run() for one in local)

    def _share(self, ends: drain.Places, run: Path, shared: Position | None) -> Position | None:
        """Store the snapshot of the last committed batch, unless it is already stored."""
        if not ends:
            return shared
        whole = Position.of(ends, ends)
        if whole == shared:
            return shared
        for partition in self.io.partitions:
            streams = self.io.input_streams(partition)
            position = Position.of(ends, streams)
            newest = newest_of({s: at for s, at in ends.items() if s in streams})
            if self.io.group.stateful:
                local = LocalState(run / str(partition))
                manifest = local.manifest(position)
                if manifest is None:
                    # Later batches have already dropped it; the next poll finds a newer one.
                    return shared
            else:
                manifest = Manifest(position, {}, {}, ())
                local = LocalState(run / str(partition))
            signed = snapshot_migration.sign_manifest(manifest, self.io.group)
            try:
                self._store.save(
                    self.io.part(partition),
                    replace(signed, newest=newest).to_bytes(),
                    {name: local.piece_path(name) for name in manifest.pieces},
                )
            except FileNotFoundError:
                return shared
        return whole

    def _report(self, state: InstanceState, error: str | None = None) -> None:
        self._tally.report(state, error, self._settled)


def start_offsets(io: InstanceIO, reached: Mapping[int, Position]) -> dict[str, dict[str, int]]:
    """Start offsets of an instance by JetStream stream; streams not named start at their beginning.

    If several partitions read a stream, the start is the lowest of their positions.  Each skips
    messages that it already processed.

    Input of earlier revisions of the group isn't read again.

    Args:
        io: of the instance.
        reached: the position of each partition with restored state; the others have none.
    """
    offsets: dict[str, dict[str, int]] = {}
    unread: set[str] = set()
    for partition in io.partitions:
        if partition not in reached:
            unread |= io.input_streams(partition).keys()
            continue
        for stream, offset in reached[partition].offsets.items():
            if stream not in offsets or offset["sequence"] < offsets[stream]["sequence"]:
                offsets[stream] = offset
    streams = {s for partition in io.partitions for s in io.input_streams(partition)}
    begun = {s: n for s, n in io.group.starts.items() if s in streams}
    found = {stream: offset for stream, offset in offsets.items() if stream not in unread}
    found = {s: {"sequence": n, "time_ms": 0} for s, n in begun.items()} | found
    for stream, sequence in io.assignment.start.items():
        if stream not in streams:
            continue
        if stream not in found or found[stream]["sequence"] < sequence:
            found[stream] = {"sequence": sequence, "time_ms": 0}
    return found


def with_newest(
    offsets: Mapping[str, dict[str, int]], starts: Sequence[Mapping[str, dict[str, int]]]
) -> dict[str, dict[str, int]]:
    """``offsets`` with the newest messages that snapshots at the same positions knew.

    The source compares them: a channel that lost its end may use the sequences again.

    Args:
        offsets: by JetStream stream.
        starts: the offsets of each snapshot, by JetStream stream.
    """
    return {
        stream: next((s[stream] for s in starts if s.get(stream, {}).items() >= at.items()), at)
        for stream, at in offsets.items()
    }


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


def _consumed(progress: Any) -> dict[str, int]:
    return {stream: offset["sequence"] for stream, offset in _end_offsets(progress).items()}


def is_nats_timeout(failure: Exception) -> bool:
    """Whether a failure is caused by a missing answer from NATS."""
    return isinstance(failure, TimeoutError) or UnavailableError.code in str(failure)


def _reason(failure: Exception) -> str:
    """The line of a failure that matters to users: Spark wraps it in traces of two languages."""
    lines = [line.strip().removeprefix(": ") for line in str(failure).splitlines()]
    # The first line of Py4J names a call by a meaningless number.
    lines = [line for line in lines if line and not line.startswith("An error occurred while")]
    ours = [line for line in lines if "[MESH-" in line or "PYSPARK-NATS" in line]
    python = [line for line in lines if "Error: " in line and not line.startswith(("at ", "File "))]
    # The error is the last line of Python's traces, and the first line of Spark's.
    return (ours[-1:] or python[-1:] or lines[:1] or [type(failure).__name__])[0][:500]
