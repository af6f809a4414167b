"""Life cycle of an instance on its worker: events in, instructions out.

``InstanceLifecycle`` decides when an instance restores its snapshot, runs, drains, waits after a
failure, moves to a query of its own, and ends.  There is no I/O, no clock and no thread.  A driver
passes each event and performs the instructions in order; there is one for each mode
(``mesh.spark.shared_query.instance`` and ``mesh.spark.dedicated_query.instance``).

    NEW -> RESTORING -> JOINING -> RUNNING -> LEAVING -> SETTLING -> STOPPED
              ^  ^         ^---------------------------------'
              |  '-- RESTING <- a failure in any of them
              '----- ISOLATED, from RESTORING or RESTING; only in the shared query

A driver does one thing at a time: it restores, runs input, settles, waits, or watches the query
of an isolated instance.  Each phase names that thing, and each ends with one of the events that the
table in ``InstanceLifecycle._take`` lists for it.

Isolation policy: decides when an instance moves to a dedicated query, and for how long.

Reasons: its streams time out (UNANSWERED), or a slot was working for it when it crashed or hung
(SUSPECT).  Pure; ``instance_lifecycle`` asks it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from mesh.model.cluster import InstanceState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.control.retries import Retries
    from mesh.model.cluster import InstanceStatus


#: An instance is isolated if a stream does not answer twice within this time, seconds.
UNANSWERED_S: Final = 120.0
#: Longest error in a report, characters.
_ERROR_MAX: Final = 500
_BEYOND: Final = (
    "output exists beyond the last committed input position; restore a backup or reset the group"
)

#: Time after which an instance returns whose streams didn't answer.
_ANSWERED_S: Final = 60.0
#: The same for an instance that was running when the query failed; doubles with each failure.
_TRUSTED_S: Final = 600.0


class IsolationReason(Enum):
    """Reason for which an instance is isolated."""

    UNANSWERED = "a stream does not answer it"
    SUSPECT = "it was running when the shared query failed"


@dataclass(slots=True)
class IsolationPeriod:
    """Duration of an isolation, by its reason."""

    why: IsolationReason
    #: Number of isolations for the same reason.
    times: int = 1
    #: Start of the current healthy phase, and the restarts seen then.
    _since_s: float | None = None
    _restarts: int = -1

    def is_over(self, status: InstanceStatus, now_s: float) -> bool:
        """Whether the instance may return to the shared query.

        Args:
            status: the present report of its query.
            now_s: monotonic.
        """
        if status.state is not InstanceState.RUNNING:
            self._since_s = None
            return False
        if self._since_s is None or status.restarts != self._restarts:
            self._since_s, self._restarts = now_s, status.restarts
        return now_s - self._since_s >= self._length_s

    @property
    def _length_s(self) -> float:
        match self.why:
            case IsolationReason.UNANSWERED:
                return _ANSWERED_S
            case IsolationReason.SUSPECT:
                return _TRUSTED_S * 2.0 ** (self.times - 1)


# --- events


@dataclass(frozen=True, slots=True)
class Started:
    """The instance is to run."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The instance is to end; ``drains`` if it may first reach a point where others continue."""

    drains: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """``Restore`` is done."""


@dataclass(frozen=True, slots=True)
class Up:
    """All of its input is being read."""


@dataclass(frozen=True, slots=True)
class Left:
    """It reads no more: ``Leave`` is done, or it has reached ``until``."""


@dataclass(frozen=True, slots=True)
class Settled:
    """``Settle`` is done; the drained position by JetStream stream, None if it did not drain."""

    position: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Some output stems from later input.

    ``until`` is where to read to, by JetStream stream; None if there is nothing more to read.
    """

    until: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The present activity has failed, and has ended."""

    reason: str
    #: It failed for lack of an answer, after a timeout.
    has_waited: bool = False
    #: A stream did not answer, though the server did.
    is_unanswered: bool = False
    #: It was at work when the query of many instances failed.
    is_suspect: bool = False


@dataclass(frozen=True, slots=True)
class QueryLost:
    """The query that ran it has ended, and not because of this instance."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A newer epoch has taken over; ``has_ended`` if it reads no more."""

    reason: str
    has_ended: bool


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class IsolatedReported:
    """Report of its dedicated query; the last one says ``STOPPED``."""

    status: InstanceStatus


Event = (
    Started
    | StopRequested
    | Restored
    | Up
    | Left
    | Settled
    | Unsettled
    | Failed
    | QueryLost
    | Replaced
    | Ticked
    | IsolatedReported
)


# --- instructions


@dataclass(frozen=True, slots=True)
class Restore:
    """Fetch the last snapshot; answer ``Restored``."""


@dataclass(frozen=True, slots=True)
class Run:
    """Read and process input; answer ``Up``, and ``Left`` when ``until`` is reached.

    ``continues`` if it was ``Unsettled``: from its present position, not from the snapshot's.
    """

    until: Mapping[str, int] | None
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Leave:
    """Read no more; answer ``Left``, and ``at_once`` without waiting for a common position."""

    at_once: bool


@dataclass(frozen=True, slots=True)
class Settle:
    """Store the state; answer ``Settled``.

    If it ``drains``, compare its position with its output first, and answer ``Unsettled`` if there
    is output beyond it.
    """

    drains: bool


@dataclass(frozen=True, slots=True)
class Isolate:
    """Run it in a dedicated query; answer with that query's reports."""

    why: IsolationReason


@dataclass(frozen=True, slots=True)
class StopIsolated:
    """Stop its dedicated query."""

    drains: bool


@dataclass(frozen=True, slots=True)
class Relay:
    """Report what its dedicated query reported."""

    status: InstanceStatus


@dataclass(frozen=True, slots=True)
class ReportState:
    """Report the state, error, drained position and rest, as they are now."""


@dataclass(frozen=True, slots=True)
class End:
    """Delete what only this run needed, and report ``STOPPED``."""


Instruction = Restore | Run | Leave | Settle | Isolate | StopIsolated | Relay | ReportState | End


class Phase(Enum):
    """Present activity of an instance."""

    NEW = "new"
    #: Its last snapshot is being fetched.
    RESTORING = "restoring"
    #: Its input is being opened.
    JOINING = "joining"
    RUNNING = "running"
    #: It was asked to read no more.
    LEAVING = "leaving"
    #: It reads no more; its state is stored, and its output compared with its position.
    SETTLING = "settling"
    #: It waits after a failure.
    RESTING = "resting"
    #: A dedicated query runs it.
    ISOLATED = "isolated"
    STOPPED = "stopped"


_READS: Final = (Phase.JOINING, Phase.RUNNING, Phase.LEAVING)
_WORKS: Final = (Phase.RESTORING, *_READS, Phase.SETTLING)


@dataclass(eq=False, repr=False)
class InstanceLifecycle:
    """Life cycle of one instance, in one epoch."""

    _retries: Retries
    #: Time limit for a stopped instance to drain, seconds.
    _settle_s: float
    #: The sequences at which it drains and ends by itself, by JetStream stream.
    _until: Mapping[str, int] | None = None
    phase: Phase = Phase.NEW
    #: State, error, drained position, failures and rest (seconds) for reports.
    state: InstanceState = InstanceState.STARTING
    error: str | None = None
    settled: Mapping[str, int] | None = None
    failures: int = 0
    rest_s: float | None = None
    _stopping: bool = False
    _is_replaced: bool = False
    #: Deadline for draining once the instance is to stop.
    _settles_until_s: float = float("inf")
    #: Whether it has read input since it was restored.
    _was_up: bool = False
    _retry_at_s: float = 0.0
    _unanswered_at_s: float = -float("inf")
    _suspected: int = 0
    #: Reason and duration of the isolation that is due or present.
    _term: IsolationPeriod | None = None
    _instructions: list[Instruction] = field(default_factory=list)

    def __repr__(self) -> str:
        stopping = ", stopping" if self._stopping else ""
        return f"InstanceLifecycle({self.phase.value}{stopping})"

    @property
    def is_stopping(self) -> bool:
        """Whether its end was requested."""
        return self._stopping

    def handle(self, event: Event, now_s: float) -> list[Instruction]:
        """Respond to one event with what the driver does now, in order.

        Args:
            event: what happened.
            now_s: the time, monotonic, seconds.

        Raises:
            RuntimeError: the event is impossible in this phase, so the driver is wrong.
        """
        self._instructions = []
        self._take(event, now_s)
        return self._instructions

    def _take(self, event: Event, now_s: float) -> None:
        match event, self.phase:
            # First, as it comes four times a second, for each instance that is not at rest.
            case Ticked(), _:
                self._tick(now_s)
            case Started(), Phase.NEW:
                self._report(InstanceState.STARTING)
                self._restore()
            case StopRequested(), _:
                self._stop(event, now_s)
            case Restored(), Phase.RESTORING:
                if self._stopping and (self._until is None or not self._may_settle(now_s)):
                    # An instance that has never run has nothing to drain.
                    self._end()
                else:
                    self._was_up = False
                    self._run()
            case Up(), Phase.JOINING:
                self._was_up = True
                self.phase = Phase.RUNNING
                self._retries = self._retries.running(now_s)
                self._report(InstanceState.RUNNING)
            case Up(), Phase.RUNNING | Phase.LEAVING:
                self._was_up = True
            case Left(), Phase.JOINING | Phase.RUNNING | Phase.LEAVING:
                ends = self._stopping or self._until is not None
                self.phase = Phase.SETTLING
                self._do(Settle(ends and self._was_up and self._may_settle(now_s)))
            case Settled(), Phase.SETTLING:
                self.settled = event.position
                if self._stopping or event.position is not None:
                    self._end()
                else:
                    self._restore()
            case Unsettled(), Phase.SETTLING:
                if event.until is None:
                    self._fail(Failed(_BEYOND), now_s)
                elif not self._may_settle(now_s):
                    self._end()
                else:
                    self._until = event.until
                    self._run(continues=True)
            case Failed(), phase if phase in _WORKS:
                self._fail(event, now_s)
            case QueryLost(), phase if phase in _READS:
                self._restore_or_end()
            case Replaced(), phase if phase is not Phase.STOPPED:
                self._replace(event)
            case IsolatedReported(), Phase.ISOLATED:
                self._hear(event.status, now_s)
            # A stop that came first, or a query that fails while none of its input is read.
            case (Started() | Replaced(), Phase.STOPPED) | (QueryLost(), _):
                pass
            case _:
                raise RuntimeError(f"{event} in {self}")

    # --- events

    def _stop(self, event: StopRequested, now_s: float) -> None:
        self._stopping = True
        limit_s = now_s + self._settle_s if event.drains else 0.0
        self._settles_until_s = min(self._settles_until_s, limit_s)
        match self.phase:
            case Phase.NEW | Phase.RESTING:
                self._end()
            case Phase.JOINING | Phase.RUNNING | Phase.LEAVING:
                # An instance that already drains continues, while there is time.
                drains_already = self._until is not None or self.phase is Phase.LEAVING
                if not (event.drains and drains_already):
                    self._leave(at_once=not (event.drains and self._was_up))
            case Phase.ISOLATED:
                self._do(StopIsolated(event.drains))
            case Phase.STOPPED:
                self._report(InstanceState.STOPPED)
            case Phase.RESTORING | Phase.SETTLING:
                pass

    def _fail(self, event: Failed, now_s: float) -> None:
        if self._is_replaced:
            # Why it failed does not matter.
            self._end()
            return
        self.failures += 1
        self.error = event.reason[:_ERROR_MAX]
        if event.is_unanswered:
            if now_s - self._unanswered_at_s < UNANSWERED_S:
                self._term = IsolationPeriod(IsolationReason.UNANSWERED)
            self._unanswered_at_s = now_s
        if event.is_suspect:
            self._suspected += 1
            self._term = IsolationPeriod(IsolationReason.SUSPECT, self._suspected)
        self._retries = self._retries.failed(now_s, has_waited=event.has_waited)
        if self._stopping:
            self._end()
            return
        self.phase = Phase.RESTING
        self._retry_at_s = now_s + self._retries.rest_s
        self._report(InstanceState.RETRYING, self._retries.rest_s)

    def _replace(self, event: Replaced) -> None:
        """End for good.  What the instance does now ends with an event of its own."""
        if self.phase is Phase.ISOLATED:
            # An earlier run in the shared query says so; its dedicated query finds out by itself.
            return
        self._stopping = self._is_replaced = True
        self._settles_until_s = 0.0
        self.error = event.reason[:_ERROR_MAX]
        if event.has_ended or self.phase in (Phase.NEW, Phase.RESTING):
            self._end()
        elif self.phase in _READS:
            self._leave(at_once=True)

    def _tick(self, now_s: float) -> None:
        match self.phase:
            case Phase.RESTING if now_s >= self._retry_at_s:
                self._restore_or_end()
            case Phase.JOINING | Phase.RUNNING | Phase.LEAVING:
                if self._stopping and not self._may_settle(now_s):
                    self._leave(at_once=True)
            case _:
                pass

    def _hear(self, status: InstanceStatus, now_s: float) -> None:
        if status.state is InstanceState.STOPPED:
            self.error = status.error
            # A query that ended unasked was replaced by a newer epoch, or has drained.
            if not self._stopping and self._term is None and self._until is None:
                self._restore()
                return
            if status.settled:
                self.settled = status.position
            self._end()
            return
        if status.state is InstanceState.RUNNING:
            self._retries = self._retries.running(now_s)
        self._do(Relay(status))
        if self._term is not None and self._term.is_over(status, now_s):
            self._term = None
            # The drain stores the state, so that little is processed again.
            self._do(StopIsolated(drains=True))

    # --- phases

    def _restore(self) -> None:
        self.phase = Phase.RESTORING
        self._do(Restore())

    def _restore_or_end(self) -> None:
        if self._stopping:
            self._end()
        elif self._term is not None:
            self.phase = Phase.ISOLATED
            self._do(Isolate(self._term.why))
        else:
            self._restore()

    def _run(self, *, continues: bool = False) -> None:
        self.phase = Phase.JOINING
        self._do(Run(self._until, continues))

    def _leave(self, *, at_once: bool) -> None:
        self.phase = Phase.LEAVING
        self._do(Leave(at_once))

    def _end(self) -> None:
        self.phase = Phase.STOPPED
        self.state, self.rest_s = InstanceState.STOPPED, None
        self._do(End())

    def _report(self, state: InstanceState, rest_s: float | None = None) -> None:
        self.state, self.rest_s = state, rest_s
        self._do(ReportState())

    def _do(self, instruction: Instruction) -> None:
        self._instructions.append(instruction)

    def _may_settle(self, now_s: float) -> bool:
        return now_s < self._settles_until_s
