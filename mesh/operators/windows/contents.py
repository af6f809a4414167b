"""Contents of a window in Python: the events of one partition instance, and its state in pieces.

Parts of contents, their events and the timers of instances have stable numbers, and are stored in
pieces by ranges of these numbers.  So a change rewrites few pieces.

Periods of batch windows by time, in Python.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from mesh.operators.state.range_pieces import cut, stored, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mesh.model.values import Json, Row

    Pieces = Mapping[str, pa.RecordBatch]

    Lists = Mapping[int, list[tuple[int, int]]]


_PARTS: Final = "contents"
_LISTS: Final = "lists"
_ALARMS: Final = "alarms"
#: Bits of a number that follow those of its instance.
_BITS: Final = 36
_WITHIN: Final = (1 << _BITS) - 1
#: A part of contents as text.
encoded: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Periods:
    """Consecutive periods of one partition instance, from its first event on.

    ``start_ms``: they begin at multiples of ``span_ms`` after it; None: with the first event.
    """

    def __init__(self, span_ms: int, start_ms: int | None) -> None:
        self._span_ms = span_ms
        self._start_ms = start_ms
        self._due_ms: int | None = None
        #: The end of a period is processed with this chunk of events, at this time.
        self._ends_ms: int | None = None

    def enter(self, now_ms: int, to: Emitter) -> None:
        """Begin with an event; at the end of a period its chunk still belongs to it."""
        if self._due_ms is None:
            gone = 0 if self._start_ms is None else (now_ms - self._start_ms) % self._span_ms
            self._due_ms = now_ms + self._span_ms - gone
            to.alarms.append(self._due_ms)
        if self._ends_ms is None:
            self.fire(now_ms, to)

    def fire(self, now_ms: int, to: Emitter) -> None:
        """End the period if its time is over."""
        if self._due_ms is not None and now_ms >= self._due_ms:
            self._due_ms += self._span_ms
            to.alarms.append(self._due_ms)
            self._ends_ms = now_ms

    def end(self) -> int | None:
        """The time at which a period has ended with this chunk; None if none has."""
        ends_ms, self._ends_ms = self._ends_ms, None
        return ends_ms

    def dump(self) -> object:
        """Its state between chunks, as JSON."""
        return self._due_ms

    def load_dump(self, state: Json) -> None:
        """Restore what ``dump`` returned."""
        self._due_ms = state


class Emitter:
    """Receives the events that contents emit and the timers that they set."""

    def __init__(self) -> None:
        self.row: list[int] = []
        self.kind: list[int] = []
        self.time: list[int] = []
        #: Times of timers that were set, in order.
        self.alarms: list[int] = []
        #: Of contents that add attributes, their values for each emitted row.
        self.added: list[Row] = []
        #: Where chunks end within what one call emits.
        self.ends: list[int] = []
        #: The event is the first of all, and arrives at the time at which the window began.
        self.begins = False

    def emit(self, row: int, kind: int, time_ms: int, added: Row = ()) -> None:
        """Emit a row, in the current chunk, with the attributes that the contents add."""
        if added:
            self.added.append(added)
        self.row.append(row)
        self.kind.append(kind)
        self.time.append(time_ms)

    def end_chunk(self) -> None:
        """Begin another chunk with the next event, though the cause is the same."""
        self.ends.append(len(self.row))


class TimerQueue:
    """Times of timers that one partition instance set, in order; ``first``: number of the first."""

    __slots__ = ("first", "times")

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.times: deque[int] = deque()

    def take(self) -> int:
        """Remove and return the first."""
        self.first += 1
        return self.times.popleft()


class WindowContents(Protocol):
    """The events that one instance of a window holds."""

    def take(self, row: int, time_ms: int, now_ms: int, values: Row, to: Emitter) -> None:
        """Add one event; ``values``: of the columns that the window requested."""
        ...

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:
        """Handle a timer that was set to ``due_ms``."""
        ...

    def finish(self, to: Emitter) -> None:
        """Emit the output that follows the events of a chunk."""
        ...

    def rows(self) -> Iterable[int]:
        """The numbers of all rows in it."""
        ...

    def join_rows(self) -> Sequence[tuple[int, int]]:
        """The rows that a join finds: row numbers and times, in order."""
        ...

    def parts(self) -> Iterable[tuple[int, str]]:
        """Its state as JSON texts in numbered parts; the meaning of a number never changes."""
        ...

    def lists(self) -> Iterable[tuple[int, Sequence[tuple[int, int]]]]:
        """Numbered lists of events, row numbers and times; a row is in one of them at most."""
        ...

    def load(
        self, parts: Mapping[int, object], lists: Mapping[int, Sequence[tuple[int, int]]]
    ) -> None:
        """Restore the values of ``parts``, and the ``lists`` that are not empty."""
        ...


class BoundedContents(ABC):
    """A content with a state of one part, because its arguments limit its size; without timers."""

    def fire(self, due_ms: int, now_ms: int, to: Emitter) -> None:  # noqa: B027
        """Do nothing: there are no timers."""

    def finish(self, to: Emitter) -> None:  # noqa: B027
        """Nothing follows the events of a chunk."""

    @abstractmethod
    def dump(self) -> object:
        """Its state as JSON."""

    @abstractmethod
    def load_dump(self, state: object) -> None:
        """Restore what ``dump`` returned."""

    def parts(self) -> Iterable[tuple[int, str]]:
        """One part."""
        return [(0, encoded(self.dump()))]

    def lists(self) -> Iterable[tuple[int, Sequence[tuple[int, int]]]]:
        """No lists."""
        return ()

    def load(
        self, parts: Mapping[int, object], lists: Mapping[int, Sequence[tuple[int, int]]]
    ) -> None:
        """Restore the value of ``parts``."""
        self.load_dump(parts[0])


def pack(
    contents: Mapping[int, WindowContents], alarms: Mapping[int, TimerQueue]
) -> dict[str, pa.RecordBatch]:
    """The pieces of all instances."""
    return (
        cut(_PARTS, _parts_of(contents))
        | cut(_LISTS, _lists_of(contents))
        | cut(_ALARMS, _alarms_of(alarms))
    )


def unpack(
    pieces: Pieces, make: Callable[[], WindowContents]
) -> tuple[dict[int, WindowContents], dict[int, TimerQueue]]:
    """Contents and alarms; ``make`` returns an empty content."""
    lists: defaultdict[int, dict[int, list[tuple[int, int]]]] = defaultdict(dict)
    events = stored(_LISTS, pieces)
    if events is not None:
        _fill(lists, events)
    parts: defaultdict[int, dict[int, Json]] = defaultdict(dict)
    for instance, number, text in _decoded(stored(_PARTS, pieces)):
        parts[instance][number] = json.loads(text)
    contents = {}
    for instance, its_parts in parts.items():
        contents[instance] = content = make()
        content.load(its_parts, lists[instance])
    alarms: dict[int, TimerQueue] = {}
    for instance, number, time in _decoded(stored(_ALARMS, pieces)):
        alarms.setdefault(instance, TimerQueue(number)).times.append(time)
    return contents, alarms


def _parts_of(contents: Mapping[int, WindowContents]) -> pa.RecordBatch:
    numbers: list[int] = []
    texts: list[str] = []
    for instance in sorted(contents):
        for number, text in sorted(contents[instance].parts(), key=itemgetter(0)):
            numbers.append(instance << _BITS | number)
            texts.append(text)
    return table(numbers, {"json": pa.array(texts, pa.string())})


def _lists_of(contents: Mapping[int, WindowContents]) -> pa.RecordBatch:
    of: list[int] = []
    held: list[Sequence[tuple[int, int]]] = []
    for instance, content in contents.items():
        for number, events in content.lists():
            of.append(instance << _BITS | number)
            held.append(events)
    sizes = np.fromiter(map(len, held), np.int64, len(held))
    count = int(sizes.sum())
    flat = chain.from_iterable(chain.from_iterable(held))
    rows, times = np.fromiter(flat, np.int64, 2 * count).reshape(-1, 2).T
    places = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    order = np.argsort(rows, kind="stable")
    return table(
        rows[order],
        {
            "list": pa.array(np.repeat(np.array(of, dtype=np.int64), sizes)[order]),
            "place": pa.array(places[order]),
            "time": pa.array(times[order]),
        },
    )


def _fill(lists: Mapping[int, dict[int, list[tuple[int, int]]]], batch: pa.RecordBatch) -> None:
    """Put the events of ``_lists_of`` into the lists of their instances."""
    row, of, place, time = (column.to_numpy() for column in batch.columns)
    order = np.lexsort((place, of))
    row, of, time = row[order], of[order], time[order]
    starts = np.flatnonzero(np.diff(of, prepend=-1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(of)], strict=True):
        whole = int(of[start])
        events = list(zip(row[start:stop].tolist(), time[start:stop].tolist(), strict=True))
        lists[whole >> _BITS][whole & _WITHIN] = events


def _alarms_of(alarms: Mapping[int, TimerQueue]) -> pa.RecordBatch:
    numbers: list[int] = []
    times: list[int] = []
    for instance in sorted(alarms):
        first = instance << _BITS | alarms[instance].first
        numbers += range(first, first + len(alarms[instance].times))
        times += alarms[instance].times
    return table(numbers, {"time": pa.array(times, pa.int64())})


def _decoded(rows: pa.RecordBatch | None) -> Iterator[tuple[int, int, Any]]:
    """Instance, number within it and value of each row of two columns."""
    if rows is not None:
        numbers, values = rows.columns
        for whole, value in zip(numbers.to_numpy().tolist(), values.to_pylist(), strict=True):
            yield whole >> _BITS, whole & _WITHIN, value
