"""State machine of a manager's loop: candidate for election, and active while it leads.

There is no I/O, no clock and no asyncio.  A shell passes each event with its present snapshot and
performs the instructions in order; the last one, and only that, has an event as its result.  The
shells are ``mesh.manager.manager`` and the simulator's ``nodes``.

A removal of streams and states may take minutes.  It runs beside the loop, so that the lease is
renewed meanwhile, and its end is not an event: the shell calls ``removal_ended``.

    WATCHING -> ELECTING -> WATCHING              another manager leads
    WATCHING -> ELECTING -> ACTING -> WATCHING    it leads; ELECTING is skipped without a write
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from mesh.control import election, reconcile
from mesh.control.actions import RemoveApp, Retire, target_of
from mesh.control.journal import JournalEntry, of_action, of_failure, of_refusal
from mesh.control.retries import Retries
from mesh.model.cluster import LeaseRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mesh.control.actions import Action, RecordAction, Removal
    from mesh.control.snapshot import ClusterSnapshot
    from mesh.settings import Settings

#: Shortest wait, seconds: a deadline may have passed by rounding alone.
WAIT_S: Final = 0.01
#: A deadline that was reached by less may not have counted, by rounding.
ROUNDING_S: Final = 0.001
#: Wait after a refused write of the lease, until the watch delivers the winner, seconds.
CONFLICT_S: Final = 0.1
#: Wait after a write of the lease without an answer, seconds.
UNANSWERED_S: Final = 0.2
#: A decision without actions is made again after this time, whatever has happened, seconds.
AGAIN_S: Final = 10.0
#: The first rest of a failed action, and the longest, seconds.
FIRST_REST_S: Final = 1.0
LONGEST_REST_S: Final = 30.0


class ManagerPhase(StrEnum):
    """The work of a manager."""

    #: Waits for news, or for a time.
    WATCHING = "watching"
    #: Writes the lease.
    ELECTING = "electing"
    #: Performs the leader's actions, one after the other.
    ACTING = "acting"


class LapsedAction(StrEnum):
    """The reason why an action, and the rest of its decision, lapsed; text for the journal."""

    #: Not even tried: ``ManagerState.may_write`` was false.
    LAPSED = "its lease had lapsed"
    REFUSED = "another manager holds the lease"
    UNANSWERED = "NATS did not answer"


# --- events


@dataclass(frozen=True, slots=True)
class Observed:
    """The view has news, or the wait is over."""


@dataclass(frozen=True, slots=True)
class LeaseWritten:
    """The server has stored the lease, and the view has it."""


@dataclass(frozen=True, slots=True)
class LeaseRefused:
    """The lease has another revision by now."""


@dataclass(frozen=True, slots=True)
class LeaseUnanswered:
    """The write of the lease had no answer in time."""


@dataclass(frozen=True, slots=True)
class ActionPerformed:
    """The action was performed, and the view has its records."""


@dataclass(frozen=True, slots=True)
class ActionRefused:
    """The action was not performed, and the decision is obsolete."""

    why: LapsedAction


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """The action failed, which says nothing about the others."""

    error: str


Event = (
    Observed
    | LeaseWritten
    | LeaseRefused
    | LeaseUnanswered
    | ActionPerformed
    | ActionRefused
    | ActionFailed
)

# --- instructions


@dataclass(frozen=True, slots=True)
class WriteLease:
    """Write the lease if it is still at ``revision``; wait ``limit_s`` for the answer."""

    record: LeaseRecord
    revision: int
    limit_s: float


@dataclass(frozen=True, slots=True)
class Perform:
    """Perform this action, fenced by the lease's revision.

    Check ``ManagerState.may_write`` right before: the process may have been paused since.
    """

    action: RecordAction
    lease_revision: int


@dataclass(frozen=True, slots=True)
class StartRemoval:
    """Start this removal beside the loop, and call ``ManagerState.removal_ended`` at its end.

    Check ``ManagerState.may_remove`` right before each deletion of a stream.
    """

    action: Removal
    #: Of the lease under which it was decided.
    lease_revision: int
    term: int
    #: Wall clock, for the journal, milliseconds.
    at_ms: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for news, or until ``until_s`` on the manager's clock; ``Looked`` follows."""

    until_s: float


#: An ``Entry`` is for the journal.
Instruction = WriteLease | Perform | StartRemoval | Wait | JournalEntry

# --- state


@dataclass(frozen=True, slots=True)
class _Rest:
    """The failures of one action in a row."""

    retries: Retries
    until_s: float
    cause: str


class FailedActions:
    """The actions that failed and have not been performed since, by their target.

    An action is requested by each decision until it has been performed.  One that fails keeps no
    other from being performed: it rests before it is tried again, twice as long after each failure
    in a row.
    """

    def __init__(self) -> None:
        self._rests: dict[str, _Rest] = {}

    def select_due(self, decided: Iterable[Action], now_s: float) -> list[Action]:
        """The actions of a decision that do not rest; those not decided any more are forgotten."""
        targets = {target_of(action): action for action in decided}
        self._rests = {at: rest for at, rest in self._rests.items() if at in targets}
        return [
            action
            for at, action in targets.items()
            if at not in self._rests or now_s >= self._rests[at].until_s
        ]

    def record_failure(self, action: Action, now_s: float, cause: str) -> bool:
        """Let an action rest; returns whether its last failure had another cause, or none."""
        at = target_of(action)
        previous = self._rests.get(at)
        retries = (
            previous.retries if previous is not None else Retries(FIRST_REST_S, LONGEST_REST_S)
        )
        retries = retries.failed(now_s)
        self._rests[at] = _Rest(retries, now_s + retries.rest_s, cause)
        return previous is None or previous.cause != cause

    def record_success(self, action: Action) -> None:
        """Forget the failures of an action."""
        self._rests.pop(target_of(action), None)


@dataclass(slots=True)
class _IdleDecision:
    """A decision without actions."""

    #: Of the snapshot that it was made of.
    news: int | None
    at_s: float
    #: It is the same until then without news, and may be for longer.
    until_s: float


@dataclass(eq=False, repr=False)
class ManagerState:
    """State of one manager's loop."""

    me: election.ManagerCandidate
    settings: Settings
    phase: ManagerPhase = ManagerPhase.WATCHING
    #: Whether it held the lease when it last looked.
    leads: bool = False
    _wake_s: float = 0.0
    #: Clock and revision of the lease at the last look.
    _observed_s: float = 0.0
    _lease_revision: int = 0
    #: The remaining actions of the decision; the first is being performed.
    _actions: deque[Action] = field(default_factory=deque)
    #: Revision of the lease under which it was decided.
    _fence: int = 0
    _term: int = 0
    #: The last decision, if it had no actions.
    _idle: _IdleDecision | None = None
    _failed: FailedActions = field(default_factory=FailedActions)
    #: Targets of the removals under way.
    _removing: set[str] = field(default_factory=set)
    #: Wall clock when the action under way began, milliseconds.
    _began_ms: int = 0
    _instructions: list[Instruction] = field(default_factory=list)

    def __repr__(self) -> str:
        leads = "leads" if self.leads else "does not lead"
        return f"ManagerState({self.me.id}, {leads}, {self.phase}, {len(self._actions)} to do)"

    def may_write(self, snapshot: ClusterSnapshot) -> bool:
        """Whether decisions still hold.

        A decision from before a pause may be wrong by now, although the lease still fences if no
        other manager has acquired it.
        """
        return election.holds(snapshot, self.me, self.settings.manager.lease_ttl_s)

    def may_remove(self, removal: StartRemoval, snapshot: ClusterSnapshot) -> bool:
        """Whether this manager has held the lease without a gap since it decided this removal."""
        lease = snapshot.lease
        record = lease.value if lease is not None else None
        return record is not None and record.term == removal.term and self.may_write(snapshot)

    def removal_ended(
        self, removal: StartRemoval, why: LapsedAction | str | None, now_s: float
    ) -> list[JournalEntry]:
        """Record the end of a removal; returns the journal's entries about it.

        Args:
            removal: the one that ended.
            why: the reason why it ended early, an error's text among them; None for a success.
            now_s: the manager's monotonic clock.
        """
        action, revision = removal.action, removal.lease_revision
        self._removing.discard(target_of(action))
        if why is None:
            self._failed.record_success(action)
            return [replace(of_action(action, revision), at_ms=removal.at_ms)]
        is_new = self._failed.record_failure(action, now_s, str(why))
        if not is_new:
            return []
        return [
            (of_refusal if isinstance(why, LapsedAction) else of_failure)(action, revision, why)
        ]

    def handle(
        self, event: Event, snapshot: ClusterSnapshot, wall_ms: int = 0
    ) -> list[Instruction]:
        """Respond to one event.

        Args:
            event: what happened.
            snapshot: the cluster at this moment; its clock is the time of the event.
            wall_ms: wall clock, for the journal; 0 for the time at which an entry is noted.

        Raises:
            RuntimeError: the event is impossible in this state, so the shell is wrong.
        """
        self._instructions = []
        match event:
            case Observed():
                self._expect(event, ManagerPhase.WATCHING)
                self._elect(snapshot, wall_ms)
            case LeaseWritten() | LeaseRefused() | LeaseUnanswered():
                self._expect(event, ManagerPhase.ELECTING)
                if isinstance(event, LeaseRefused):
                    self._wake_s = self._observed_s + CONFLICT_S
                elif isinstance(event, LeaseUnanswered):
                    self._wake_s = self._observed_s + UNANSWERED_S
                self._lead_or_follow(snapshot, wall_ms)
            case ActionPerformed():
                self._expect(event, ManagerPhase.ACTING)
                # The watch may deliver its consequences before its own answer arrives.
                action = self._actions.popleft()
                self._failed.record_success(action)
                self._do(replace(of_action(action, self._fence), at_ms=self._began_ms))
                self._act(snapshot, wall_ms)
            case ActionRefused(why):
                self._expect(event, ManagerPhase.ACTING)
                self._do(of_refusal(self._actions[0], self._fence, why))
                self._actions.clear()
                self._act(snapshot, wall_ms)
            case ActionFailed(error):
                self._expect(event, ManagerPhase.ACTING)
                action = self._actions.popleft()
                if self._failed.record_failure(action, snapshot.now_s, error):
                    self._do(of_failure(action, self._fence, error))
                self._act(snapshot, wall_ms)
        return self._instructions

    def _expect(self, event: Event, phase: ManagerPhase) -> None:
        if self.phase is not phase:
            raise RuntimeError(f"{event} at {self}")

    def _elect(self, snapshot: ClusterSnapshot, wall_ms: int) -> None:
        ttl_s, lease = self.settings.manager.lease_ttl_s, snapshot.lease
        self._observed_s = snapshot.now_s
        self._lease_revision = lease.revision if lease is not None else 0
        match election.decide(lease, self.me, snapshot.now_s, ttl_s):
            case election.StandBy(until_s):
                self._wake_s = until_s
                self._lead_or_follow(snapshot, wall_ms)
            case election.Acquire(revision, term) | election.Renew(revision, term):
                self.phase, self._wake_s = ManagerPhase.ELECTING, snapshot.now_s + ttl_s / 3
                record = LeaseRecord(self.me.id, term, self.me.incarnation)
                self._do(WriteLease(record, revision, ttl_s))

    def _lead_or_follow(self, snapshot: ClusterSnapshot, wall_ms: int) -> None:
        leads = election.holds(snapshot, self.me, self.settings.manager.lease_ttl_s)
        if leads != self.leads:
            self.leads, self._idle = leads, None
            text = "leads" if leads else "no longer leads"
            # At the time of the decision, as its actions are, so that these come after it.
            self._do(JournalEntry(text, lease_revision=self._lease_revision, at_ms=wall_ms))
        if leads:
            assert snapshot.lease is not None
            assert snapshot.lease.value is not None
            self._fence, self._term = snapshot.lease.revision, snapshot.lease.value.term
            decided = self._decide(snapshot)
            self._actions.extend(self._failed.select_due(decided, snapshot.now_s))
        self._act(snapshot, wall_ms)

    def _decide(self, snapshot: ClusterSnapshot) -> Sequence[Action]:
        """The actions to perform now.

        The lease is renewed twice a second, and reports come all the time.  So a decision without
        actions is not made again while neither news nor time can have changed it.
        """
        now_s, settings, idle = snapshot.now_s, self.settings, self._idle
        if idle is not None and idle.news == snapshot.news and now_s - idle.at_s < AGAIN_S:
            if now_s >= idle.until_s:
                idle.until_s = reconcile.next_deadline_s(snapshot, settings, idle.at_s)
            if now_s < idle.until_s:
                return ()
        decided = reconcile.decide(snapshot, settings)
        self._idle = None
        if not decided and snapshot.news is not None:
            at_s = now_s - ROUNDING_S
            until_s = reconcile.next_deadline_s(snapshot, settings, at_s)
            self._idle = _IdleDecision(snapshot.news, at_s, until_s)
        return decided

    def _act(self, snapshot: ClusterSnapshot, wall_ms: int) -> None:
        """Perform the next action, or wait for the next deadline."""
        while self._actions:
            match self._actions[0]:
                case RemoveApp() | Retire() as removal:
                    self._actions.popleft()
                    target = target_of(removal)
                    if target not in self._removing:
                        self._removing.add(target)
                        self._do(StartRemoval(removal, self._fence, self._term, wall_ms))
                case write:
                    self.phase, self._began_ms = ManagerPhase.ACTING, wall_ms
                    self._do(Perform(write, self._fence))
                    return
        self.phase = ManagerPhase.WATCHING
        if self.leads:
            now_s, idle = snapshot.now_s, self._idle
            deadline_s = (
                idle.until_s if idle else reconcile.next_deadline_s(snapshot, self.settings, now_s)
            )
            self._wake_s = min(self._wake_s, deadline_s)
        self._do(Wait(max(self._wake_s, snapshot.now_s + WAIT_S)))

    def _do(self, instruction: Instruction) -> None:
        self._instructions.append(instruction)
