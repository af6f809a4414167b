"""What a ``PlainWindow`` holds, as pieces that change no more than what they hold does.

Parts of contents, their events and the alarms of instances have numbers that stay, and lie in
pieces by ranges of these numbers.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.operators.state.range_pieces import cut, stored, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mesh.operators.windows.plain import Content

    Pieces = Mapping[str, pa.RecordBatch]
    Lists = Mapping[int, list[tuple[int, int]]]

_PARTS: Final = "contents"
_LISTS: Final = "lists"
_ALARMS: Final = "alarms"
#: Bits of a number behind those of the instance that it belongs to.
_BITS: Final = 36
_WITHIN: Final = (1 << _BITS) - 1


class Alarms:
    """The times of timers that one instance set, in order; ``first``: the number of the first."""

    __slots__ = ("first", "times")

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.times: deque[int] = deque()

    def take(self) -> int:
        """The first; it is gone then."""
        self.first += 1
        return self.times.popleft()


def pack(
    contents: Mapping[int, Content], alarms: Mapping[int, Alarms]
) -> dict[str, pa.RecordBatch]:
    """The pieces of all instances."""
    return (
        cut(_PARTS, _parts_of(contents))
        | cut(_LISTS, _lists_of(contents))
        | cut(_ALARMS, _alarms_of(alarms))
    )


def unpack(
    pieces: Pieces, make: Callable[[], Content]
) -> tuple[dict[int, Content], dict[int, Alarms]]:
    """Contents and alarms; ``make``: a content with nothing in it."""
    lists: defaultdict[int, dict[int, list[tuple[int, int]]]] = defaultdict(dict)
    events = stored(_LISTS, pieces)
    if events is not None:
        _fill(lists, events)
    parts: defaultdict[int, dict[int, Any]] = defaultdict(dict)
    for instance, number, text in _told(stored(_PARTS, pieces)):
        parts[instance][number] = json.loads(text)
    contents = {}
    for instance, its_parts in parts.items():
        contents[instance] = content = make()
        content.load(its_parts, lists[instance])
    alarms: dict[int, Alarms] = {}
    for instance, number, time in _told(stored(_ALARMS, pieces)):
        alarms.setdefault(instance, Alarms(number)).times.append(time)
    return contents, alarms


def _parts_of(contents: Mapping[int, Content]) -> pa.RecordBatch:
    numbers: list[int] = []
    texts: list[str] = []
    encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
    for instance in sorted(contents):
        for number, part in sorted(contents[instance].parts(), key=lambda one: one[0]):
            numbers.append(instance << _BITS | number)
            texts.append(encode(part))
    return table(numbers, {"json": pa.array(texts, pa.string())})


def _lists_of(contents: Mapping[int, Content]) -> pa.RecordBatch:
    rows: list[int] = []
    times: list[int] = []
    of: list[int] = []
    lengths: list[int] = []
    for instance, content in contents.items():
        for number, events in content.lists():
            rows += [row for row, _ in events]
            times += [time for _, time in events]
            of.append(instance << _BITS | number)
            lengths.append(len(events))
    sizes = np.array(lengths, dtype=np.int64)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    order = np.argsort(np.array(rows, dtype=np.int64), kind="stable")
    return table(
        np.array(rows, dtype=np.int64)[order],
        {
            "list": pa.array(np.repeat(np.array(of, dtype=np.int64), sizes)[order]),
            "place": pa.array(places[order]),
            "time": pa.array(np.array(times, dtype=np.int64)[order]),
        },
    )


def _fill(lists: Mapping[int, dict[int, list[tuple[int, int]]]], found: pa.RecordBatch) -> None:
    """Put the events of ``_lists_of`` into the lists of their instances."""
    row, of, place, time = (column.to_numpy() for column in found.columns)
    order = np.lexsort((place, of))
    row, of, time = row[order], of[order], time[order]
    starts = np.flatnonzero(np.diff(of, prepend=-1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(of)], strict=True):
        whole = int(of[start])
        events = list(zip(row[start:stop].tolist(), time[start:stop].tolist(), strict=True))
        lists[whole >> _BITS][whole & _WITHIN] = events


def _alarms_of(alarms: Mapping[int, Alarms]) -> pa.RecordBatch:
    numbers: list[int] = []
    times: list[int] = []
    for instance in sorted(alarms):
        first = instance << _BITS | alarms[instance].first
        numbers += range(first, first + len(alarms[instance].times))
        times += alarms[instance].times
    return table(numbers, {"time": pa.array(times, pa.int64())})


def _told(rows: pa.RecordBatch | None) -> Iterator[tuple[int, int, Any]]:
    """Instance, number within it and value of each row of two columns."""
    if rows is not None:
        numbers, values = rows.columns
        for whole, value in zip(numbers.to_numpy().tolist(), values.to_pylist(), strict=True):
            yield whole >> _BITS, whole & _WITHIN, value
