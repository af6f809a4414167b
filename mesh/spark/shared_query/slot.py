"""A slot: the thread of one of Spark's Python processes that serves parts of the shared query.

Spark starts a task for each slot, and that task stays until its batch is over.  The work itself is
done by a thread of the same process, which continues between two batches.  So the border of a batch
is no pause.  The next task of the process finds the thread and stays in its turn.  A thread that no
task has found for a while ends.

A batch is thus an interval of Spark's progress reports, and no unit of work.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from mesh.spark.shared_query.at_work import AtWork, RemoteActivity
from mesh.spark.shared_query.serving import REPORT_S, Serving
from mesh.spark.shared_query.slot_network import DONE, Admit, Hello, Remove, Working, connect
from mesh.telemetry import traces
from pyspark_nats.protocol.connection import close_shared

if TYPE_CHECKING:
    from mesh.spark.shared_query.members import Outcome
    from mesh.spark.shared_query.slot_network import Command, Report, Secret
    from pyspark_nats.protocol.connection_options import ConnectionOptions

#: Longest wait for messages and commands, seconds.
_WAIT_S: Final = 0.5
#: Interval of looks for commands between the runs of a round, seconds.
_LOOK_S: Final = 0.005
#: Time after which a slot without a task ends, seconds.
_LEASE_S: Final = 30.0

_ARROW: Final[dict[str, pa.DataType]] = {"string": pa.string(), "long": pa.int64()}
_DONE: Final = pa.schema([pa.field(name, _ARROW[kind]) for name, kind in DONE.items()])


@dataclass(frozen=True, slots=True)
class SlotOptions:
    """Options of a slot."""

    #: Of the session, and the directory for files of the slot.
    address: str
    directory: str
    connection: ConnectionOptions
    #: Of a session on another machine; the slot has no directory then.
    secret: Secret | None = None
    #: Interval of the reports on a busy part, seconds.
    report_s: float = REPORT_S


class Slot:
    """The slot of this process."""

    def __init__(self, options: SlotOptions) -> None:
        """Connect to the session, and serve in a thread from now on."""
        self.options = options
        self.session = connect(options.address, options.secret)
        self._done: dict[tuple[str, str], Counter[str]] = {}
        self._lock = threading.Lock()
        #: Until when a task has found it, monotonic, seconds.
        self.lease_s = _LEASE_S
        self._leased_s = time.monotonic() + _LEASE_S
        self._has_task = False
        #: When it last looked for commands, monotonic, seconds.
        self._checked_s = 0.0
        self._ended = threading.Event()
        self._error: Exception | None = None
        self.thread = threading.Thread(target=self._run, name="slot", daemon=True)
        self.thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether it serves no longer."""
        return self._ended.is_set()

    def keep_alive(self, keep_alive_s: float) -> pa.RecordBatch:
        """Wait until the batch is over, or the slot has ended; what was done since the last one.

        Raises:
            UnavailableError: NATS remained unavailable; other errors that are no member's.
        """
        self._has_task = True
        try:
            self._ended.wait(keep_alive_s)
        finally:
            self._leased_s = time.monotonic() + self.lease_s
            self._has_task = False
        if self._error is not None:
            raise self._error
        with self._lock:
            done, self._done = self._done, {}
        rows = [{"instance": i, "part": p, **counts} for (i, p), counts in done.items()]
        return pa.RecordBatch.from_pylist(rows, schema=_DONE)

    def _run(self) -> None:
        try:
            self._serve()
        except EOFError:
            # The session needs it no longer.
            return
        except Exception as error:
            self._error = error
        finally:
            self.session.close()
            self._ended.set()

    def _serve(self) -> None:
        path = ""
        at_work: AtWork | RemoteActivity
        if self.options.secret is None:
            path = str(Path(self.options.directory) / f"at-work-{os.getpid()}")
            at_work = AtWork(Path(path))
        else:
            at_work = RemoteActivity(self._tell_work)
        options = self.options
        serving = Serving(options.connection, self._tell, at_work, report_s=options.report_s)
        self.session.send(Hello(os.getpid(), path))
        between = partial(self._obey, serving, _LOOK_S)
        try:
            while self._has_task or time.monotonic() < self._leased_s:
                # A wait looks for commands, too.
                self._checked_s = max(self._checked_s, serving.calm_s)
                self._obey(serving, _LOOK_S if serving.calm_s else 0.0)
                serving.round(_WAIT_S, self.session.fileno(), between=between)
                at_work.rest()
        finally:
            serving.close()
            close_shared()
            traces.flush()

    def _obey(self, serving: Serving, rest_s: float = 0.0) -> None:
        """Perform the commands that have come, if the last look for them is ``rest_s`` ago."""
        if time.monotonic() - self._checked_s < rest_s:
            return
        while self.session.poll():
            command: Command = self.session.recv()
            match command:
                case Admit(member, keys):
                    serving.admit(member, keys)
                case Remove(name):
                    serving.remove(name)
        self._checked_s = time.monotonic()

    def _tell(self, outcomes: tuple[Outcome, ...]) -> None:
        with self._lock:
            for one in outcomes:
                if one.messages or one.events_out or one.errors:
                    counts = self._done.setdefault((one.instance, one.part), Counter())
                    counts.update(
                        messages=one.messages,
                        events_in=one.events_in,
                        events_out=one.events_out,
                        errors=one.errors,
                        took_ms=round(one.took_ms),
                    )
        self.send(outcomes)

    def _tell_work(self, instance: str | None) -> None:
        self.send(Working(instance))

    def send(self, report: Report) -> None:
        """Send a report to the session.

        Raises:
            EOFError: it is gone.
        """
        try:
            self.session.send(report)
        except OSError as error:
            raise EOFError from error


_slot: Slot | None = None


def of_this_process(options: SlotOptions) -> Slot:
    """The slot of this process for ``options``; a new one if there is none."""
    global _slot
    if _slot is None or _slot.has_ended or _slot.options != options:
        _slot = Slot(options)
    return _slot
