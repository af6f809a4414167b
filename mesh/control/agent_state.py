"""State machine of a worker's agent: events in, instructions out.

Every decision of an agent is here or in the functions that this calls.  There is no I/O, no clock
and no asyncio.  A shell passes each event with its present view of the cluster, performs the
instructions in order, and passes ``TimeReached`` at ``AgentState.wake_s``.  The shells are
``mesh.worker.agent`` and the simulator's ``workers``.  The file is longer than 400 lines because
its state machines share one state.

    membership  CLAIMING -> MEMBER -> OUT -> REJOINING -> MEMBER; REJECTED and LEFT are final
    session     STARTING -> READY -> (KILLED ->) STARTING
    heartbeat   RESTING -> WRITING -> (READING ->) RESTING

Heartbeats of one worker: time of the next one, its timeout, and the end of the term.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import InitVar, dataclass, replace
from typing import TYPE_CHECKING, Final

from mesh.control import agent_events as events
from mesh.control import membership, standby, worker_reconcile
from mesh.control.agent_events import HeartbeatPhase, Membership, SessionPhase, Stopping
from mesh.control.journal import JournalEntry, of_report
from mesh.control.membership import BEATS_PER_TERM
from mesh.model.cluster import InstanceState, InstanceStatus

if TYPE_CHECKING:
    from mesh.control.agent_events import AgentView, Event, Instruction
    from mesh.model.cluster import Assignment, NodeRecord, Standby
    from mesh.settings import Settings


#: Period of looking whether the instances were taken over, seconds: presence changes by time alone.
HANDOVER_LOOK_S: Final = 0.2
#: Error in the report of an instance whose session has ended.
SESSION_ENDED: Final = "the Spark session ended; another one is starting"
_ACTIVE: Final = (Membership.MEMBER, Membership.OUT, Membership.REJOINING)


class _EndedRuns:
    """The last run of each instance, if it ran up to a position and has ended, as reported.

    Such an instance has one run in an epoch.  The view alone does not show its end: a report may be
    lost, and a report that was written earlier may be stored later.
    """

    def __init__(self) -> None:
        self._reports: dict[str, InstanceStatus] = {}

    def note(self, status: InstanceStatus, assignment: Assignment | None) -> None:
        """Record a session's report of an instance that it ran for ``assignment``."""
        if assignment is None or not worker_reconcile.has_ended(status, assignment):
            return
        previous = self._reports.get(status.instance)
        # A second STOP has a second answer, which lacks the position.
        if previous is None or previous.epoch != status.epoch or not previous.settled:
            self._reports[status.instance] = status

    def report_of(self, assignment: Assignment) -> InstanceStatus | None:
        """The report of the run's end; None if the assignment had no run yet."""
        report = self._reports.get(assignment.instance)
        return report if report is not None and report.epoch == assignment.epoch else None


class AgentState:
    """State of one agent."""

    def __init__(self, identity: NodeRecord, settings: Settings, now_s: float) -> None:
        """Create the state of an agent with a newly started session.

        Args:
            identity: the fields of its heartbeats that never change.
            settings: times.
            now_s: its monotonic clock.
        """
        self.identity = identity
        self.settings = settings
        self.membership = Membership.CLAIMING
        self.session = SessionPhase.STARTING
        self.heartbeat = HeartbeatCycle(settings.worker.ttl_s, now_s)
        #: Assignments that the session has to run, by instance.
        self.running: dict[str, Assignment] = {}
        #: Instances that the session has to stop and has not reported as stopped.
        self.stopping: dict[str, Stopping] = {}
        #: Standbys that the session holds, by instance.
        self.holding: dict[str, Standby] = {}
        self.leaving = False
        self._leaving_since_s = 0.0
        #: Whether a session of this process was ready before.
        self._was_ready = False
        self._unready_since_s = now_s
        #: Revision of this worker's record, which the next heartbeat replaces.
        self.revision = 0
        self._claim_of_name = membership.NameClaim(identity.incarnation)
        #: Revision of the first heartbeat that was stored after a term was over.
        self._rejoined_revision = 0
        self._reconcile_at_s = self._handover_at_s = now_s
        self._ended_runs = _EndedRuns()
        #: Number of reports of an instance that are being written.
        self._reporting: Counter[str] = Counter()
        #: Epoch and state of each instance in the journal's last entry about it.
        self._noted: dict[str, tuple[int, InstanceState]] = {}
        #: Last report of each running instance by the session.
        self._said: dict[str, InstanceStatus] = {}
        self._must_reconcile = False
        self._instructions: list[Instruction] = []

    def __repr__(self) -> str:
        phases = f"{self.membership}, session {self.session}, heartbeat {self.heartbeat.phase}"
        parts = ["leaving"] if self.leaving else []
        parts += [f"runs {name}@{one.epoch}" for name, one in sorted(self.running.items())]
        parts += [
            f"stops {name}@{one.assignment.epoch}" for name, one in sorted(self.stopping.items())
        ]
        parts += [f"holds {name}" for name in sorted(self.holding)]
        return f"AgentState({', '.join([self.identity.id, phases, *parts])})"

    @property
    def is_final(self) -> bool:
        """Whether nothing more is done."""
        return self.membership in (Membership.REJECTED, Membership.LEFT)

    @property
    def wake_s(self) -> float:
        """The time of the next ``TimeReached``, on the agent's clock."""
        if self.membership is Membership.CLAIMING:
            return self._reconcile_at_s
        wake_s = min(self._reconcile_at_s, self.heartbeat.wake_s)
        if self.membership is not Membership.OUT:
            wake_s = min(wake_s, self.heartbeat.term_ends_s)
        return min(wake_s, self._handover_at_s) if self.leaving else wake_s

    def handle(self, event: Event, view: AgentView) -> list[Instruction]:
        """Respond to one event with what the shell does now, in order.

        Args:
            event: what happened.
            view: the cluster at this moment; its clock is the time of the event.

        Raises:
            RuntimeError: the event is impossible in this state, so the shell is wrong.
        """
        if self.is_final:
            return []
        self._instructions = []
        now_s = view.snapshot.now_s
        if isinstance(event, events.HeartbeatStored):
            # Before the term is checked: this event may renew the term.
            self._renew(event.revision)
        if isinstance(event, events.HeartbeatFailed) and event.is_leaderless:
            # No manager can place its instances elsewhere meanwhile.
            self.heartbeat.extend()
        if self.membership is Membership.CLAIMING:
            self._claim(view, now_s)
        else:
            self._judge_term(view, now_s)
        self._take(event, view, now_s)
        if self.membership in _ACTIVE:
            self._keep_time(event, view, now_s)
        return self._instructions

    # --- events

    def _take(self, event: Event, view: AgentView, now_s: float) -> None:
        match event:
            case events.ViewChanged():
                self._must_reconcile = True
            case events.TimeReached():
                pass
            case events.HeartbeatStored() | events.HeartbeatFailed():
                self._expect(event, HeartbeatPhase.WRITING, HeartbeatPhase.READING)
                self._rest(now_s)
            case events.HeartbeatConflicted():
                self._expect(event, HeartbeatPhase.WRITING)
                self.heartbeat.phase = HeartbeatPhase.READING
                self._do(events.ReadRecord(self.heartbeat.limit_s(now_s)))
            case events.RecordRead(revision, record, has_ended):
                self._expect(event, HeartbeatPhase.READING)
                self._compare(revision, record, now_s, has_ended=has_ended)
            case events.SessionReady(started_in_s):
                self.session, self._was_ready = SessionPhase.READY, True
                self._note("is ready", f"its session started in {started_in_s:g} s")
                self.heartbeat.is_urgent = self._must_reconcile = True
            case events.SessionEnded():
                self._restart_session(view, now_s)
            case events.InstanceReported(status):
                self._hear(status, view)
            case events.ReportWritten(status):
                self._finish_report(status)
            case events.WorkerStopRequested():
                self.leaving = self.heartbeat.is_urgent = True
                self._leaving_since_s = self._handover_at_s = now_s
                self._note("hands over and ends", "it received a signal to end")

    def _expect(self, event: Event, *phases: HeartbeatPhase) -> None:
        if self.heartbeat.phase not in phases:
            raise RuntimeError(f"{event} at {self}")

    def _keep_time(self, event: Event, view: AgentView, now_s: float) -> None:
        """Do all that is due at this time."""
        if self.heartbeat.is_due(now_s):
            self._beat(now_s)
        if self._must_reconcile or now_s >= self._reconcile_at_s - EARLY_S:
            self._reconcile(view, now_s)
        is_due = isinstance(event, events.ViewChanged) or now_s >= self._handover_at_s - EARLY_S
        if self.leaving and is_due:
            self._leave_if_done(view, now_s)

    # --- membership

    def _claim(self, view: AgentView, now_s: float) -> None:
        """Begin if the name is free; end if another process sends heartbeats under it."""
        worker, me = self.settings.worker, self.identity
        record = view.snapshot.node(me.role, me.id)
        claim = self._claim_of_name.judge(record, now_s, worker.ttl_s, worker.margin_s)
        if view.holder_has_ended or claim is membership.Claim.FREE:
            self.membership = Membership.MEMBER
            self.revision = view.record_revision
            self.heartbeat.start_term(now_s)
            self._must_reconcile = True
            self._note("began", f"process {me.pid}")
        elif claim is membership.Claim.TAKEN and record is not None:
            text = f"was refused the name {me.id}"
            cause = f"process {record.value.pid} is alive under it"
            self._do(JournalEntry(text, cause, by=f"process {me.pid}", worker=me.id))
            self.membership = Membership.REJECTED
            self._do(events.Reject(record.value.pid, was_member=False))
        else:
            self._reconcile_at_s = now_s + worker.ttl_s / membership.BEATS_PER_TERM

    def _judge_term(self, view: AgentView, now_s: float) -> None:
        """Stop everything once no heartbeat was stored for a term: it may be placed elsewhere."""
        if self.membership is Membership.OUT:
            return
        if self.heartbeat.is_over(now_s):
            self.membership = Membership.OUT
            if self.running:
                names, ttl_s = ", ".join(sorted(self.running)), self.settings.worker.ttl_s
                self._note(f"stops {names}", f"no heartbeat was accepted for {ttl_s:g} s")
            self._stop_all(now_s)
        elif view.record_revision >= self._rejoined_revision:
            # Its instances may have been placed elsewhere earlier, and only now the view would show
            # that.
            self._must_reconcile |= self.membership is Membership.REJOINING
            self.membership = Membership.MEMBER

    def _renew(self, revision: int) -> None:
        self.heartbeat.renew()
        self.revision = revision
        if self.membership is Membership.OUT:
            self.membership, self._rejoined_revision = Membership.REJOINING, revision

    def _compare(
        self, revision: int, record: NodeRecord | None, now_s: float, *, has_ended: bool
    ) -> None:
        """Determine why a heartbeat was refused.

        The leader has deleted the record, another process has written it, or an earlier heartbeat
        that seemed to have failed was stored after all.  The last heartbeat of an earlier process
        of this name may also arrive after its end.
        """
        is_other = record is not None and record.incarnation != self.identity.incarnation
        if record is not None and is_other and not has_ended:
            self._stop_all(now_s)
            self._note("ends", f"process {record.pid} took its name while it was cut off")
            self.membership = Membership.REJECTED
            self._do(events.Reject(record.pid, was_member=True))
            return
        self.revision = revision
        # The bucket may have gone back: later revisions will not come for long.
        self._rejoined_revision = min(self._rejoined_revision, revision + 1)
        self._rest(now_s)

    def _leave_if_done(self, view: AgentView, now_s: float) -> None:
        """Leave once the instances have moved, or if no worker can move or run them."""
        self._handover_at_s = now_s + HANDOVER_LOOK_S
        passed_s = now_s - self._leaving_since_s
        is_done = worker_reconcile.has_handed_over(
            view.snapshot, self.identity.id, self.settings, passed_s
        )
        if is_done or passed_s >= self.settings.worker.leave_s:
            self.membership = Membership.LEFT
            self._do(events.LeaveCluster(was_in_time=is_done))

    # --- heartbeats and the session

    def _beat(self, now_s: float) -> None:
        is_ready = self.session is SessionPhase.READY
        limit_s = self.heartbeat.limit_s(now_s)
        self.heartbeat.send(now_s)
        record = replace(
            self.identity,
            beat=self.heartbeat.count,
            ready=is_ready,
            starting_s=0.0 if is_ready else now_s - self._unready_since_s,
            cold=not self._was_ready,
            leaving=self.leaving,
        )
        self._do(events.WriteHeartbeat(record, self.revision, limit_s))

    def _rest(self, now_s: float) -> None:
        self.heartbeat.rest(now_s)
        self._end_stuck_session(now_s)

    def _restart_session(self, view: AgentView, now_s: float) -> None:
        self._note("starts another session", "the Spark session ended")
        self._do(events.StartSession())
        self.session, self._unready_since_s = SessionPhase.STARTING, now_s
        self.stopping.clear()
        self.holding.clear()
        lost, self.running = self.running, {}
        name, state = self.identity.id, InstanceState.RETRYING
        for one in lost.values():
            status = InstanceStatus(
                one.instance, one.app, name, one.epoch, state, view.wall_ms, SESSION_ENDED
            )
            self._report(status, view)
        self._must_reconcile = True

    def _end_stuck_session(self, now_s: float) -> None:
        """Kill a session that has not stopped an instance before the deadline."""
        limit_s = self.settings.worker.stop_s
        stuck = sorted(
            name
            for name, one in self.stopping.items()
            if not one.has_answered and now_s - one.since_s > limit_s
        )
        if stuck and self.session is SessionPhase.READY:
            self.session = SessionPhase.KILLED
            self._note("kills its session", f"{', '.join(stuck)} did not stop in {limit_s:g} s")
            self._do(events.KillSession(tuple(stuck)))

    def _reconcile(self, view: AgentView, now_s: float) -> None:
        """Make the session run, stop and hold the instances that the view assigns."""
        self._must_reconcile = False
        self._reconcile_at_s = now_s + self.settings.worker.ttl_s
        name, incarnation = self.identity.id, self.identity.incarnation
        is_ready = self.session is SessionPhase.READY
        duties = worker_reconcile.decide(
            view.snapshot,
            name,
            incarnation,
            self.running,
            self.stopping,
            may_start=is_ready and self.membership is Membership.MEMBER,
            at_ms=view.wall_ms,
        )
        for duty in list(duties):
            match duty:
                case worker_reconcile.Stop():
                    self._stop(duty, now_s)
                case worker_reconcile.Start(assignment):
                    if ended := self._ended_runs.report_of(assignment):
                        self._report_again(ended, view)
                        continue
                    self.running[assignment.instance] = assignment
                    self._do(duty)
                case worker_reconcile.ReportStatus(status):
                    self._report_again(status, view)
        self._repeat_lost_reports(view)
        # After the starts: an instance that starts uses the state that was held for it.
        for one in list(
            standby.duties(view.snapshot, name, incarnation, self.holding, may_start=is_ready)
        ):
            match one:
                case standby.Hold(record):
                    self.holding[record.instance] = record
                case standby.Release(instance):
                    del self.holding[instance]
            self._do(one)

    def _stop(self, stop: worker_reconcile.Stop, now_s: float) -> None:
        assignment = stop.assignment
        self.stopping[assignment.instance] = Stopping(assignment, now_s, stop.settle)
        self.running.pop(assignment.instance, None)
        self._do(stop)

    def _stop_all(self, now_s: float) -> None:
        """Stop everything at once, including instances that may still drain."""
        for name, one in self.stopping.items():
            if one.settle and not one.has_answered:
                self.stopping[name] = replace(one, settle=False)
                self._do(worker_reconcile.Stop(one.assignment, settle=False))
        for assignment in list(self.running.values()):
            self._stop(worker_reconcile.Stop(assignment, settle=False), now_s)

    # --- reports

    def _hear(self, status: InstanceStatus, view: AgentView) -> None:
        name = status.instance
        stopping = self.stopping.get(name)
        assignment = self.running.get(name) if stopping is None else stopping.assignment
        self._ended_runs.note(status, assignment)
        self._said[name] = status
        if stopping is not None and worker_reconcile.has_stopped(status, stopping.assignment.epoch):
            self.stopping[name] = replace(stopping, has_answered=True)
        self._report(status, view)

    def _repeat_lost_reports(self, view: AgentView) -> None:
        """Write reports that NATS has not stored, or has lost, again."""
        stored = {one.value.instance: one.value for one in view.snapshot.statuses}
        self._said = {name: said for name, said in self._said.items() if name in self.running}
        for name, said in self._said.items():
            status = stored.get(name)
            if status is None or (status.epoch, status.at_ms) < (said.epoch, said.at_ms):
                self._report_again(said, view)

    def _report_again(self, status: InstanceStatus, view: AgentView) -> None:
        """Write a report, unless one of the instance is under way."""
        if not self._reporting[status.instance]:
            self._report(status, view)

    def _report(self, status: InstanceStatus, view: AgentView) -> None:
        """Write a report, unless one of a later epoch exists: another worker has the instance."""
        statuses = (s.value for s in view.snapshot.statuses)
        newest = next((s for s in statuses if s.instance == status.instance), None)
        self._reporting[status.instance] += 1
        if newest is not None and newest.epoch > status.epoch:
            self._finish_report(status)
            return
        step = status.epoch, status.state
        is_repeat = newest is not None and (newest.epoch, newest.state) == step
        # The view may lack the last write, and two pending reports may have the same content.
        if not is_repeat and self._noted.get(status.instance) != step:
            self._noted[status.instance] = step
            self._do(of_report(status))
        self._do(events.WriteReport(status))

    def _finish_report(self, status: InstanceStatus) -> None:
        """Handle a finished write of a report; after a failure, the next one is the same."""
        name = status.instance
        running, stopping = self.running.get(name), self.stopping.get(name)
        if running is not None and worker_reconcile.has_ended(status, running):
            del self.running[name]
            self._must_reconcile = True
        # Not before the report is in the view: another one in its place would lack its position.
        if stopping is not None and worker_reconcile.has_stopped(status, stopping.assignment.epoch):
            del self.stopping[name]
            self._must_reconcile = True
        self._reporting[name] -= 1
        if not self._reporting[name]:
            del self._reporting[name]

    def _note(self, text: str, cause: str) -> None:
        self._do(JournalEntry(text, cause, worker=self.identity.id))

    def _do(self, instruction: Instruction) -> None:
        self._instructions.append(instruction)


#: Longest extension of a term while servers elect a leader of the records, seconds: an election
#: takes 4 to 9 s, and may have to be repeated.
ELECTION_S: Final = 20.0
#: A timer may fire this much before its time, seconds: clocks are compared after rounding.
EARLY_S: Final = 1e-6


@dataclass(eq=False)
class HeartbeatCycle:
    """A sequence of heartbeats; the term begins when the last stored one was sent."""

    #: Length of the term.
    _ttl_s: float
    #: The worker's monotonic clock when the first term begins.
    now_s: InitVar[float]
    phase: HeartbeatPhase = HeartbeatPhase.RESTING
    #: Number of heartbeats sent.
    count: int = 0
    #: The next one does not wait for its period.
    is_urgent: bool = False
    #: Whether any heartbeat was stored.
    was_stored: bool = False

    def __post_init__(self, now_s: float) -> None:
        self._sent_s = self._renewed_s = self._stored_s = self._due_s = now_s

    @property
    def term_ends_s(self) -> float:
        """Time at which the instances are stopped, unless another heartbeat is stored."""
        return self._renewed_s + self._ttl_s

    @property
    def wake_s(self) -> float:
        """Time of the next heartbeat; infinity while one is being written."""
        return self._due_s if self.phase is HeartbeatPhase.RESTING else float("inf")

    def is_over(self, now_s: float) -> bool:
        """Whether no heartbeat was stored for a term."""
        return now_s >= self.term_ends_s - EARLY_S

    def is_due(self, now_s: float) -> bool:
        """Whether the next heartbeat is to be sent."""
        is_resting = self.phase is HeartbeatPhase.RESTING
        return is_resting and (self.is_urgent or now_s >= self._due_s - EARLY_S)

    def limit_s(self, now_s: float) -> float:
        """Longest duration of an attempt: it must not outlast the term."""
        left_s = self.term_ends_s - now_s
        return min(left_s, self._ttl_s / 2) if left_s > EARLY_S else self._ttl_s / 2

    def start_term(self, now_s: float) -> None:
        """Begin the term now, with a heartbeat that is due at once."""
        self._renewed_s = self._stored_s = self._due_s = now_s

    def send(self, now_s: float) -> None:
        """Record that a heartbeat was sent."""
        self.phase, self.is_urgent = HeartbeatPhase.WRITING, False
        self.count += 1
        self._sent_s = now_s

    def renew(self) -> None:
        """Record that the heartbeat was stored."""
        self._renewed_s = self._stored_s = self._sent_s
        self.was_stored = True

    def extend(self) -> None:
        """Begin the term again with the last one: no leader of the records could store anything."""
        if self._sent_s - self._stored_s < ELECTION_S:
            self._renewed_s = self._sent_s

    def rest(self, now_s: float) -> None:
        """Wait for the next one, but not past the end of the term."""
        self.phase = HeartbeatPhase.RESTING
        left_s, period_s = self.term_ends_s - now_s, self._ttl_s / BEATS_PER_TERM
        self._due_s = now_s + (min(period_s, left_s) if left_s > EARLY_S else period_s)
