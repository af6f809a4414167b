"""``output snapshot every t``: emits the current result again and again.

Without a window that is the last event, or the last one of each group.  With one it is the content
of the window, each event with its own time:

- with no plain aggregator in ``select`` (``sum(a)``, not ``sum(a) + 1``), all events;
- with some, all events, each with the newest values of the aggregators; with ``group by`` the
  oldest event of each group, with the group's newest values;
- with nothing but aggregators, the last event, unless it is an expired one; with ``group by`` the
  last of each group that has an event; an expired one is emitted as such.

An expired event removes the first one that is equal in all attributes but the aggregators.  So an
event that ``having`` accepts on arrival but not on expiry stays, and an aggregator inside an
expression, which has another value by then, keeps everything.  Without ``group by`` the reset of a
batch window removes all events before those of the new batch arrive.

Source: observed on Siddhi 5.1.7.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.operators.base import BEFORE_ALL, RESET, EventBatch, State, namespaced, no_events, subset
from mesh.operators.expressions import current
from mesh.operators.gaps import later_ms
from mesh.operators.native import BOOL1, LONG1, READ1, bare, types
from mesh.operators.output_rate.limits import InstanceTimers, ticked
from mesh.operators.output_rate.live_rows import LiveRows, Shows
from mesh.operators.select.hashing import more_rows
from mesh.operators.state.range_pieces import cut, joined, table
from mesh.operators.windows import kind_of
from mesh.plan.bound import AggregateCall, BoundStream

if TYPE_CHECKING:
    from mesh.operators.base import Bools, Longs, Timeline
    from mesh.plan.bound import BoundQuery


@bare(
    types.int64(
        types.int64, types.int64, READ1, READ1, READ1, BOOL1, READ1, types.int64, BOOL1,
        LONG1,
    )
)  # fmt: skip
def _up_to_tick(first, due_ms, clock_ms, time_ms, instance, late, start_ms, every_ms, timed, new):  # type: ignore[no-untyped-def]
    """The end of the events from ``first`` on that precede the next tick, ``due_ms``.

    ``late``: events before which one fires that is due up to their own time; that of ``first`` has
    fired.  ``timed``: whether an instance has a timer.  The first event of one that has none sets
    it; such events are written to ``new`` after their number.
    """
    count = 0
    for e in range(first, len(clock_ms)):
        if e > first and clock_ms[e] >= due_ms:
            new[0] = count
            return e
        i = instance[e]
        if not timed[i]:
            timed[i] = True
            count += 1
            new[count] = e
            ticks = (clock_ms[e] - start_ms[i]) // every_ms + 1
            due_ms = min(due_ms, start_ms[i] + ticks * every_ms)
        if e > first and late[e] and time_ms[e] >= due_ms:
            new[0] = count
            return e
    new[0] = count
    return len(clock_ms)


def _presence(query: BoundQuery, schema: pa.Schema, windowed: bool) -> LiveRows:
    """Empty rows to show, by the rule that ``query`` needs."""
    aggregates = [
        n for n, output in enumerate(query.outputs) if isinstance(output.expression, AggregateCall)
    ]
    is_grouped = bool(query.group_by)
    if not windowed:
        return LiveRows(Shows.LAST, schema, aggregates, grouped=is_grouped)
    if len(aggregates) == len(query.outputs):
        shows = Shows.LAST_OF_GROUPS if is_grouped else Shows.LAST_PRESENT
        return LiveRows(shows, schema, aggregates, grouped=is_grouped)
    return LiveRows(Shows.ALL, schema, aggregates, grouped=bool(aggregates) and is_grouped)


class Snapshots:
    """Snapshots of one query's output; see the module."""

    def __init__(
        self, query: BoundQuery, schema: pa.Schema, windowed: bool, timer_path: int
    ) -> None:
        assert query.rate is not None, "it is what is made"
        self._every_ms = query.rate.every
        self._schema = schema
        self._timer_path = timer_path
        # Resets there have the time of their batch's first event, otherwise the present time.
        window = query.input.window if isinstance(query.input, BoundStream) else None
        self._resets_late = window is not None and kind_of(window).resets_at_batch_time
        self._births = InstanceTimers()
        self._presence = _presence(query, schema, windowed)
        #: Timers: due, turn, instance.  An instance without rows to emit has none.
        self._timers: list[tuple[int, int, int]] = []
        self._timed: Bools = np.zeros(0, dtype=np.bool_)
        #: Ticks of this run: due time, instance, number of rows shown.
        self._ticks: list[tuple[int, int, int]] = []
        current().periodic.append(self)

    def begin(self, instance: Longs, clock_ms: Longs) -> None:
        """Start the timers at these times."""
        self._births.note(instance, clock_ms)

    def process(self, events: EventBatch, groups: Longs, timeline: Timeline) -> EventBatch:
        """The rows that ticks up to now show, a chunk for each instance."""
        self._ticks = []
        if len(events):
            self._take(events, groups, timeline)
        self._tick(timeline.now_ms)
        output = self._shown(timeline)
        self._presence.sweep()
        return output

    def _take(self, events: EventBatch, groups: Longs, timeline: Timeline) -> None:
        presence = self._presence
        coming = presence.come(events.rows, events.time_ms, events.kind, events.instance, groups)
        self._timed = more_rows(self._timed, int(events.instance.max()) + 1)
        late = self._late(events, timeline)
        clocks, new = (
            np.ascontiguousarray(events.clock_ms),
            np.empty(len(events) + 1, dtype=np.int64),
        )
        at = 0
        while at < len(events):
            self._tick(int(clocks[at]))
            if late[at]:
                # Each such event causes at most one tick, even if there is no output.
                self._set_timers(coming.instance[at : at + 1], clocks[at : at + 1])
                self._tick(int(coming.time_ms[at]), at_most=1)
            stop = _up_to_tick(
                at, self._timers[0][0] if self._timers else BEFORE_ALL, clocks, coming.time_ms,
                coming.instance, late, self._births.start_ms, self._every_ms, self._timed, new,
            )  # fmt: skip
            rows = new[1 : new[0] + 1]
            self._push_timers(coming.instance[rows], clocks[rows])
            presence.follow(coming, at, stop)
            at = stop

    def _late(self, events: EventBatch, timeline: Timeline) -> Bools:
        """The events before which a tick may be due: a window's timer fires before all ticks then.

        In playback the same holds for events with a later time than the present.
        """
        if not timeline.playback:
            return np.zeros(len(events), dtype=np.bool_)
        is_reset = events.kind == RESET
        if not self._resets_late:
            is_reset &= events.path == self._timer_path
        late: Bools = (events.time_ms > events.clock_ms) & ~is_reset
        return late

    def _set_timers(self, instances: Longs, clock_ms: Longs) -> None:
        """Set the timers of those of ``instances``, all different, that have none."""
        idle = ~self._timed[instances]
        self._timed[instances] = True
        self._push_timers(instances[idle], clock_ms[idle])

    def _push_timers(self, instances: Longs, clock_ms: Longs) -> None:
        if len(instances):
            due = self._births.after(instances, clock_ms, self._every_ms).tolist()
            turn = self._births.turn(instances).tolist()
            for timer in zip(due, turn, instances.tolist(), strict=True):
                heapq.heappush(self._timers, timer)

    def _tick(self, now_ms: int, at_most: int | None = None) -> None:
        count = 0
        while self._timers and self._timers[0][0] <= now_ms and count != at_most:
            count += 1
            due_ms, turn, instance = self._timers[0]
            shown = self._presence.show(instance)
            if shown:
                self._ticks.append((due_ms, instance, shown))
            if shown or at_most is not None:
                heapq.heapreplace(self._timers, (due_ms + self._every_ms, turn, instance))
            else:
                heapq.heappop(self._timers)
                self._timed[instance] = False

    def _shown(self, timeline: Timeline) -> EventBatch:
        if not self._ticks:
            return no_events(self._schema)
        due_ms, instance, lengths = np.array(self._ticks, dtype=np.int64).T
        time_ms, kind, rows = self._presence.shown()
        none = np.zeros(len(time_ms), dtype=np.int64)
        instance = np.repeat(instance, lengths)
        events = EventBatch(time_ms, none, none, none, none, kind, instance, rows)
        return ticked(events, np.repeat(due_ms, lengths), self._timer_path, timeline)

    def next_time(self) -> int | None:
        """The next tick that may show something."""
        return self._timers[0][0] if self._timers else None

    @property
    def period_ms(self) -> int:
        """The time between two ticks."""
        return self._every_ms

    def skip(self, to_ms: int) -> None:
        """Move ticks that are due before ``to_ms`` up to it or after it."""
        self._timers = [
            (later_ms(due_ms, self._every_ms, to_ms), turn, instance)
            for due_ms, turn, instance in self._timers
        ]
        heapq.heapify(self._timers)

    def forget(self, instances: Longs, groups: Longs) -> None:
        """Drop the content of ``instances``, and their timers."""
        self._presence.forget(instances)
        self._timed[instances[instances < len(self._timed)]] = False
        gone = set(instances.tolist())
        self._timers = [timer for timer in self._timers if timer[2] not in gone]
        heapq.heapify(self._timers)
        self._births.forget(instances)

    def snapshot(self) -> State:
        """The rows to show, and the timers."""
        due, turn, instance = np.array(self._timers, dtype=np.int64).reshape(-1, 3).T
        order = np.argsort(instance)
        columns = {"due_ms": pa.array(due[order]), "turn": pa.array(turn[order])}
        timers = table(instance[order], columns)
        return namespaced(
            {
                "births": self._births.snapshot(),
                "there": self._presence.snapshot(),
                "timers": State(cut("timers", timers)),
            }
        )

    def restore(self, state: State) -> None:
        """Restore content and timers."""
        self._births.restore(subset(state, "births"))
        self._presence.restore(subset(state, "there"))
        timers = subset(state, "timers").pieces
        none = np.empty(0, dtype=np.int64)
        instance, due, turn = (
            [column.to_numpy() for column in joined(timers).columns] if timers else [none] * 3
        )
        self._put_timers(list(zip(due.tolist(), turn.tolist(), instance.tolist(), strict=True)))

    def _put_timers(self, timers: list[tuple[int, int, int]]) -> None:
        self._timers = timers
        heapq.heapify(timers)
        timed = np.array([instance for _, _, instance in timers], dtype=np.int64)
        self._timed = np.zeros(int(timed.max(initial=-1)) + 1, dtype=np.bool_)
        self._timed[timed] = True
