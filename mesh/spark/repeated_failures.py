"""Last resort of an instance that fails the same way again and again: the message is found.

    failed 3 times ──▶ trial runs of its input, halved ──▶ one message ──▶ recorded, left out

The trials begin at the restored state, in a process of their own with bounded memory, which may
die.  They publish nothing.  A message is at fault if the part fails with it, does not fail up to
it, and does not fail when it is left out.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.functions.script_switch import SWITCH
from mesh.processes.bounded_process import BoundedProcess
from mesh.spark.instance_io import InstanceIO, RefusedMessage
from mesh.spark.shared_query import members
from mesh.spark.shared_query.members import UNANSWERED
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path
    from typing import Protocol

    from mesh.processes.bounded_process import Process
    from mesh.spark.shared_query.members import Offsets
    from pyspark_nats.decode.result import MessageLimits

    class Part(Protocol):
        """Trial runs of a part."""

        def look(self, at: Offsets | None, rows: int) -> tuple[Offsets, Offsets]:
            """See ``mesh.spark.trial.look``."""
            ...

        def run(
            self, at: Offsets, ends: Offsets, refused: tuple[RefusedMessage, ...], *, keeps: bool
        ) -> str:
            """See ``mesh.spark.trial.run``; the failure of a process that died as well."""
            ...


log = logging.getLogger(__name__)

#: Equal failures before the first search; a search that finds nothing doubles it.
_FAILURES: Final = 3
#: Messages of one trial at first, and those of which the one at fault is tried alone.
_ROWS: Final = 2048
_FEW: Final = 8
#: Messages that one search finds at most.
_FAULTS_MAX: Final = 16
#: Time of one trial and of a search, seconds; a session that stops waits for one trial.
_TRIAL_S: Final = 20.0
_SEARCH_S: Final = 120.0
#: Characters of a reason in the record.
_REASON_MAX: Final = 300
#: Failures for which no message is at fault.
_OTHERS: Final = (UNANSWERED, "PYSPARK-NATS", "[MESH-")
_NUMBER: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+")
_MODULE: Final = "mesh.spark.trial"


@dataclass(frozen=True, slots=True)
class TriedInstance:
    """Parts of an instance that a search needs."""

    io: InstanceIO
    #: Exclusive to it.
    directory: Path
    nats: Mapping[str, str]
    message: MessageLimits
    #: Whether its states, if it has any, are on this machine.
    has_states: bool
    #: Directory with its restored state.
    run: Path
    #: Restored positions by key of a part, and the parts with state.
    starts: Mapping[str, Offsets]
    restored: Collection[str]


@dataclass(frozen=True, slots=True)
class Trial:
    """A part of an instance, with a copy of its restored state."""

    io: InstanceIO
    key: str
    directory: str
    nats: Mapping[str, str]
    message: MessageLimits
    #: Its restored position; None for the first message of its streams.
    start: Offsets | None
    is_restored: bool


class _GivesUp(Exception):
    """The search ends without another message."""


def _died(detail: str) -> MeshError:
    return MeshError("MESH-S114", "a trial run ended its process", detail=detail)


def _process() -> Process:
    """A process for trials; functions run there if they run in this one."""
    switch = os.environ.get(SWITCH)
    return BoundedProcess(_MODULE, _died, {} if switch is None else {SWITCH: switch})


@dataclass(eq=False, repr=False)
class RepeatedFailures:
    """The failures of one instance, in whichever query it runs, and the messages at fault."""

    process: Callable[[], Process] = _process
    #: Messages that its runs leave out and record.
    refused: tuple[RefusedMessage, ...] = ()
    _last: str = ""
    _count: int = 0
    _due_at: int = _FAILURES

    def note(self, reason: str) -> None:
        """Record a failure."""
        if any(sign in reason for sign in _OTHERS):
            return
        # Spark's reasons have numbers of tasks, and ids of queries, which differ.
        same = _NUMBER.sub("#", reason)
        self._count = self._count + 1 if same == self._last else 1
        self._last = same

    @property
    def is_due(self) -> bool:
        """Whether it has failed often enough for a search."""
        return self._count >= self._due_at

    def io_of(self, instance: TriedInstance, is_over: Callable[[], bool]) -> InstanceIO:
        """The instance's inputs and outputs, without the messages at fault.

        They are looked for if that is due, from the restored positions on; this blocks.

        Args:
            instance: what a search needs of it.
            is_over: whether the instance is to stop.
        """
        if self.is_due:
            self._search(instance, is_over)
        return replace(instance.io, refused=self.refused)

    def _search(self, instance: TriedInstance, is_over: Callable[[], bool]) -> None:
        faults: list[RefusedMessage] = []
        process, clock = self.process(), SystemClock()
        ends_s = clock.monotonic_s() + _SEARCH_S

        def ends() -> bool:
            return is_over() or clock.monotonic_s() > ends_s

        try:
            for part in _parts(instance, process):
                before = (*self.refused, *faults)
                faults += search(part, before, f"{self._count} times", ends)
        # Of NATS, or of the state: later failures lead to another search.
        except Exception as error:
            extra = fields(instance=instance.io.assignment.instance, error=error)
            log.warning("search for a message at fault failed", extra=extra)
        finally:
            process.stop()
        self.refused = (*self.refused, *faults)
        self._count, self._due_at = 0, _FAILURES if faults else 2 * self._due_at
        for one in faults:
            extra = fields(
                instance=instance.io.assignment.instance,
                stream=one.js_stream,
                sequence=one.sequence,
                reason=one.reason,
            )
            log.error("message is at fault, recorded and left out", extra=extra)


def search(
    part: Part,
    refused: tuple[RefusedMessage, ...],
    times: str,
    is_over: Callable[[], bool] = lambda: False,
) -> list[RefusedMessage]:
    """The messages at which a part fails, in order, up to the present end of its input.

    Args:
        part: trial runs.
        refused: messages known before.
        times: how often the instance has failed, for the reasons.
        is_over: whether to end early.
    """
    faults: list[RefusedMessage] = []
    at: Offsets | None = None
    try:
        while len(faults) < _FAULTS_MAX:
            begin, ends = part.look(at, _ROWS)
            if is_over() or ends == begin:
                break
            all_refused = (*refused, *faults)
            failure = part.run(begin, ends, all_refused, keeps=True)
            if failure:
                faults.append(_at_fault(part, begin, ends, all_refused, times, failure, is_over))
            else:
                at = ends
    except _GivesUp:
        pass
    return faults


def _at_fault(
    part: Part,
    begin: Offsets,
    ends: Offsets,
    refused: tuple[RefusedMessage, ...],
    times: str,
    failure: str,
    is_over: Callable[[], bool],
) -> RefusedMessage:
    """The first message with which a failing range fails."""
    low, high, before = 0, _distance(begin, ends), begin
    while high - low > 1:
        if is_over():
            raise _GivesUp
        middle = (low + high) // 2
        _, reached = part.look(begin, middle)
        said = part.run(begin, reached, refused, keeps=False)
        if said:
            high, ends, failure = middle, reached, said
        else:
            low, before = middle, reached
    candidates = [
        (stream, sequence)
        for stream, end in ends.items()
        for sequence in range(before[stream]["sequence"] + 1, end["sequence"] + 1)
    ]
    if len(candidates) > _FEW:
        raise _GivesUp
    for stream, sequence in candidates:
        reason = f"the instance failed {times} at this message: {failure}"[:_REASON_MAX]
        one = RefusedMessage(stream, sequence, reason)
        if is_over():
            raise _GivesUp
        if not part.run(begin, ends, (*refused, one), keeps=False):
            return one
    raise _GivesUp


def _distance(begin: Offsets, ends: Offsets) -> int:
    return sum(end["sequence"] - begin[name]["sequence"] for name, end in ends.items())


@dataclass(frozen=True, slots=True)
class _PartProcess:
    """Trial runs of a part in a bounded process."""

    trial: Trial
    process: Process
    clock: SystemClock = field(default_factory=SystemClock)

    def look(self, at: Offsets | None, rows: int) -> tuple[Offsets, Offsets]:
        """See ``Part.look``."""
        bounds: tuple[Offsets, Offsets] = self.process.call(
            _TRIAL_S, f"{_MODULE}:look", self.trial, at, rows
        )
        return bounds

    def run(
        self, at: Offsets, ends: Offsets, refused: tuple[RefusedMessage, ...], *, keeps: bool
    ) -> str:
        """See ``Part.run``; a trial without an end in time says nothing."""
        began_s = self.clock.monotonic_s()
        try:
            call = f"{_MODULE}:run"
            said: str = self.process.call(_TRIAL_S, call, self.trial, at, ends, refused, keeps)
        except MeshError as error:
            if error.code != "MESH-S114":
                raise
            if self.clock.monotonic_s() - began_s >= _TRIAL_S:
                raise _GivesUp from error
            return error.detail or str(error)
        return said


def _parts(instance: TriedInstance, process: Process) -> Iterator[_PartProcess]:
    if not instance.has_states:
        return
    for key in members.partition_keys(instance.io):
        copy = instance.directory / "trial"
        shutil.rmtree(copy, ignore_errors=True)
        # States of other parts, and later ones, are not its own.
        shutil.copytree(instance.run, copy) if instance.run.exists() else copy.mkdir(parents=True)
        try:
            trial = Trial(
                instance.io,
                key,
                str(copy),
                instance.nats,
                instance.message,
                instance.starts.get(key),
                key in instance.restored,
            )
            yield _PartProcess(trial, process)
        finally:
            shutil.rmtree(copy, ignore_errors=True)
