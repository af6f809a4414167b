"""The process that runs a history: an order on standard input, reports on standard output.

It has no login of NATS: the manager stores what it writes.  It ends when its input is closed, that
is, with its manager; nothing that it has written is used then.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from mesh.errors import MeshError
from mesh.history.files import HistoryFiles
from mesh.history.run import HistoryRun
from mesh.model import codec
from mesh.model.history import HistoryReport, HistoryTask

if TYPE_CHECKING:
    from collections.abc import Callable

#: Interval of reports, seconds.
_REPORT_S: Final = 1.0
#: It yields to its manager when cores are busy.
_NICE: Final = 5


def run(task: HistoryTask, report: Callable[[HistoryReport], None]) -> None:
    """Run a history; the last report has its states.

    Raises:
        MeshError: MESH-C161 for files that can't be used.
    """
    history = HistoryRun(task)
    files = HistoryFiles(task.root, task.path, history.schema, task.time)
    now = HistoryReport(of=files.count())
    began_s = told_s = time.monotonic()
    for given in files.batches():
        rows, time_ms = given.rows, given.time_ms
        if task.before_ms is not None and not (is_past := time_ms < task.before_ms).all():
            rows, time_ms = rows.filter(pa.array(is_past)), time_ms[np.flatnonzero(is_past)]
        if rows.num_rows:
            history.take(rows, time_ms)
        later = now.later + given.rows.num_rows - rows.num_rows
        done, at_s = now.rows + rows.num_rows, time.monotonic()
        rate = done / max(at_s - began_s, 1e-3)
        now = replace(now, rows=done, later=later, rows_per_s=round(rate))
        if at_s - told_s >= _REPORT_S:
            told_s = at_s
            report(now)
    states = tuple(history.states())
    report(
        replace(now, is_done=True, states=states, emitted=history.emitted, failed=history.failed)
    )


def main() -> int:
    """Serve one order."""
    os.nice(_NICE)
    with suppress(OSError):
        # Rather than the manager, when memory is short.
        Path("/proc/self/oom_score_adj").write_text("900")
    task = codec.decode(HistoryTask, sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()

    def report(one: HistoryReport) -> None:
        sys.stdout.buffer.write(codec.encode(one) + b"\n")
        sys.stdout.buffer.flush()

    try:
        run(task, report)
    except MeshError as error:
        report(HistoryReport(error=error.to_dict()))
        return 1
    return 0


def _end_with_input() -> None:
    # Not by the buffered reader, whose lock would be held when the interpreter ends.
    while os.read(0, 1):
        pass
    os._exit(2)


if __name__ == "__main__":
    sys.exit(main())
