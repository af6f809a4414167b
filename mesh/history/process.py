"""The process that runs a history: an order on standard input, reports on standard output.

It stores nothing: the manager does, and gives it a login of NATS only for past events in a stream.
The manager answers with a byte when it has stored a checkpoint.  The process ends when its input is
closed, that is, with its manager.  Another process continues from its last checkpoint.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.history.checkpoint import Checkpoints, mark_of
from mesh.history.reader import reader_of
from mesh.history.run import HistoryRun
from mesh.model import codec
from mesh.model.history import HistoryReport, HistoryTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mesh.history.rows import PastRows

#: Interval of reports, seconds.
_REPORT_S: Final = 1.0
#: It yields to its manager when cores are busy.
_NICE: Final = 5


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
    checkpoints = Checkpoints(task, mark_of(task, opened), is_pending)
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
