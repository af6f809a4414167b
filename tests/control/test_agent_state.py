"""The agent's state machine: transcripts of events and instructions, and invariants."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.control import agent_events as events
from mesh.control.agent_events import Membership
from mesh.control.agent_state import AgentState
from mesh.control.journal import JournalEntry
from mesh.control.standby import Hold, Release
from mesh.control.worker_reconcile import Start, Stop
from tests.support import case_files
from tests.support.cluster_lines import SETTINGS, TTL_S, node, report, snapshot, words
from tests.support.examples import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.control.agent_events import Event, Instruction
    from mesh.model.cluster import InstanceStatus

CASES = Path(__file__).parents[1] / "cases" / "control"
#: Delay of a report's answer, seconds.
REPORT_S = 5.0


@dataclass
class Player:
    """A shell that plays a script, with a server that answers at once or not at all."""

    now_s: float = 0.0
    #: Content of the view, as in ``cluster_lines.snapshot``.
    shown: dict[str, str] = field(default_factory=dict)
    reports: dict[str, str] = field(default_factory=dict)
    #: The time of each shown report of the session, milliseconds.
    times: dict[str, int] = field(default_factory=dict)
    is_away: bool = False
    #: Whether the server answers that the records have no leader.
    is_leaderless: bool = False
    loses_report: bool = False
    #: The answer to the next heartbeats, in place of ``HeartbeatStored``.
    refusals: list[Event] = field(default_factory=list)
    #: Revision of the worker's record, and the one that the view shows.
    revision: int = 0
    shown_revision: int = 0
    is_behind: bool = False
    holder_has_ended: bool = False
    said: list[str] = field(default_factory=list)
    _queue: list[tuple[float, int, Event]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)
    _beat: str = ""
    _own: str = ""

    def __post_init__(self) -> None:
        identity = replace(node("w1", 0.0).value, ready=False, pid=7)
        self.state = AgentState(identity, SETTINGS, self.now_s)

    def play(self, line: str) -> None:
        match line.split():
            case ["view", *_]:
                self.shown.update(words(line))
                self.handle(events.ViewChanged())
            case ["nats", "away" | "leaderless" | "back" as what]:
                self.is_away = what == "away"
                self.is_leaderless = what == "leaderless"
            case ["watch", "behind" | "caught-up" as what]:
                self.is_behind = what == "behind"
                if not self.is_behind:
                    self.shown_revision = self.revision
                    self.handle(events.ViewChanged())
            case ["record", revision, name, *rest]:
                record = (
                    None
                    if name == "deleted"
                    else replace(node("w1", 0).value, incarnation=name, pid=8)
                )
                self.revision = int(revision)
                read = events.RecordRead(int(revision), record, "ended" in rest)
                self.refusals = [events.HeartbeatConflicted(), read]
            case ["record", "unread"]:
                self.refusals = [events.HeartbeatConflicted()]
            case ["holder", "ended"]:
                self.holder_has_ended = True
            case ["session", "ready"]:
                self.handle(events.SessionReady(3.0))
            case ["session", "ended"]:
                self.handle(events.SessionEnded())
            case ["session", "says", text]:
                instance, where, state = text.split(":")
                worker, epoch = where.split("@")
                status = report(instance, worker, int(epoch), state).value
                status = replace(status, at_ms=round(self.now_s * 1000))
                self.handle(events.InstanceReported(status))
            case ["next", "report", "lost"]:
                self.loses_report = True
            case ["late", text]:
                self.reports[text.split(":")[0]] = text
                self.handle(events.ViewChanged())
            case ["lost", instance]:
                del self.reports[instance]
                self.handle(events.ViewChanged())
            case ["told", "to", "end"]:
                self.handle(events.WorkerStopRequested())
            case ["run", until_s]:
                self.run(float(until_s))
            case ["pause", until_s]:
                self.now_s = float(until_s)
            case _:
                raise ValueError(f"not a line of a script: {line}")

    def run(self, until_s: float) -> None:
        """Let time pass."""
        while not self.state.is_final:
            next_s = self._queue[0][0] if self._queue else float("inf")
            self_s = self.state.wake_s
            at_s = max(self.now_s, min(next_s, self_s))
            if at_s > until_s:
                break
            self.now_s = at_s
            event: Event = events.TimeReached()
            if next_s <= self_s:
                event = heapq.heappop(self._queue)[2]
            self.handle(event)
        self.now_s = until_s

    def handle(self, event: Event) -> None:
        """Handle an event, and the immediate answers to its instructions."""
        answers: list[Event] = []
        if isinstance(event, events.ReportWritten) and not self.is_away:
            if not self.loses_report:
                self.show(event.status)
            self.loses_report = False
        for instruction in self.state.handle(event, self.view()):
            self.say(instruction)
            answers += self.answers(instruction)
        for answer in answers:
            self.handle(answer)

    def view(self) -> events.AgentView:
        shown = dict(self.shown)
        shown["now"] = str(self.now_s)
        shown["workers"] = ",".join(filter(None, (self._own, shown.get("workers", ""))))
        told = [shown.get("reports", ""), *self.reports.values()]
        shown["reports"] = ",".join(filter(None, told))
        line = " ".join(f"{key}={value}" for key, value in shown.items())
        seen = snapshot(line)
        statuses = [
            replace(one, value=replace(one.value, at_ms=self.times.get(one.value.instance, 0)))
            for one in seen.statuses
        ]
        seen = replace(seen, statuses=tuple(statuses))
        return events.AgentView(seen, self.shown_revision, holder_has_ended=self.holder_has_ended)

    def show(self, status: InstanceStatus) -> None:
        state = status.state.value
        if status.settled:
            state = f"settled{status.position['S']}"
        text = f"{status.instance}:{status.worker}@{status.epoch}:{state}"
        self.reports[status.instance] = text
        self.times[status.instance] = status.at_ms

    def answers(self, instruction: Instruction) -> list[Event]:
        match instruction:
            case events.WriteHeartbeat(record, _, limit_s):
                if self.is_away:
                    return self.later(limit_s, events.HeartbeatFailed())
                if self.is_leaderless:
                    return [events.HeartbeatFailed(is_leaderless=True)]
                if self.refusals:
                    return [self.refusals.pop(0)]
                self.revision += 1
                if not self.is_behind:
                    self.shown_revision = self.revision
                    self._own = f"w1:{self.now_s}" + (":leaving" if record.leaving else "")
                return [events.HeartbeatStored(self.revision)]
            case events.ReadRecord(limit_s):
                if self.is_away or not self.refusals:
                    return self.later(limit_s, events.HeartbeatFailed())
                return [self.refusals.pop(0)]
            case events.WriteReport(status):
                return self.later(REPORT_S if self.is_away else 0.01, events.ReportWritten(status))
            case events.KillSession():
                return self.later(0.1, events.SessionEnded())
            case _:
                return []

    def later(self, delay_s: float, event: Event) -> list[Event]:
        heapq.heappush(self._queue, (self.now_s + delay_s, next(self._numbers), event))
        return []

    def say(self, instruction: Instruction) -> None:
        """Print an instruction; heartbeats without news, and the journal, are left out."""
        match instruction:
            case events.WriteHeartbeat(record, revision, limit_s):
                flags = [name for name in ("ready", "cold", "leaving") if getattr(record, name)]
                text = " ".join(["heartbeat", *flags])
                if text == self._beat and not self.is_away and not self.refusals:
                    return
                self._beat = text
                text += f" on {revision} within {limit_s:g} s"
            case events.ReadRecord(limit_s):
                text = f"read the record within {limit_s:g} s"
            case events.WriteReport(status):
                settled = f", settled at {dict(status.position)}" if status.settled else ""
                text = f"report {status.instance} epoch {status.epoch} {status.state}{settled}"
            case Start(made, _):
                text = f"start {made.instance} epoch {made.epoch}"
            case Stop(made, settle):
                text = f"stop {made.instance} epoch {made.epoch}{'' if settle else ' at once'}"
            case Hold(standby, _):
                text = f"hold {standby.instance}"
            case Release(instance):
                text = f"release {instance}"
            case events.StartSession():
                text = "start a session"
            case events.KillSession(stuck):
                text = f"kill the session: {', '.join(stuck)}"
            case events.Reject(pid, was_member):
                text = f"end: process {pid} {'took' if was_member else 'has'} the name"
            case events.LeaveCluster(was_in_time):
                text = "leave" if was_in_time else "leave, not taken over"
            case JournalEntry():
                return
        self.said.append(f"{self.now_s:g} {text}")


def run_script(script: str) -> str:
    player = Player()
    for line in script.splitlines():
        player.play(line)
    return "\n".join([*player.said, repr(player.state)])


def test_transcripts(rewrite: bool) -> None:
    case_files.check(CASES / "agent.txt", run_script, rewrite=rewrite)


def test_an_answer_that_nobody_waits_for_is_an_error() -> None:
    player = Player()
    player.play("view apps=A:g*1")
    with pytest.raises(RuntimeError, match=r"HeartbeatConflicted\(\) at AgentState\(w1, member"):
        player.handle(events.HeartbeatConflicted())


def test_the_journal_says_why_something_stops() -> None:
    player = Player()
    for line in ("view apps=A:g*1 placed=A-g-1:w1@5", "session ready", "nats away"):
        player.play(line)
    player.now_s = TTL_S
    done = player.state.handle(events.TimeReached(), player.view())
    assert JournalEntry("stops A-g-1", "no heartbeat was accepted for 2 s", worker="w1") in done


#: Lines of a script, in any order and at any time.
LINES = (
    "view apps=A:g*2 placed=A-g-1:w1@5,A-g-2:w1@5",
    "view placed=A-g-1:w1@7>,A-g-2:w1@5",
    "view placed=A-g-1:w1@9,A-g-2:w2@9",
    "view placed=A-g-1:w1@11|7",
    "session ready",
    "session ended",
    "session says A-g-1:w1@5:running",
    "session says A-g-1:w1@5:stopped",
    "session says A-g-1:w1@9:settled7",
    "session says A-g-2:w1@5:stopped",
    "nats away",
    "nats back",
    "watch behind",
    "watch caught-up",
    "record unread",
    "record 40 deleted",
    "told to end",
)


@settings(max_examples=examples(50), deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(LINES), st.floats(0.0, 3.0)), max_size=40))
def test_what_never_happens(steps: list[tuple[str, float]]) -> None:
    player = Player()
    state = player.state
    has_session = False
    for line, later_s in [("view apps=A:g*2", 0.1), *steps]:
        # A session reports once that it is ready.
        if line == "session ready" and has_session:
            continue
        has_session = (has_session or line == "session ready") and line != "session ended"
        done = len(player.said)
        was_stopping = set(state.stopping)
        player.play(line)
        for text in player.said[done:]:
            is_start = " start A" in text
            # One run at a time; and none while the cluster does not count on this worker.
            assert not (is_start and text.split()[2] in was_stopping and "says" not in line), text
            assert not is_start or state.membership is not Membership.OUT
        player.run(player.now_s + later_s)
        if state.is_final:
            break
        has_session &= state.session.value == "ready"
        assert not state.running.keys() & state.stopping.keys()
        assert not (state.running and state.membership is Membership.OUT)
        # However long the answers need: running instances have a term that is not over.
        assert not state.running or player.now_s <= state.heartbeat.term_ends_s + 1e-6
        assert state.wake_s > player.now_s - 1e-6
