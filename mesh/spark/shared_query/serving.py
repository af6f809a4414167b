"""Loop of a slot: serves parts as their messages come, and reports where they are.

A part's state stays in memory between runs.  It is stored, and the part's position reported, when
the part has worked and its last report is a while ago.  Without a crash nothing reads it.  After
one, the instance goes back to a stored position, and its markers show which output exists.

The output of small runs is sent, and the next run does not wait until the server has acknowledged
it: that is asked before the report, once for all runs since the last one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mesh.model.histogram import Histogram
from mesh.spark import latency, producers
from mesh.spark.shared_query import pacing, task
from mesh.spark.shared_query.background import LARGE_RUN, LARGE_RUN_BYTES, BackgroundPublisher
from mesh.spark.shared_query.element_counter import ElementCounter
from mesh.spark.shared_query.planner import RoundPlanner
from mesh.spark.shared_query.work import ADMITTED, FAILED, REMOVED, UNANSWERED, WORK, Outcome
from pyspark_nats.errors import UnavailableError
from pyspark_nats.sink import resting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from mesh.spark.shared_query.at_work import AtWork, ToldWork
    from mesh.spark.shared_query.members import InputPartition, Member, Offsets
    from mesh.spark.shared_query.part_position import PartPosition
    from mesh.spark.shared_query.task import LiveState, PartRun
    from mesh.spark.shared_query.work import WorkItem
    from pyspark_nats.protocol.connection_options import ConnectionOptions
    from pyspark_nats.sink.publish import Publisher

T = TypeVar("T")

#: Interval of the reports on a busy part, seconds.
REPORT_S: Final = 1.0
#: Longest time for which output is not known to be stored, seconds.
CONFIRM_S: Final = 1.0

#: Most reports, and confirmations, of one round: many parts may be due at the same time, and the
#: others wait for them.
_REPORTS_MAX: Final = 8


@dataclass(slots=True)
class _Served:
    """A part and what is not reported yet."""

    member: Member
    part: InputPartition
    messages: int = 0
    events_in: int = 0
    events_out: int = 0
    errors: int = 0
    runs: int = 0
    took_ms: float = 0.0
    batches: Histogram = field(default_factory=Histogram)
    #: Of each run: times of its events, and when their output was published.
    times: list[tuple[list[Any], list[int]]] = field(default_factory=list)
    elements: ElementCounter = field(default_factory=ElementCounter)
    #: Its position and state after its last run; None if reported.
    ends: Offsets | None = None
    live: LiveState | None = None
    #: Keeps output that is not acknowledged, which has to be by the time ``confirm_s``, monotonic.
    publisher: Publisher | None = None
    confirm_s: float = 0.0
    #: Time of the next report, if there is something to report.
    due_s: float = 0.0
    #: Where it reads, and the last sequence that had come at the last report.
    place: PartPosition | None = None
    told_seen: int = 0

    @property
    def is_unreported(self) -> bool:
        """Whether there is something to report; markers come without a run."""
        return self.ends is not None or (
            self.place is not None and self.place.seen > self.told_seen
        )

    def add(self, item: WorkItem, run: PartRun, took_ms: float) -> None:
        """Record a run."""
        self.messages += run.messages
        self.events_in += run.events_in
        self.events_out += run.events_out
        self.errors += run.errors
        self.runs += 1
        self.took_ms += took_ms
        self.batches.observe(took_ms / 1000)
        self.times.append((run.times, run.published_ms))
        self.ends, self.live = item.ends, run.live
        if self.publisher is None:
            self.confirm_s = time.monotonic() + CONFIRM_S
        self.publisher = run.publisher
        if run.has_committed:
            # Questions need a state that is not older than the rows in the database.  Parts that
            # are due already come first, or they would never have their turn.
            self.due_s = min(self.due_s, time.monotonic())

    def report(self, *, stored: bool = True) -> Outcome:
        """Outcome of the runs since the last report; the state is stored first.

        ``stored`` is false for a state that is not valid any more: no position is reported then.
        """
        if stored and self.live is not None:
            self.live.store()
        told = Outcome(
            WORK,
            self.member.name,
            self.member.generation,
            self.part.key,
            self.ends if stored else None,
            self.messages,
            self.events_in,
            self.events_out,
            self.errors,
            self.place.read if self.place is not None else {},
            self.runs,
            self.took_ms,
            self.batches.counts,
            *latency.count(self.times),
            self.elements.take(self.member.io, self.part.key, self.live),
        )
        self.told_seen = self.place.seen if self.place is not None else 0
        self.batches, self.times = Histogram(), []
        self.messages = self.events_in = self.events_out = self.errors = self.runs = 0
        self.took_ms = 0.0
        self.ends = self.live = None
        return told


class Serving:
    """The parts of one slot; for one thread."""

    def __init__(
        self,
        connection: ConnectionOptions,
        tell: Callable[[tuple[Outcome, ...]], None],
        at_work: AtWork | ToldWork,
        *,
        report_s: float = REPORT_S,
    ) -> None:
        """A slot without parts.

        Args:
            connection: to NATS.
            tell: receives the outcomes, in order.
            at_work: shows the present work.
            report_s: interval of the reports on a busy part.
        """
        self._planner = RoundPlanner(connection)
        self._tell = tell
        self._at_work = at_work
        self._report_s = report_s
        self._background = BackgroundPublisher()
        self._served: dict[str, dict[str, _Served]] = {}

    @property
    def calm_s(self) -> float:
        """When a wait last found ``wakes`` not readable, monotonic, seconds; 0 if it is now."""
        return self._planner.calm_s

    def admit(self, member: Member, keys: Collection[str]) -> None:
        """Serve parts of a member from now on."""
        self._served[member.file_name] = {
            part.key: _Served(member, part) for part in member.parts if part.key in keys
        }
        for item in self._planner.admit(member, keys):
            if item.kind == FAILED:
                self._fail(member, str(item.failure))
                return
            assert item.part is not None
            served, place = self._served[member.file_name], self._planner.place(member, item.part)
            served[item.part.key].place = place
            told = Outcome(
                ADMITTED, member.name, member.generation, item.part.key, item.ends, read=place.read
            )
            self._tell((told,))

    def remove(self, name: str) -> None:
        """Serve a member no longer; no effect if it has failed."""
        served = self._served.get(name)
        if served:
            self._leave(next(iter(served.values())).member)

    def round(
        self,
        wait_s: float,
        wakes: int | None = None,
        *,
        between: Callable[[], object] = lambda: None,
    ) -> None:
        """Wait for messages and timers, and do the work that is ready.

        Args:
            wait_s: longest wait, seconds.
            wakes: a file descriptor that ends the wait when it is readable; None for none.
            between: called before each run; may admit and remove members, whose runs of this round
                are then left to their successors.

        Raises:
            UnavailableError: NATS remained unavailable.
        """
        now_s = time.monotonic()
        due_s = [one.due_s for one in self._unreported()]
        due_s += [one.confirm_s for one in self._all() if one.publisher is not None]
        if (rest_s := resting.next_s()) is not None:
            due_s.append(rest_s)
        wait_s = max(0.0, min([wait_s, *(at_s - now_s for at_s in due_s)]))
        for item in self._planner.next(wait_s, wakes):
            between()
            # The member may have failed or left in this round.
            if not self._planner.has(item.member.file_name):
                continue
            if item.kind == WORK:
                self._work(item)
            elif item.kind == REMOVED:
                self._leave(item.member)
            else:
                self._fail(item.member, str(item.failure))
        self._confirm_due()
        self._report()
        if rest_s is not None and rest_s <= time.monotonic():
            resting.end_idle()

    def close(self) -> None:
        """Close the connections; the parts are not stored."""
        self._background.close()
        self._planner.close()

    # --- work

    def _work(self, item: WorkItem) -> None:
        member, part = item.member, item.part
        assert part is not None
        # In a backlog, the server stores the output of a run while this thread computes the next.
        came = item.messages if item.behind > 0 else None
        is_large = came is not None and (
            len(came) >= LARGE_RUN or came.data.nbytes >= LARGE_RUN_BYTES
        )
        is_own = self._background.owner == (member.file_name, part.key)
        if is_large != is_own:
            self._settle()
            if not self._planner.has(member.file_name):
                return
        served = self._served[member.file_name][part.key]
        if is_large and not self._confirm(served):
            return
        started_s, busy_s = time.perf_counter(), time.thread_time()
        run = self._guarded(
            member,
            lambda: (
                task.run(item, self._background)
                if is_large
                else task.run(item, publisher=served.publisher)
            ),
        )
        if run is not None:
            took_ms = (time.perf_counter() - started_s) * 1000
            served.add(item, run, took_ms)
            busy_ms = (time.thread_time() - busy_s) * 1000
            charged_ms = pacing.charged_ms(took_ms, busy_ms)
            read = run.messages * part.options.block_count
            self._planner.ran(item, read, charged_ms, run.timer_ms)

    def _settle(self) -> None:
        """Wait until the output of all runs is published; a member whose is not has failed."""
        if self._background.owner is not None:
            name, key = self._background.owner
            self._guarded(self._served[name][key].member, self._background.wait)

    def _confirm(self, one: _Served) -> bool:
        """Wait until the output of a part is acknowledged; False if its member has failed by it."""
        publisher, one.publisher = one.publisher, None
        if publisher is not None:
            self._guarded(one.member, publisher.finish)
        return self._planner.has(one.member.file_name)

    def _confirm_due(self) -> None:
        now_s = time.monotonic()
        due = (p for p in self._all() if p.publisher is not None and p.confirm_s <= now_s)
        for one in sorted(due, key=lambda one: one.confirm_s)[:_REPORTS_MAX]:
            # Its member may have failed at another part.
            if self._planner.has(one.member.file_name):
                self._confirm(one)

    def _guarded(self, member: Member, step: Callable[[], T]) -> T | None:
        """The result of a step of a member's; None if the member has failed by it."""
        self._at_work.begin(member.name)
        try:
            return step()
        except UnavailableError as error:
            # This is no work of the member's.
            self._at_work.end()
            if not task.is_server_there(member):
                # Each of the others would wait for it.
                raise
            self._fail(member, f"{UNANSWERED}: {error}")
        # A failure concerns only its member.
        except Exception as error:
            self._at_work.end()
            self._fail(member, f"{type(error).__name__}: {error}")
        finally:
            self._at_work.end()
        return None

    # --- reports

    def _all(self) -> list[_Served]:
        return [one for parts in self._served.values() for one in parts.values()]

    def _unreported(self) -> Iterator[_Served]:
        return (one for one in self._all() if one.is_unreported)

    def _report(self) -> None:
        now_s = time.monotonic()
        told: list[Outcome] = []
        due = [one for one in self._unreported() if one.due_s <= now_s]
        due = sorted(due, key=lambda one: one.due_s)[:_REPORTS_MAX]
        if any((one.member.file_name, one.part.key) == self._background.owner for one in due):
            self._settle()
        for one in due:
            # Another part of its member may have failed meanwhile.
            if self._planner.has(one.member.file_name):
                self._confirm(one)
        # No outcome follows a failure.
        for one in due:
            if self._planner.has(one.member.file_name) and one.is_unreported:
                self._stored(one, now_s, told)
        if told:
            self._tell(tuple(told))

    def _stored(self, one: _Served, now_s: float, told: list[Outcome]) -> bool:
        """Add the report on a part to ``told``; False if its member has failed by that."""
        self._at_work.begin(one.member.name)
        try:
            told.append(one.report())
        except Exception as error:
            if told:
                self._tell(tuple(told))
                told.clear()
            self._fail(one.member, f"{type(error).__name__}: {error}")
            return False
        finally:
            self._at_work.end()
        one.due_s = now_s + self._report_s
        return True

    def _leave(self, member: Member) -> None:
        """Store and report all parts of a member, which then does no more work here."""
        if self._background.owner is not None and self._background.owner[0] == member.file_name:
            self._settle()
        if member.file_name not in self._served:
            return
        now_s = time.monotonic()
        told: list[Outcome] = []
        served = list(self._served[member.file_name].values())
        if not all(self._confirm(one) for one in served):
            return
        for one in served:
            if one.ends is not None and not self._stored(one, now_s, told):
                return
        resting.end_of(producers.of_parts(member.io, self._served[member.file_name]))
        self._drop(member)
        self._tell((*told, Outcome(REMOVED, member.name, member.generation)))

    def _fail(self, member: Member, failure: str) -> None:
        self._background.drop(member.file_name)
        served = self._served[member.file_name].values()
        told = [one.report(stored=False) for one in served if one.ends is not None]
        self._drop(member)
        outcome = Outcome(FAILED, member.name, member.generation, failure=failure)
        self._tell((*told, outcome))

    def _drop(self, member: Member) -> None:
        self._planner.remove(member.file_name)
        for one in self._served.pop(member.file_name).values():
            task.drop_state(member, one.part)
