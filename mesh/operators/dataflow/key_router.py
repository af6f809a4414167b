"""The entrance of a partition: gives each event the number of its key's instance.

A stream with a key: each event goes to the instance of its key, or of each range that contains it;
an event without a key is dropped.  A stream without one: its events go to every present instance.
In one chunk, successive events with equal keys are passed on as one chunk, as in the engine.  An
event with a failed key is reported as a failed event.

Purging: every ``interval_ms`` from the first event with a key, instances without an event for more
than ``idle_ms`` are forgotten.  A key that returns gets a new number.

Source: observed on Siddhi 5.1.7; tests/cases/conformance/partitions.jsonl.

Index of partition instances by key: keys are texts; instances are numbered as they arrive.

A text has a stable code, so that a known key costs one look-up in one table.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.functions.kernels import convert
from mesh.model.types import AttributeType
from mesh.operators.base import NIL, EventBatch, Longs, State, join
from mesh.operators.expressions import Frame, compile_expression, compile_filter
from mesh.operators.failures import FAILED, failure_events, faulted
from mesh.operators.native import bare
from mesh.operators.select.hashing import RowNumbers, TextNumbers, more_rows
from mesh.operators.state.range_pieces import named
from mesh.operators.total_order import chunk_starts, is_same_cause
from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.functions.vectors import Mask, Vector
    from mesh.operators.base import Bools, Timeline
    from mesh.operators.dataflow.graph import Outputs
    from mesh.plan.bound import BoundKey
    from pyspark_nats.arrow import ArrowArray


log = logging.getLogger(__name__)

#: The place of an event in the total order, and its row among those of its run.
_Place = tuple[int, int, int, int, int]

#: Number of codes without an instance at which all codes are renumbered.
_SPARE = 65_536
NONE = NIL


class Instances:
    """Keys that have an instance."""

    def __init__(self) -> None:
        self._texts = TextNumbers()
        #: By code, the instance's number plus one, or 0.
        self._numbers: Longs = np.zeros(0, dtype=np.int64)
        #: The number of the next instance.
        self.next = 0
        #: Number of times that codes were renumbered.
        self.generation = 0

    def codes(self, texts: ArrowArray) -> Longs:
        """The code of each text; any for a null."""
        codes = self._texts.number(texts)
        self._numbers = more_rows(self._numbers, len(self._texts))
        return codes

    def of(self, codes: Longs) -> Longs:
        """The instance of each code, ``NONE`` where it has none."""
        numbers: Longs = self._numbers[codes]
        numbers -= 1
        return numbers

    def add(self, codes: Longs) -> None:
        """Number the instances of ``codes``, which have none, in their order."""
        self._numbers[codes] = np.arange(self.next + 1, self.next + 1 + len(codes))
        self.next += len(codes)

    def alive(self) -> list[int]:
        """The present numbers, growing."""
        numbers: list[int] = (np.sort(self._numbers[self._numbers > 0]) - 1).tolist()
        return numbers

    def keys(self) -> tuple[ArrowArray, list[int]]:
        """The keys and the numbers of their instances, which grow."""
        codes = np.flatnonzero(self._numbers)
        codes = codes[np.argsort(self._numbers[codes])]
        return self._texts.take(pa.array(codes)), (self._numbers[codes] - 1).tolist()

    def forget(self, numbers: Longs) -> None:
        """Drop the keys of these instances."""
        self._numbers[np.isin(self._numbers - 1, numbers)] = 0
        live = int(np.count_nonzero(self._numbers))
        if len(self._texts) > 2 * live + _SPARE:
            keys, key_numbers = self.keys()
            self.restore(keys, np.array(key_numbers, dtype=np.int64), self.next)

    def restore(self, keys: ArrowArray, numbers: Longs, next_number: int) -> None:
        """Replace all keys by ``keys``."""
        self.generation += 1
        self._texts, self._numbers = TextNumbers(), np.zeros(0, dtype=np.int64)
        codes = self.codes(keys)
        self._numbers[codes] = numbers + 1
        self.next = next_number


class IntegerKeyIndex:
    """The codes of whole numbers' texts, each text made once."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self._clear()

    def _clear(self) -> None:
        self._generation = self._instances.generation
        self._rows = RowNumbers(1)
        self._codes: Longs = np.zeros(0, dtype=np.int64)

    def codes(self, values: Longs, nulls: Bools | None) -> tuple[Longs, Bools]:
        """The code of each value's text, and a mask of the values that have one."""
        if self._generation != self._instances.generation:
            self._clear()
        skip = np.zeros(len(values), dtype=np.bool_) if nulls is None else nulls
        first = self._rows.count
        numbers = self._rows.number(values.reshape(-1, 1), skip)
        count = self._rows.count
        if count > first:
            texts = pa.array(self._rows.keys[first:count, 0]).cast(pa.string())
            self._codes = more_rows(self._codes, count)
            self._codes[first:count] = self._instances.codes(texts)
        if not count:
            return numbers, ~skip
        return self._codes[numbers], ~skip


@dataclass(frozen=True, slots=True)
class PurgePolicy:
    """``@purge(enable='true', interval='10 sec', idle.period='1 hour')``."""

    interval_ms: int
    idle_ms: int


@dataclass(frozen=True, slots=True)
class _Keyed:
    """Events of one stream with the keys they go by, in order, some of them several times.

    ``row``: int64[m], growing, the event of each; ``code``: int64[m], its key's.
    """

    channel: str
    events: EventBatch
    row: Longs
    code: Longs


class KeyExtractor:
    """Division of one stream: by the text of a value, or by the labels of ranges."""

    def __init__(self, key: BoundKey, instances: Instances) -> None:
        self._instances = instances
        self._whole = IntegerKeyIndex(instances)
        self._value = None if key.value is None else compile_expression(key.value)
        self._ranges = [compile_filter(r.condition) for r in key.ranges]
        self._labels = pa.array([r.label for r in key.ranges], pa.string())
        #: By row, the reasons of failed keys of the last call.
        self.failures: dict[int, str] = {}

    def of(self, channel: str, events: EventBatch) -> _Keyed:
        """The keys of events; those without one are not in it."""
        frame = Frame.of_events(events)
        # The frame fills it while the key is computed.
        self.failures = frame.failures
        if self._value is None:
            inside = np.stack([passes(frame) for passes in self._ranges])
            row, label = np.nonzero(inside.T)
            return _Keyed(channel, events, row, self._instances.codes(self._labels)[label])
        code, valid = self._codes(self._value(frame).spread(len(events)))
        if frame.failures:
            valid[list(frame.failures)] = False
        if valid.all():
            return _Keyed(channel, events, np.arange(len(events)), code)
        row = np.flatnonzero(valid)
        return _Keyed(channel, events, row, code[row])

    def _codes(self, vector: Vector) -> tuple[Longs, Mask]:
        """The code of each key, and a mask of the present keys."""
        if vector.type in (AttributeType.INT, AttributeType.LONG):
            return self._whole.codes(vector.values.astype(np.int64), vector.nulls)
        if vector.type is not AttributeType.STRING:
            vector = convert(vector, AttributeType.STRING)
        texts = vector.values
        if not texts.null_count:
            return self._instances.codes(texts), np.ones(len(texts), dtype=np.bool_)
        return self._instances.codes(texts.fill_null("")), ~vector.null_mask


class KeyRouter:
    """``partition with (k of S)``: from the streams outside to those that the queries in it read.

    ``channels``: by channel outside, the channel inside; ``keys``: by channel outside, where there
    is a key.  ``begin`` is called with the numbers of new instances and the time of the first event
    of each, for any query; ``forget`` with the numbers of purged instances.
    ``name``: the partition's; ``faults``: the schemas of the fault streams that have a reader, by
    channel outside.
    """

    def __init__(
        self,
        channels: Mapping[str, str],
        keys: Mapping[str, BoundKey],
        purge: PurgePolicy | None,
        begin: Callable[[Longs, Longs], None],
        forget: Callable[[Longs], None],
        name: str,
        faults: Mapping[str, pa.Schema],
    ) -> None:
        self.channels = channels
        self._name = name
        self._faults = faults
        self._instances = Instances()
        self._keys = {channel: KeyExtractor(key, self._instances) for channel, key in keys.items()}
        self._purge = purge
        self._begin = begin
        self._forget = forget
        #: Time of the last event of each instance; only where instances are purged.
        self._used_ms: dict[int, int] = {}
        #: Time of the first event with a key.
        self._base_ms: int | None = None

    def process(self, inputs: Mapping[str, Sequence[EventBatch]], timeline: Timeline) -> Outputs:
        """Pass each event on to the instances of its key; then forget idle instances."""
        runs = [
            (channel, join(batches, batches[0].rows.schema))
            for channel, batches in inputs.items()
            if batches and sum(map(len, batches))
        ]
        keyed = [
            self._keys[channel].of(channel, events)
            for channel, events in runs
            if channel in self._keys
        ]
        has_others = len(keyed) < len(runs)
        alive = self._instances.alive() if has_others else []
        instances = [self._instances.of(part.code) for part in keyed]
        born: list[tuple[_Place, int]] = []
        if any(bool((numbers < 0).any()) for numbers in instances):
            born = self._number_new(keyed, instances)
            instances = [self._instances.of(part.code) for part in keyed]
        outputs = [one for part in keyed for one in self._failed(part)]
        for part, numbers in zip(keyed, instances, strict=True):
            self._note_use(part, numbers)
            outputs.append((self.channels[part.channel], _divided(part, numbers)))
        for channel, events in runs:
            if channel not in self._keys:
                outputs.append((self.channels[channel], _to_all(events, alive, born)))
        self._forget_idle(timeline.now_ms)
        return outputs

    def _failed(self, part: _Keyed) -> Outputs:
        """The events with failed keys; they precede the output of their neighbours."""
        failures = self._keys[part.channel].failures
        if not failures:
            return []
        rows = sorted(failures)
        reasons = [failures[row] for row in rows]
        log.error("key failed on an event: %s", reasons[0], extra=fields(partition=self._name))
        lost = part.events.take(np.array(rows, dtype=np.int64))
        lost = replace(lost, chunk=np.full(len(lost), -1, dtype=np.int64))
        schema = self._faults.get(part.channel)
        if schema is not None:
            return [(f"!{part.channel}", faulted(schema, lost, reasons))]
        return [(FAILED, failure_events(self._name, part.channel, lost, reasons))]

    def _number_new(
        self, keyed: Sequence[_Keyed], instances: Sequence[Longs]
    ) -> list[tuple[_Place, int]]:
        """Give numbers to new keys, in the order of arrival; returns their places and numbers."""
        first: dict[int, _Place] = {}
        for part, numbers in zip(keyed, instances, strict=True):
            rows = np.flatnonzero(numbers < 0)
            codes, at = np.unique(part.code[rows], return_index=True)
            if len(keyed) == len(self.channels) == 1:
                # The order of arrival is not needed.
                rows = part.row[rows[np.sort(at)]]
                self._add(codes[np.argsort(at)], part.events.clock_ms[rows])
                return []
            for code, place in zip(codes.tolist(), rows[at].tolist(), strict=True):
                here = (*_place(part.events, int(part.row[place])), place)
                if code not in first or here < first[code]:
                    first[code] = here
        arrivals = sorted(first.items(), key=lambda item: item[1])
        start = self._instances.next
        clocks_ms = np.array([here[1] for _, here in arrivals], dtype=np.int64)
        self._add(np.array([code for code, _ in arrivals], dtype=np.int64), clocks_ms)
        return [(here, start + number) for number, (_, here) in enumerate(arrivals)]

    def _add(self, codes: Longs, clocks_ms: Longs) -> None:
        first = self._instances.next
        self._instances.add(codes)
        self._begin(np.arange(first, self._instances.next), clocks_ms)

    def _note_use(self, part: _Keyed, numbers: Longs) -> None:
        if self._base_ms is None and len(part.row):
            self._base_ms = int(part.events.clock_ms[part.row[0]])
        if self._purge is None or not len(part.row):
            return
        # Clocks never fall, so the last one of each is the latest.
        used, at = np.unique(numbers[::-1], return_index=True)
        latest = part.events.clock_ms[part.row[len(numbers) - 1 - at]]
        for number, clock_ms in zip(used.tolist(), latest.tolist(), strict=True):
            self._used_ms[number] = max(self._used_ms.get(number, 0), clock_ms)

    def next_purge(self, first_ms: int | None) -> int | None:
        """Next time for a purge, if an event with a key arrives at ``first_ms``."""
        if self._purge is None:
            return None
        oldest = min(self._used_ms.values(), default=first_ms)
        if oldest is None:
            return None
        base_ms = self._base_ms if self._base_ms is not None else first_ms
        assert base_ms is not None, "there are instances only behind a first event"
        if first_ms is not None:
            oldest = min(oldest, first_ms)
        rounds = max(1, (oldest + self._purge.idle_ms - base_ms) // self._purge.interval_ms + 1)
        return base_ms + rounds * self._purge.interval_ms

    def first_keyed(self, inputs: Mapping[str, Sequence[EventBatch]]) -> int | None:
        """The clock of the first event of the streams that have keys."""
        clocks = [
            int(run.clock_ms[0])
            for channel, runs in inputs.items()
            if channel in self._keys
            for run in runs
            if len(run)
        ]
        return min(clocks, default=None)

    def _forget_idle(self, now_ms: int) -> None:
        due = self.next_time()
        while due is not None and due <= now_ms:
            assert self._purge is not None
            gone = {n for n, at in self._used_ms.items() if at + self._purge.idle_ms < due}
            self._used_ms = {n: at for n, at in self._used_ms.items() if n not in gone}
            numbers = np.array(sorted(gone), dtype=np.int64)
            self._instances.forget(numbers)
            self._forget(numbers)
            due = self.next_time()

    def next_time(self) -> int | None:
        """Time of the next purge."""
        return self.next_purge(None)

    def snapshot(self) -> State:
        """The keys and their numbers."""
        scalars: dict[str, object] = {"next": self._instances.next, "base_ms": self._base_ms}
        texts, numbers = self._instances.keys()
        if not numbers:
            return State({}, scalars)
        keys = pa.RecordBatch.from_pydict(
            {
                "key": texts,
                "number": pa.array(numbers, pa.int64()),
                "used_ms": pa.array([self._used_ms.get(n) for n in numbers], pa.int64()),
            }
        )
        # A stored piece is never written again, so its name has to identify its content.
        name = named("keys", keys)
        return State({name: keys}, scalars | {"keys": name})

    def restore(self, state: State) -> None:
        """Restore the keys."""
        scalars = state.scalars
        self._base_ms = scalars["base_ms"]
        texts: ArrowArray = pa.array([], pa.string())
        numbers: Longs = np.empty(0, dtype=np.int64)
        self._used_ms = {}
        if "keys" in scalars:
            piece = state.pieces[scalars["keys"]]
            texts, numbers = piece.column("key"), piece.column("number").to_numpy()
            used = zip(numbers.tolist(), piece.column("used_ms").to_pylist(), strict=True)
            self._used_ms = {number: at for number, at in used if at is not None}
        self._instances.restore(texts, numbers, scalars["next"])


def _divided(part: _Keyed, numbers: Longs) -> EventBatch:
    events = part.events
    if len(part.row) != len(events) or not _is_count(part.row):
        events = events.take(part.row)
    return _split(replace(events, instance=numbers))


def _is_count(row: Longs) -> bool:
    """Whether these growing numbers contain each row exactly once."""
    return not len(row) or (int(row[0]) == 0 and bool((np.diff(row) == 1).all()))


def _place(events: EventBatch, row: int) -> tuple[int, int, int, int]:
    return (
        int(events.order[row]),
        int(events.clock_ms[row]),
        int(events.path[row]),
        int(events.chunk[row]),
    )


def _split(events: EventBatch) -> EventBatch:
    """Cut chunks where the instance changes: number the parts under one cause and way."""
    chunk = np.empty(len(events), dtype=np.int64)
    _number_parts(events.order, events.clock_ms, events.path, events.chunk, events.instance, chunk)
    return replace(events, chunk=chunk)


@bare
def _number_parts(
    order: Longs, clock: Longs, path: Longs, chunk: Longs, instance: Longs, out: Longs
) -> None:
    for row in range(len(order)):
        last = row - 1
        if row == 0 or not is_same_cause(
            order[row], clock[row], path[row], order[last], clock[last], path[last]
        ):
            out[row] = 0
        elif chunk[row] != chunk[last] or instance[row] != instance[last]:
            out[row] = out[last] + 1
        else:
            out[row] = out[last]


def _to_all(
    events: EventBatch, alive: Sequence[int], born: Sequence[tuple[_Place, int]]
) -> EventBatch:
    """Events for every instance present at their arrival, a chunk for each."""
    places = [place[:4] for place, _ in born]
    row: list[int] = []
    instance: list[int] = []
    starts = chunk_starts(events).tolist()
    for start, stop in zip(starts, [*starts[1:], len(events)], strict=True):
        there = bisect_left(places, _place(events, start))
        for number in [*alive, *(n for _, n in born[:there])]:
            row.extend(range(start, stop))
            instance.extend([number] * (stop - start))
    taken = events.take(np.array(row, dtype=np.int64))
    return _split(replace(taken, instance=np.array(instance, dtype=np.int64)))
