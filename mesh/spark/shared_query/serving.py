"""Loop of a slot: serves parts as their messages come, and reports where they are.

A part's state stays in memory between runs.  It is stored, and the part's position reported, when
the part has worked and its last report is a while ago.  Without a crash nothing reads it.  After
one, the instance goes back to a stored position, and its markers show which output exists.

The output of small runs is sent, and the next run does not wait until the server has acknowledged
it: that is asked before the report, once for all runs since the last one.

Counts of a part's queries, windows and tables since its last report.

The operators add to counters once a batch; they are read once a report.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mesh.model.cluster import ElementCounts
from mesh.model.histogram import Histogram
from mesh.spark import instance_metrics, producers, stateless_task
from mesh.spark.shared_query import pacing, task
from mesh.spark.shared_query.background import LARGE_RUN, LARGE_RUN_BYTES, BackgroundPublisher
from mesh.spark.shared_query.members import ADMITTED, FAILED, REMOVED, UNANSWERED, WORK, Outcome
from mesh.spark.shared_query.planner import DueQueue, RoundPlanner
from pyspark_nats.errors import UnavailableError
from pyspark_nats.protocol import connection
from pyspark_nats.sink import publish, resting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from mesh.spark.instance_io import InstanceIO
    from mesh.spark.shared_query.at_work import AtWork, RemoteActivity
    from mesh.spark.shared_query.members import InputPartition, Member, Offsets, WorkItem
    from mesh.spark.shared_query.part_position import PartPosition
    from mesh.spark.shared_query.task import LiveState, PartRun
    from pyspark_nats.protocol.connection_options import ConnectionOptions
    from pyspark_nats.sink.publish import RowPublisher


T = TypeVar("T")

#: Interval of the reports on a busy part, seconds.
REPORT_S: Final = 1.0
#: Longest time for which output is not known to be stored, seconds.
CONFIRM_S: Final = 1.0

#: Time for which the output of a small run waits for that of others, to be sent with it, seconds.
_TOGETHER_S: Final = 0.005

#: Most reports, and confirmations, of one round: many parts may be due at the same time, and the
#: others wait for them.  Those of several parts wait for NATS together.
_REPORTS_MAX: Final = 64


@dataclass(slots=True)
class ElementCounter:
    """The counters of one part, as of its last report."""

    _counters: object = field(default=None, repr=False)
    _seen: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def take(self, io: InstanceIO, key: str, live: LiveState | None) -> tuple[ElementCounts, ...]:
        """Events since the last call, and rows now; elements without any are left out."""
        if io.group.stateful:
            if live is None:
                return ()
            executor = live.partition.executor
            figures: Iterable[tuple[str, str, int, int, int | None]] = executor.figures()
            counters: object = executor
        else:
            counters, figures = stateless_task.figures(io, key)
        if counters is not self._counters:
            # Others count now, from 0.
            self._counters, self._seen = counters, {}
        counts = []
        for kind, name, events_in, events_out, rows in figures:
            old_in, old_out = self._seen.get((kind, name), (0, 0))
            self._seen[kind, name] = events_in, events_out
            if events_in > old_in or events_out > old_out or rows:
                counts.append(
                    ElementCounts(kind, name, events_in - old_in, events_out - old_out, rows)
                )
        return tuple(counts)


@dataclass(eq=False, slots=True)
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
    #: Keeps output that is not acknowledged.
    publisher: RowPublisher | None = None
    #: Time of the next report, if there is something to report, monotonic, seconds.
    due_s: float = 0.0
    #: Where it reads, and the last sequence that had come at the last report.
    place: PartPosition | None = None
    reported_seen: int = 0

    @property
    def is_unreported(self) -> bool:
        """Whether there is something to report; markers come without a run."""
        return self.ends is not None or (
            self.place is not None and self.place.seen > self.reported_seen
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
        reports = Outcome(
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
            *instance_metrics.count(self.times),
            self.elements.take(self.member.io, self.part.key, self.live),
        )
        self.reported_seen = self.place.seen if self.place is not None else 0
        self.batches, self.times = Histogram(), []
        self.messages = self.events_in = self.events_out = self.errors = self.runs = 0
        self.took_ms = 0.0
        self.ends = self.live = None
        return reports


class Serving:
    """The parts of one slot; for one thread."""

    def __init__(
        self,
        options: ConnectionOptions,
        tell: Callable[[tuple[Outcome, ...]], None],
        at_work: AtWork | RemoteActivity,
        *,
        report_s: float = REPORT_S,
    ) -> None:
        """A slot without parts.

        Args:
            options: of the connection to NATS.
            tell: receives the outcomes, in order.
            at_work: shows the present work.
            report_s: interval of the reports on a busy part.
        """
        #: The parts, where they read, and their messages.
        self.planner = RoundPlanner(options)
        self.tell = tell
        self._at_work = at_work
        self.report_s = report_s
        #: See the constants.
        self.confirm_s, self.together_s, self.reports_max = CONFIRM_S, _TOGETHER_S, _REPORTS_MAX
        self.background = BackgroundPublisher()
        #: Parts by the file name of their member and their key.
        self.served: dict[str, dict[str, _Served]] = {}
        #: Of parts with something to report, and of those with output that is not acknowledged.
        self.reports: DueQueue[_Served] = DueQueue()
        self.confirms: DueQueue[_Served] = DueQueue()
        #: Parts whose output waits for an answer of the server, in the present runs.
        self._waiting: list[_Served] = []
        #: Processor time of this thread when the present runs began, seconds.
        self._busy_s = 0.0
        #: When an ingest batch has to be ended, or earlier, monotonic, seconds; None for none.
        self._rest_s: float | None = None

    @property
    def calm_s(self) -> float:
        """When a wait last found ``wakes`` not readable, monotonic, seconds; 0 if it is now."""
        return self.planner.calm_s

    @property
    def has_unreported(self) -> bool:
        """Whether there is something to report on a part."""
        return bool(len(self.reports))

    def admit(self, member: Member, keys: Collection[str]) -> None:
        """Serve parts of a member from now on."""
        self.served[member.file_name] = {
            part.key: _Served(member, part) for part in member.parts if part.key in keys
        }
        for item in self.planner.admit(member, keys):
            if item.kind == FAILED:
                self._fail(member, str(item.failure))
                return
            assert item.part is not None
            served, place = self.served[member.file_name], self.planner.place(member, item.part)
            served[item.part.key].place = place
            reports = Outcome(
                ADMITTED, member.name, member.generation, item.part.key, item.ends, read=place.read
            )
            self.tell((reports,))

    def remove(self, name: str) -> None:
        """Serve a member no longer; no effect if it has failed."""
        served = self.served.get(name)
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
        if self._rest_s is None or self._rest_s <= now_s:
            self._rest_s = resting.next_s()
        due_s = min(self.reports.next_s, self.confirms.next_s, self._rest_s or now_s + wait_s)
        items = iter(self.planner.next(max(0.0, min(wait_s, due_s - now_s)), wakes))
        while (item := next(items, None)) is not None:
            with connection.together(resting.PUBLISHING):
                self._do(item, items, between)
        for place in self.planner.advanced():
            served = self.served[place.member.file_name][place.part.key]
            self.reports.set(served, served.due_s)
        self._confirm_all(self.confirms.take(time.monotonic(), self.reports_max))
        self._report()
        if self._rest_s is not None and self._rest_s <= time.monotonic():
            resting.end_idle()

    def close(self) -> None:
        """Close the connections; the parts are not stored."""
        self.background.close()
        self.planner.close()

    # --- work

    def _do(
        self, first: WorkItem, others: Iterator[WorkItem], between: Callable[[], object]
    ) -> None:
        """Do an item, and others while the output of these may wait for each other."""
        ends_s, self._busy_s = time.monotonic() + self.together_s, time.thread_time()
        for item in itertools.chain((first,), others):
            between()
            # The member may have failed or left in this round.
            if self.planner.has(item.member.file_name):
                if item.kind == WORK:
                    self._work(item)
                elif item.kind == REMOVED:
                    self._leave(item.member)
                else:
                    self._fail(item.member, str(item.failure))
            if time.monotonic() >= ends_s:
                break
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            # Its member may have failed or left since.
            if one.publisher is not None and self.planner.has(one.member.file_name):
                self._guarded(one.member, one.publisher.proceed)

    def _work(self, item: WorkItem) -> None:
        member, part = item.member, item.part
        assert part is not None
        # In a backlog, the server stores the output of a run while this thread computes the next.
        came = item.messages if item.behind > 0 else None
        is_large = came is not None and (
            len(came) >= LARGE_RUN or came.data.nbytes >= LARGE_RUN_BYTES
        )
        is_owner = self.background.owner == (member.file_name, part.key)
        if is_large != is_owner:
            self._settle()
            if not self.planner.has(member.file_name):
                return
        served = self.served[member.file_name][part.key]
        if is_large and not self._confirm(served):
            return
        started_s = time.perf_counter()
        run = self._guarded(
            member,
            lambda: (
                task.run(item, self.background)
                if is_large
                else task.run(item, publisher=served.publisher)
            ),
        )
        if run is not None:
            took_ms = (time.perf_counter() - started_s) * 1000
            had_publisher = served.publisher is not None
            served.add(item, run, took_ms)
            self.reports.set(served, served.due_s)
            if served.publisher is None:
                self.confirms.set(served, None)
            elif not had_publisher:
                self.confirms.set(served, self._due_s(time.monotonic(), self.confirm_s))
            busy_ms = took_ms
            if took_ms > pacing.FAIR_MS:
                # With the runs just before, which took little: a system call for each costs more.
                busy_ms = min(took_ms, (time.thread_time() - self._busy_s) * 1000)
            charged_ms = pacing.charged_ms(took_ms, busy_ms)
            read = run.messages * part.options.block_count
            self.planner.ran(item, read, charged_ms, run.timer_ms)
            if served.publisher is not None and served.publisher.is_waiting:
                self._waiting.append(served)

    def _settle(self) -> None:
        """Wait until the output of all runs is published; a member whose is not has failed."""
        if self.background.owner is not None:
            name, key = self.background.owner
            self._guarded(self.served[name][key].member, self.background.wait)

    def _confirm(self, one: _Served) -> bool:
        """Wait until the output of a part is acknowledged; False if its member has failed by it."""
        publisher, one.publisher = one.publisher, None
        self.confirms.set(one, None)
        if publisher is not None:
            self._guarded(one.member, publisher.finish)
        return self.planner.has(one.member.file_name)

    def _confirm_all(self, parts: Collection[_Served]) -> None:
        """``_confirm`` of parts, which wait for NATS together."""
        publishers = [one.publisher for one in parts if one.publisher is not None]
        if len(publishers) > 1:
            with connection.together(resting.PUBLISHING):
                publish.prepare_finish(publishers)
        for one in parts:
            # Its member may have failed at another part.
            if self.planner.has(one.member.file_name):
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

    def _due_s(self, now_s: float, least_s: float) -> float:
        return pacing.part_due_s(now_s, least_s, len(self.reports))

    def _report(self) -> None:
        now_s = time.monotonic()
        reports: list[Outcome] = []
        due = self.reports.take(now_s, self.reports_max)
        if any((one.member.file_name, one.part.key) == self.background.owner for one in due):
            self._settle()
        self._confirm_all(due)
        # No outcome follows a failure.
        for one in due:
            if self.planner.has(one.member.file_name) and one.is_unreported:
                self._stored(one, now_s, reports)
        if reports:
            self.tell(tuple(reports))

    def _stored(self, one: _Served, now_s: float, reports: list[Outcome]) -> bool:
        """Add the report on a part to ``told``; False if its member has failed by that."""
        self._at_work.begin(one.member.name)
        try:
            reports.append(one.report())
        except Exception as error:
            if reports:
                self.tell(tuple(reports))
                reports.clear()
            self._fail(one.member, f"{type(error).__name__}: {error}")
            return False
        finally:
            self._at_work.end()
        one.due_s = self._due_s(now_s, self.report_s)
        return True

    def _leave(self, member: Member) -> None:
        """Store and report all parts of a member, which then does no more work here."""
        if self.background.owner is not None and self.background.owner[0] == member.file_name:
            self._settle()
        if member.file_name not in self.served:
            return
        now_s = time.monotonic()
        reports: list[Outcome] = []
        served = list(self.served[member.file_name].values())
        if not all(self._confirm(one) for one in served):
            return
        for one in served:
            if one.ends is not None and not self._stored(one, now_s, reports):
                return
        resting.end_of(producers.of_parts(member.io, self.served[member.file_name]))
        self._drop(member)
        self.tell((*reports, Outcome(REMOVED, member.name, member.generation)))

    def _fail(self, member: Member, failure: str) -> None:
        self.background.drop(member.file_name)
        served = self.served[member.file_name].values()
        reports = [one.report(stored=False) for one in served if one.ends is not None]
        self._drop(member)
        outcome = Outcome(FAILED, member.name, member.generation, failure=failure)
        self.tell((*reports, outcome))

    def _drop(self, member: Member) -> None:
        self.planner.remove(member.file_name)
        for one in self.served.pop(member.file_name).values():
            self.reports.set(one, None)
            self.confirms.set(one, None)
            task.drop_state(member, one.part)
