"""The process that runs a history: an order on standard input, reports on standard output.

It stores nothing: the manager does, and gives it a login of NATS only for past events in a stream.
The manager answers with a byte when it has stored a checkpoint.  The process ends when its input is
closed, that is, with its manager.  Another process continues from its last checkpoint.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import mesh
from mesh.errors import MeshError
from mesh.history.iceberg import HistoryIceberg
from mesh.history.run import HistoryRun
from mesh.history.streams import HistoryFiles, history_stream
from mesh.history.tables import HistoryTable
from mesh.model import codec
from mesh.model.history import HistoryCheckpoint, HistoryReport, HistoryTask
from mesh.plan import history_addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from mesh.history.rows import PastRows
    from mesh.model.app import Channel
    from mesh.model.history import HistoryInput


#: Interval of reports, seconds.
_REPORT_S: Final = 1.0
#: Part of the time that goes into checkpoints at most.
_SHARE: Final = 0.05
#: It yields to its manager when cores are busy.
_NICE: Final = 5


class PastReader(Protocol):
    """Past events of one stream, in their order."""

    def count(self) -> int:
        """The number of rows; 0 if it is not known without reading them."""
        ...

    def batches(self, place: int = 0) -> Iterator[PastRows]:
        """All rows after a place; MESH-C161 where they can't be read.

        It is that of earlier rows; for a reader that counts, their number.
        """
        ...

    def contents(self) -> str:
        """A text that is another one as soon as the rows may be others."""
        ...


def reader_of(task: HistoryTask, entry: HistoryInput, channels: Sequence[Channel]) -> PastReader:
    """The reader of an input, whose events enter by ``channels``; MESH-C161 for what is none."""
    if history_addresses.is_stream(entry.path):
        return history_stream(task, entry, channels)
    return table_reader(task.root, entry, channels[0].stream.arrow, task.spec.name)


def table_reader(root: str, entry: HistoryInput, schema: pa.Schema, app: str = "") -> PastReader:
    """The reader of files or a table with these columns; MESH-C161 for what is none."""
    if history_addresses.is_iceberg(entry.path):
        return HistoryIceberg(history_addresses.iceberg_of(root, entry.path), schema, entry.time)
    if history_addresses.is_table(entry.path):
        place = history_addresses.table_of(root, entry.path)
        return HistoryTable(place, schema, entry.time, app)
    return HistoryFiles(root, entry.path, schema, entry.time)


@dataclass
class _Source:
    """The rows of one input that are not run yet."""

    stream: str
    before_ms: int | None
    batches: Iterator[PastRows]
    #: Where the reader is, and the highest time of the rows that were run.
    place: int = 0
    watermark_ms: int = 0
    is_ended: bool = False

    def next(self) -> tuple[PastRows, int] | None:
        """The next rows before the end of the history, and how many were later; None at its end."""
        batch = next(self.batches, None)
        if batch is None:
            self.is_ended = True
            return None
        self.place = self.place + len(batch) if batch.place is None else batch.place
        past = batch if self.before_ms is None else batch.before(self.before_ms)
        if len(past):
            self.watermark_ms = max(self.watermark_ms, int(past.time_ms.max()))
        return past, len(batch) - len(past)


def _mark_of(task: HistoryTask, readers: Sequence[PastReader]) -> str:
    """The digest of a history."""
    digest = hashlib.sha256(mesh.__version__.encode())
    for one in (task.spec, *task.inputs):
        digest.update(codec.encode(one) + b"\0")
    for reader in readers:
        digest.update(reader.contents().encode() + b"\0")
    return digest.hexdigest()


class _Checkpoints:
    """The checkpoints of one process: states after a batch of rows, and where its inputs are.

    A checkpoint is of one history: another app, other inputs or other rows in them have another
    mark, and are run from the beginning.  Between two checkpoints most pieces of a state are the
    same files.

    Args:
        task: its order.
        mark: of the history, by ``_mark_of``.
        is_pending: set here when one is made, until the manager has stored it.
    """

    def __init__(self, task: HistoryTask, mark: str, is_pending: threading.Event) -> None:
        checkpoint = task.checkpoint
        #: Where the process begins; None for the beginning.
        self.begun = checkpoint if checkpoint is not None and checkpoint.mark == mark else None
        self._task, self._mark, self._is_pending = task, mark, is_pending
        self._due_s = time.monotonic() + task.checkpoint_s

    def is_due(self, at_s: float) -> bool:
        """Whether it is time for one, and the manager no longer reads files of the one before."""
        return at_s >= self._due_s and not self._is_pending.is_set()

    def create(
        self, history: HistoryRun, now: HistoryReport, places: Sequence[tuple[int, int]]
    ) -> HistoryCheckpoint:
        """A checkpoint, when one is due, in the place of the one before.

        Args:
            history: as far as it was run.
            now: its counts.
            places: that of the reader, and the highest time, of each input.
        """
        self._is_pending.set()
        began_s = time.monotonic()
        states = tuple(history.states(of_all=True))
        self._drop_old({path for state in states for path in state.pieces.values()})
        ended_s = time.monotonic()
        self._due_s = ended_s + max(self._task.checkpoint_s, (ended_s - began_s) / _SHARE)
        return HistoryCheckpoint(
            self._mark, now.rows, now.later, history.emitted, history.failed,
            tuple(place for place, _ in places), tuple(ms for _, ms in places),
            history.watermarks_ms(), history.seen(), states, now.unreadable,
        )  # fmt: skip

    def _drop_old(self, named: set[str]) -> None:
        """Remove files that this checkpoint does not name."""
        for path in Path(self._task.directory).glob("*/*/*.arrow"):
            if str(path) not in named:
                path.unlink()


def run(
    task: HistoryTask, report: Callable[[HistoryReport], None], is_pending: threading.Event
) -> None:
    """Run a history; the last report has its states.

    The input that is known least far is read next, so that few events wait for those of others.
    Where it stands after a batch of rows is all that a checkpoint has to hold.

    Args:
        task: the order.
        report: receives the reports.
        is_pending: set with each checkpoint; the caller clears it when that is stored.

    Raises:
        MeshError: MESH-C161 for inputs that can't be used.
    """
    history = HistoryRun(task)
    opened = [reader_of(task, one, history.entrances(one.stream)) for one in task.inputs]
    counts = [one.count() for one in opened]
    now = HistoryReport(of=sum(counts) if all(counts) else 0)
    places, watermarks_ms = [0] * len(opened), [0] * len(opened)
    checkpoints = _Checkpoints(task, _mark_of(task, opened), is_pending)
    if (begun := checkpoints.begun) is not None:
        history.restore(begun)
        places, watermarks_ms = list(begun.places), list(begun.known_ms)
        now = replace(
            now, rows=begun.rows, later=begun.later, unreadable=begun.unreadable,
            resumed=begun.rows,
        )  # fmt: skip
    sources = [
        _Source(entry.stream, task.before_ms.get(entry.stream), one.batches(place), place, ms)
        for entry, one, place, ms in zip(task.inputs, opened, places, watermarks_ms, strict=True)
    ]
    began_s = reported_s = time.monotonic()
    while waiting := [one for one in sources if not one.is_ended]:
        source = min(waiting, key=lambda one: one.watermark_ms)
        batch = source.next()
        if batch is not None:
            past, later = batch
            if len(past):
                history.take(source.stream, past)
            now = replace(
                now, rows=now.rows + len(past), later=now.later + later,
                unreadable=now.unreadable + past.unreadable,
            )  # fmt: skip
        if len(sources) > 1:
            _pass_time(history, sources, source)
        at_s = time.monotonic()
        rate = (now.rows - now.resumed) / max(at_s - began_s, 1e-3)
        now = replace(now, rows_per_s=round(rate))
        if batch is not None and checkpoints.is_due(at_s):
            reached = [(one.place, one.watermark_ms) for one in sources]
            report(replace(now, checkpoint=checkpoints.create(history, now, reached)))
        elif at_s - reported_s >= _REPORT_S:
            reported_s = at_s
            report(now)
    history.finish(max(one.watermark_ms for one in sources))
    states = tuple(history.states())
    report(
        replace(now, is_done=True, states=states, emitted=history.emitted, failed=history.failed)
    )


def _pass_time(history: HistoryRun, sources: Sequence[_Source], source: _Source) -> None:
    """Say how far inputs are known: one that has ended is known as far as the others."""
    least = min(sources, key=lambda one: (one.is_ended, one.watermark_ms))
    last = max(sources, key=lambda one: one.watermark_ms)
    reached = last.watermark_ms if least.is_ended else least.watermark_ms
    for one in sources:
        if one.is_ended and one.watermark_ms < reached:
            one.watermark_ms = reached
        elif one is not source:
            continue
        history.pass_time(one.stream, one.watermark_ms)


def main() -> int:
    """Serve one order."""
    os.nice(_NICE)
    with suppress(OSError):
        # Rather than the manager, when memory is short.
        Path("/proc/self/oom_score_adj").write_text("900")
    task = codec.decode(HistoryTask, sys.stdin.buffer.readline())
    is_pending = threading.Event()
    threading.Thread(target=_follow_input, args=(is_pending,), daemon=True).start()

    def report(one: HistoryReport) -> None:
        sys.stdout.buffer.write(codec.encode(one) + b"\n")
        sys.stdout.buffer.flush()

    try:
        run(task, report, is_pending)
    except MeshError as error:
        report(HistoryReport(error=error.to_dict()))
        return 1
    return 0


def _follow_input(is_pending: threading.Event) -> None:
    # Not by the buffered reader, whose lock would be held when the interpreter ends.
    while os.read(0, 1):
        is_pending.clear()
    os._exit(2)


if __name__ == "__main__":
    sys.exit(main())
