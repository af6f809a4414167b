"""Rates and backlogs of instances, from the counters in their reports.

    reports of workers ──▶ Rates ──▶ Flow of each instance ──▶ sums by group and app

A worker reports about once a second.  Rates are differences of two reports over the difference of
their times, both by the clock of one worker, so clocks are never compared.

The age of a backlog needs no time of any message.  The number of arrivals is that of messages read
plus that of messages waiting.  The oldest waiting message arrived by the first report whose number
of arrivals exceeds the number that is read now: its age is exact but for the time between two
reports.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Final

from mesh.model.histogram import LATENCY_BOUNDS_S, merged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.control.snapshot import ClusterSnapshot, Revisioned
    from mesh.model.cluster import Assignment, InstanceStatus

#: A report that is older says nothing about the present rate, seconds.
REPORT_MAX_S: Final = 10.0
#: Buckets of a latency.
LATENCY_BUCKETS: Final = len(LATENCY_BOUNDS_S) + 1
_NO_LATENCIES: Final = (0.0,) * LATENCY_BUCKETS
#: Names of the values of a flow that have a history.
FLOW_FIELDS: Final = ("events_in", "events_out", "errors", "backlog", "backlog_s", "batch_s")
#: Arrivals that are kept for each instance.
ARRIVALS_MAX: Final = 400


@dataclass(frozen=True, slots=True)
class Flow:
    """Flow of events through an instance, a group or an app."""

    #: Messages read, per second.
    messages: float = 0.0
    #: Events in them, events emitted, and events failed, each per second.
    events_in: float = 0.0
    events_out: float = 0.0
    errors: float = 0.0
    #: Messages that wait.
    backlog: int = 0
    #: Age of the oldest of them, seconds: since the first report that counts it, so a lower bound.
    backlog_s: float = 0.0
    #: Median duration of a batch, seconds.
    batch_s: float = 0.0
    #: Events by the time from the broker's storing of them to the publishing of their effect, per
    #: second: one number for each bucket (``mesh.model.histogram``), or none at all.
    latencies: tuple[float, ...] = ()
    #: Its row in the metrics history: the values of ``FLOW_FIELDS``, and all buckets.
    row: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = (getattr(self, name) for name in FLOW_FIELDS)
        object.__setattr__(self, "row", (*values, *(self.latencies or _NO_LATENCIES)))


#: Of an instance of which nothing is known.
NO_FLOW: Final = Flow()


def total(flows: Iterable[Flow]) -> Flow:
    """Sums of several flows; the greatest of ages and durations."""
    all_flows = list(flows)
    if len(all_flows) == 1:
        return all_flows[0]
    return Flow(
        sum(flow.messages for flow in all_flows),
        sum(flow.events_in for flow in all_flows),
        sum(flow.events_out for flow in all_flows),
        sum(flow.errors for flow in all_flows),
        sum(flow.backlog for flow in all_flows),
        max((flow.backlog_s for flow in all_flows), default=0.0),
        max((flow.batch_s for flow in all_flows), default=0.0),
        reduce(merged, (flow.latencies for flow in all_flows if flow.latencies), ()),
    )


@dataclass(slots=True)
class _Sample:
    """The last report of an instance in its epoch, and what it was compared with."""

    status: InstanceStatus
    flow: Flow
    #: Time of a report in milliseconds, and messages that had arrived by then: first the report
    #: that counts the oldest waiting message, then those that count further ones.  Empty if none
    #: waits.
    arrivals: deque[tuple[int, int]] = field(default_factory=deque)
    #: No report has come for so long that nothing flows.
    is_at_rest: bool = False


class Rates:
    """The flows of all instances, as of the last call of ``update``."""

    def __init__(self) -> None:
        self._samples: dict[str, _Sample] = {}
        self._assignments: tuple[Revisioned[Assignment], ...] = ()
        self._worker: dict[str, str] = {}
        self._epochs: dict[str, int] = {}
        #: Placed instances by app and group.
        self.groups: dict[tuple[str, str], list[str]] = {}
        #: Instances that have changed their worker since the start, by app.
        self.moves: dict[str, int] = {}

    def update(self, snapshot: ClusterSnapshot) -> None:
        """Take the reports of a snapshot."""
        # The tuple is the same one until an assignment changes.
        if snapshot.assignments is not self._assignments:
            self._place(snapshot.assignments)
        self._samples = {
            seen.value.instance: self._compared(seen, snapshot.now_s)
            for seen in snapshot.statuses
            if self._epochs.get(seen.value.instance) == seen.value.epoch
        }
        if self.moves:
            apps = {a.value.spec.name for a in snapshot.apps}
            self.moves = {app: count for app, count in self.moves.items() if app in apps}

    def _place(self, assignments: tuple[Revisioned[Assignment], ...]) -> None:
        groups: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for placed in assignments:
            one = placed.value
            if self._worker.get(one.instance, one.worker) != one.worker:
                self.moves[one.app] = self.moves.get(one.app, 0) + 1
            groups[one.app, one.group].append(one.instance)
        self._assignments, self.groups = assignments, dict(groups)
        self._worker = {a.value.instance: a.value.worker for a in assignments}
        self._epochs = {a.value.instance: a.value.epoch for a in assignments}

    def flow(self, instance: str) -> Flow:
        """The flow of one instance; none while nothing is known."""
        sample = self._samples.get(instance)
        return sample.flow if sample is not None else NO_FLOW

    def _compared(self, seen: Revisioned[InstanceStatus], now_s: float) -> _Sample:
        status = seen.value
        before = self._samples.get(status.instance)
        if before is None or before.status.epoch != status.epoch:
            return _Sample(status, _flow(status, status, 0.0), _arrived(deque(), 0, status))
        if before.status is status or before.status.at_ms == status.at_ms:
            if now_s - seen.seen_at_s > REPORT_MAX_S and not before.is_at_rest:
                flow = before.flow
                before.flow = Flow(0.0, 0.0, 0.0, 0.0, flow.backlog, flow.backlog_s, flow.batch_s)
                before.is_at_rest = True
            return before
        total_before = before.status.messages_in + before.status.behind
        arrivals = _arrived(before.arrivals, total_before, status)
        age_s = max(0.0, (status.at_ms - arrivals[0][0]) / 1000) if arrivals else 0.0
        return _Sample(status, _flow(before.status, status, age_s), arrivals)


def _arrived(
    arrivals: deque[tuple[int, int]], total_before: int, status: InstanceStatus
) -> deque[tuple[int, int]]:
    """``arrivals`` with this report, without what was read by now.

    ``total_before`` messages had arrived by the report before.  A smaller number now means that
    waiting messages were deleted, the oldest first; they count as read.
    """
    total = status.messages_in + status.behind
    deleted = max(0, total_before - total)
    if total > total_before or (status.behind and not arrivals):
        arrivals.append((status.at_ms, total))
    while arrivals and arrivals[0][1] - deleted <= status.messages_in:
        arrivals.popleft()
    if deleted:
        arrivals = deque((at_ms, count - deleted) for at_ms, count in arrivals)
    if len(arrivals) > ARRIVALS_MAX:
        return deque([*list(arrivals)[::2], arrivals[-1]])
    return arrivals


def _flow(before: InstanceStatus, now: InstanceStatus, age_s: float) -> Flow:
    passed_s = (now.at_ms - before.at_ms) / 1000

    def rate(was: int, there: int) -> float:
        return max(0, there - was) / passed_s if passed_s > 0 else 0.0

    return Flow(
        rate(before.messages_in, now.messages_in),
        rate(before.events_in, now.events_in),
        rate(before.events_out, now.events_out),
        rate(before.errors, now.errors),
        now.behind,
        age_s,
        (now.batch_ms_p50 or 0.0) / 1000,
        _latencies(before.latencies, now.latencies, passed_s),
    )


def _latencies(before: tuple[int, ...], now: tuple[int, ...], passed_s: float) -> tuple[float, ...]:
    """The latencies of events since the report before, per second."""
    if passed_s <= 0 or before == now or len(now) != LATENCY_BUCKETS:
        return ()
    if len(before) != LATENCY_BUCKETS:
        return tuple(count / passed_s for count in now)
    return tuple(max(0, there - was) / passed_s for was, there in zip(before, now, strict=True))
