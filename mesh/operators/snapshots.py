"""``output snapshot every t``: again and again what is there.

Without a window that is the last event, or the last one of each group.  With one it is what is in
the window, each event with its own time:

- with no plain aggregator in ``select`` (``sum(a)``, not ``sum(a) + 1``), all events;
- with some, all events, each with the newest values of the aggregators; with ``group by`` the
  oldest event of each group, with the group's newest values;
- with nothing but aggregators, the last event, unless that one was leaving; with ``group by`` the
  last of each group that has an event, be it one that was leaving, which goes out as such.

An event that leaves takes away the first one that is alike in all attributes but the aggregators.
So what ``having`` lets in and not out again stays, and an aggregator inside of an expression, which
has another value by then, keeps everything there.  Where nothing is grouped a batch window's reset
takes away all that is there, before the events of the new batch come.

Source: observed on Siddhi 5.1.7.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from mesh.operators.base import CURRENT, EXPIRED, RESET, Events, State, no_events
from mesh.operators.holding import Births, ticked
from mesh.plan.bound import AggregateCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.operators.base import Longs, Timeline
    from mesh.plan.bound import BoundQuery

Values = tuple[Any, ...]
#: Time, kind and attributes.
Line = tuple[int, int, Values]
#: What is stored of an event: its group before its line.
Stored = tuple[int, int, int, Values]


class Content(Protocol):
    """What is there for one partition instance."""

    def add(self, group: int, line: Line) -> None:
        """Take an event that comes in or leaves, or, where nothing is grouped, one that resets."""
        ...

    def lines(self) -> list[Line]:
        """What a snapshot shows."""
        ...

    def stored(self) -> Iterator[Stored]:
        """What ``fill`` takes, in order."""
        ...

    def fill(self, stored: Sequence[Stored]) -> None:
        """Take over what another one had stored."""
        ...


class LastOnes:
    """The last event of each group."""

    def __init__(self) -> None:
        self._lines: dict[int, Line] = {}

    def add(self, group: int, line: Line) -> None:
        """A group keeps its place."""
        self._lines[group] = line

    def lines(self) -> list[Line]:
        """One of each group, in the order in which the groups came."""
        return list(self._lines.values())

    def stored(self) -> Iterator[Stored]:
        """As the lines."""
        return ((group, *line) for group, line in self._lines.items())

    def fill(self, stored: Sequence[Stored]) -> None:
        """Take them over."""
        self._lines = {group: (time_ms, kind, values) for group, time_ms, kind, values in stored}


class LastPresent:
    """The last event, unless that is one that leaves."""

    def __init__(self) -> None:
        self._line: Line | None = None

    def add(self, group: int, line: Line) -> None:
        """What leaves empties it, and what resets."""
        self._line = line if line[1] == CURRENT else None

    def lines(self) -> list[Line]:
        """One at most."""
        return [] if self._line is None else [self._line]

    def stored(self) -> Iterator[Stored]:
        """As the lines."""
        return ((0, *line) for line in self.lines())

    def fill(self, stored: Sequence[Stored]) -> None:
        """Take it over."""
        for _, time_ms, kind, values in stored:
            self._line = (time_ms, kind, values)


class LastOfGroups:
    """The last event of each group, for as long as some of the group's are there."""

    def __init__(self) -> None:
        self._lines: dict[int, Line] = {}
        self._counts: dict[int, int] = {}

    def add(self, group: int, line: Line) -> None:
        """A group keeps its place until a snapshot finds that it has no events."""
        if line[1] == EXPIRED and group not in self._counts:
            return
        self._counts[group] = self._counts.get(group, 0) + (1 if line[1] == CURRENT else -1)
        self._lines[group] = line

    def lines(self) -> list[Line]:
        """One of each group; those that have no events are forgotten."""
        for group in [group for group, count in self._counts.items() if count <= 0]:
            del self._counts[group], self._lines[group]
        return list(self._lines.values())

    def stored(self) -> Iterator[Stored]:
        """As the lines, with the count in the place of the kind's tens."""
        for group, (time_ms, kind, values) in self._lines.items():
            yield group, time_ms, kind + 10 * self._counts[group], values

    def fill(self, stored: Sequence[Stored]) -> None:
        """Take them over."""
        for group, time_ms, code, values in stored:
            self._lines[group] = (time_ms, code % 10, values)
            self._counts[group] = code // 10


class InWindow:
    """What is in the window, aggregators with their newest values.

    ``aggregates``: which attributes are aggregators; ``grouped``: whether one event of each group
    is shown, with the group's values.
    """

    def __init__(self, aggregates: Sequence[int], grouped: bool) -> None:
        self._aggregates = frozenset(aggregates)
        self._grouped = grouped
        #: By number, in the order they came.
        self._events: dict[int, tuple[int, Line]] = {}
        self._alike: dict[tuple[int, str], deque[int]] = {}
        self._newest: dict[int, Values] = {}
        self._count = 0

    def _key(self, group: int, values: Values) -> tuple[int, str]:
        plain = tuple(v for n, v in enumerate(values) if n not in self._aggregates)
        # As text NaN equals itself, and 0.0 does not equal -0.0.
        return group, repr(plain)

    def add(self, group: int, line: Line) -> None:
        """What leaves takes the first that is alike with it; without one it means nothing."""
        _, kind, values = line
        if kind == RESET:
            self._events.clear()
            self._alike.clear()
            self._newest.clear()
            return
        if not self._grouped:
            group = 0
        key = self._key(group, values)
        if kind == EXPIRED and key not in self._alike:
            return
        if self._aggregates:
            self._newest[group] = values
        if kind == CURRENT:
            self._events[self._count] = (group, line)
            self._alike.setdefault(key, deque()).append(self._count)
            self._count += 1
        else:
            numbers = self._alike[key]
            del self._events[numbers.popleft()]
            if not numbers:
                del self._alike[key]

    def lines(self) -> list[Line]:
        """All of them, or one of each group."""
        shown: list[Line] = []
        seen: set[int] = set()
        for group, (time_ms, kind, values) in self._events.values():
            if self._grouped and group in seen:
                continue
            seen.add(group)
            newest = self._newest.get(group, values)
            mixed = tuple(
                newest[n] if n in self._aggregates else value for n, value in enumerate(values)
            )
            shown.append((time_ms, kind, mixed))
        return shown

    def stored(self) -> Iterator[Stored]:
        """The events, and behind them the newest values, as if they left."""
        for group, line in self._events.values():
            yield (group, *line)
        present = {group for group, _ in self._events.values()}
        for group, values in self._newest.items():
            if group in present:
                yield group, 0, EXPIRED, values

    def fill(self, stored: Sequence[Stored]) -> None:
        """Take them over."""
        for group, time_ms, kind, values in stored:
            if kind == CURRENT:
                self.add(group, (time_ms, kind, values))
            else:
                self._newest[group] = values


def _content(query: BoundQuery, windowed: bool) -> Content:
    """An empty one, of the kind that ``query`` needs."""
    aggregates = [
        n for n, output in enumerate(query.outputs) if isinstance(output.expression, AggregateCall)
    ]
    if not windowed:
        return LastOnes()
    if len(aggregates) == len(query.outputs):
        return LastOfGroups() if query.group_by else LastPresent()
    return InWindow(aggregates, grouped=bool(aggregates and query.group_by))


class Snapshots:
    """The rate limit of one query; see above."""

    def __init__(
        self, query: BoundQuery, schema: pa.Schema, windowed: bool, timer_path: int
    ) -> None:
        assert query.rate is not None, "it is what is made"
        self._query = query
        self._windowed = windowed
        self._every_ms = query.rate.every
        self._schema = schema
        self._timer_path = timer_path
        self._births = Births()
        self._contents: dict[int, Content] = {}
        #: Timers: due, turn, instance.  Who has nothing to show has none.
        self._timers: list[tuple[int, int, int]] = []
        self._timed: set[int] = set()
        self._rows = 0

    def begin(self, instance: Longs, clock_ms: Longs) -> None:
        """Timers count from there."""
        self._births.note(instance, clock_ms)

    def process(self, events: Events, groups: Longs, timeline: Timeline) -> Events:
        """What ticks up to now show, a chunk for each instance."""
        out: list[tuple[int, int, list[Line]]] = []
        self._rows += len(events)
        columns = zip(
            events.instance.tolist(), events.clock_ms.tolist(), groups.tolist(),
            events.time_ms.tolist(), events.kind.tolist(),
            _values(events.rows), strict=True,
        )  # fmt: skip
        for instance, clock_ms, group, time_ms, kind, values in columns:
            self._tick(clock_ms, out)
            if timeline.playback and time_ms > clock_ms and kind != RESET:
                # A window's timer fires before all ticks then; yet each event takes one at most,
                # be there nothing to show.
                self._set_timer(instance, clock_ms)
                self._tick(time_ms, out, at_most=1)
            content = self._contents.get(instance)
            if content is None:
                content = self._contents[instance] = _content(self._query, self._windowed)
            content.add(group, (time_ms, kind, values))
            self._set_timer(instance, clock_ms)
        self._tick(timeline.now_ms, out)
        return self._shown(out, timeline)

    def _set_timer(self, instance: int, clock_ms: int) -> None:
        if instance in self._timed:
            return
        whose = np.array([instance])
        due = self._births.after(whose, np.array([clock_ms]), self._every_ms)
        turn = self._births.turn(whose)
        heapq.heappush(self._timers, (int(due[0]), int(turn[0]), instance))
        self._timed.add(instance)

    def _tick(
        self, now_ms: int, out: list[tuple[int, int, list[Line]]], at_most: int | None = None
    ) -> None:
        count = 0
        while self._timers and self._timers[0][0] <= now_ms and count != at_most:
            count += 1
            due_ms, turn, instance = self._timers[0]
            lines = self._contents[instance].lines() if instance in self._contents else []
            if lines:
                out.append((due_ms, instance, lines))
            if lines or at_most is not None:
                heapq.heapreplace(self._timers, (due_ms + self._every_ms, turn, instance))
            else:
                heapq.heappop(self._timers)
                self._timed.discard(instance)

    def _shown(self, out: list[tuple[int, int, list[Line]]], timeline: Timeline) -> Events:
        if not out:
            return no_events(self._schema)
        lines = [line for _, _, lines in out for line in lines]
        lengths = [len(lines) for _, _, lines in out]
        due_ms = np.repeat(np.array([due for due, _, _ in out], dtype=np.int64), lengths)
        instance = np.repeat(np.array([one for _, one, _ in out], dtype=np.int64), lengths)
        none = np.zeros(len(lines), dtype=np.int64)
        events = Events(
            np.array([time_ms for time_ms, _, _ in lines], dtype=np.int64),
            none, none, none, none,
            np.array([kind for _, kind, _ in lines], dtype=np.int8),
            instance,
            _rows([values for _, _, values in lines], self._schema),
        )  # fmt: skip
        return ticked(events, due_ms, self._timer_path, timeline)

    def next_time(self) -> int | None:
        """The next tick that may show something."""
        return self._timers[0][0] if self._timers else None

    def forget(self, instances: Longs, groups: Longs) -> None:
        """Drop what is there of ``instances``, and their timers."""
        gone = set(instances.tolist())
        for instance in gone:
            self._contents.pop(instance, None)
            self._timed.discard(instance)
        self._timers = [timer for timer in self._timers if timer[2] not in gone]
        heapq.heapify(self._timers)
        self._births.forget(instances)
        self._rows += 1

    def snapshot(self) -> State:
        """What is there, and the timers."""
        births = self._births.snapshot()
        stored = [
            (instance, *line)
            for instance, content in self._contents.items()
            for line in content.stored()
        ]
        numbers = np.array([line[:4] for line in stored], dtype=np.int64).reshape(len(stored), 4)
        columns = [pa.array(numbers[:, n]) for n in range(4)]
        rows = _rows([line[4] for line in stored], self._schema)
        names = ["#instance", "#group", "#time_ms", "#kind", *self._schema.names]
        piece = pa.RecordBatch.from_arrays([*columns, *rows.columns], names=names)
        pieces = {**births.pieces, f"there-{self._rows}": piece}
        return State(pieces, {"rows": self._rows, "timers": sorted(self._timers)})

    def restore(self, state: State) -> None:
        """Take it over."""
        scalars: Any = state.scalars
        self._rows = scalars["rows"]
        self._timers = [(due, turn, instance) for due, turn, instance in scalars["timers"]]
        self._timed = {instance for _, _, instance in self._timers}
        self._contents = {}
        for name, piece in state.pieces.items():
            if name.startswith("births-"):
                self._births.restore(State({name: piece}))
                continue
            rows = pa.RecordBatch.from_arrays(piece.columns[4:], schema=self._schema)
            lines: dict[int, list[Stored]] = {}
            numbers = zip(*(column.to_pylist() for column in piece.columns[:4]), strict=True)
            for (instance, group, time_ms, kind), values in zip(
                numbers, _values(rows), strict=True
            ):
                lines.setdefault(instance, []).append((group, time_ms, kind, values))
            for instance, stored in lines.items():
                self._contents[instance] = _content(self._query, self._windowed)
                self._contents[instance].fill(stored)


def _values(rows: pa.RecordBatch) -> list[Values]:
    columns = [column.to_pylist() for column in rows.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * len(rows)


def _rows(lines: Sequence[Values], schema: pa.Schema) -> pa.RecordBatch:
    columns = list(zip(*lines, strict=True)) if lines else [()] * len(schema)
    arrays = [pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
