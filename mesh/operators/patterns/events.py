"""Store of the events that partial matches refer to: attributes for programs and for outputs.

An event has a slot, given in the order of arrival.  Programs read numbers by slot; rows of each
stream are kept in Arrow, and each slot refers to its row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.model.types import AttributeType
from mesh.operators.base import EventBatch, concat, no_rows
from mesh.operators.expressions import Frame, compile_expression
from mesh.operators.patterns.memory_layout import ATTRIBUTES_MOST, FAILED, NONE
from pyspark_nats.few_rows import FewRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.functions.vectors import Vector
    from mesh.operators.expressions import Evaluator
    from mesh.operators.patterns.memory_layout import Array
    from mesh.operators.patterns.program import PredicatePrograms
    from mesh.plan.bound import BoundExpression
    from pyspark_nats.arrow import ArrowArray

#: Parts of the rows of a stream, at most.
_PARTS_MAX = 64
_FLOATING = (AttributeType.FLOAT, AttributeType.DOUBLE)


def untimed(rows: pa.RecordBatch) -> Frame:
    """Events with times that are no longer needed: expressions were evaluated on arrival."""
    none = np.zeros(rows.num_rows, dtype=np.int64)
    kind = np.zeros(rows.num_rows, dtype=np.int8)
    return Frame.of_events(EventBatch(none, none, none, none, none, kind, none, rows))


class StringNumbers:
    """Numbers for strings: equal ones have the same."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of one."""
        return self._numbers.setdefault(text, len(self._numbers))

    def numbers(self, values: ArrowArray) -> Array:
        """int64[n]: the numbers of many; of nulls any."""
        encoded: Any = values.dictionary_encode()
        by_code = np.array([self.number(text) for text in encoded.dictionary.to_pylist()] or [0])
        codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        numbers: Array = by_code[codes].astype(np.int64)
        return numbers


class EventStore:
    """Slots of events of several streams.

    ``values``: int64[capacity, attributes], floating numbers as the bits of doubles; ``nulls``: 1
    where it is null, ``FAILED`` where it can't be computed.
    """

    def __init__(
        self,
        programs: PredicatePrograms,
        schemas: Mapping[str, pa.Schema],
        streams: Sequence[str],
    ) -> None:
        #: The attributes that are kept of each stream.
        self._schemas = [schemas[stream] for stream in streams]
        self._names = [schema.names for schema in self._schemas]
        self._texts = StringNumbers()
        expressions = [programs.attributes[stream].expressions for stream in streams]
        self._types = [[e.type for e in group] for group in expressions]
        self._evaluate: list[list[Evaluator]] = [
            [compile_expression(e) for e in group] for group in expressions
        ]
        self._width = max(1, *(len(group) for group in expressions))
        self.count = 0
        self.values: Array = np.zeros((0, self._width), dtype=np.int64)
        self.nulls: Array = np.zeros((0, self._width), dtype=np.int64)
        #: Slots allocated so far, and by slot its number among them.
        self.total = 0
        self.number: Array = np.empty(0, dtype=np.int64)
        #: By slot: the stream, and the row among those that are kept of it.
        self.stream: Array = np.empty(0, dtype=np.int64)
        self.row: Array = np.empty(0, dtype=np.int64)
        self._rows: list[list[pa.RecordBatch]] = [[] for _ in streams]
        self._counts = [0 for _ in streams]
        #: The reason why an expression fails without its event, by its row in the program.
        self._without: dict[int, str] = {}

    def schema(self, stream: int) -> pa.Schema:
        """The attributes that are kept of a stream."""
        return self._schemas[stream]

    def text_number(self, text: str) -> int:
        """The number that represents a constant string."""
        return self._texts.number(text)

    def without_event(
        self, row: int, expression: BoundExpression, schema: pa.Schema
    ) -> tuple[int, int]:
        """The bits of an expression over one event if that is missing, and its null.

        ``row``: of the program, the place for them.
        """
        nothing = pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in schema], schema=schema)
        frame = untimed(nothing)
        vector = compile_expression(expression)(frame).spread(1)
        if frame.failures:
            self._without[row] = frame.failures[0]
            return 0, FAILED
        bits, nulls = self._bits(vector)
        return int(bits[0]), int(nulls[0])

    def reason(self, why: int) -> str:
        """The reason of a condition's failure, from its record (``memory_layout.WHY``)."""
        if why < NONE:
            return self._without[NONE - 1 - why]
        slot, column = divmod(why, ATTRIBUTES_MOST)
        stream = int(self.stream[slot])
        frame = untimed(self.rows_of(stream).slice(int(self.row[slot]), 1))
        self._evaluate[stream][column](frame)
        return frame.failures.get(0, "it failed when the event came")

    def _bits(self, vector: Vector) -> tuple[Array, Array]:
        nulls = vector.null_mask.astype(np.int64)
        if vector.type is AttributeType.STRING:
            return self._texts.numbers(vector.values), nulls
        if vector.type in _FLOATING:
            return vector.values.astype(np.float64).view(np.int64), nulls
        return vector.values.astype(np.int64), nulls

    def add(self, streams: Array, rows: Sequence[pa.RecordBatch], frames: Sequence[Frame]) -> Array:
        """Give slots to events, in order.

        Args:
            streams: int64[n], of which stream each event is.
            rows: by stream, its events among them.
            frames: by stream, the same as a frame, with times.

        Returns:
            int64[n]: their slots.
        """
        slots = np.arange(self.count, self.count + len(streams))
        self._reserve(self.count + len(streams))
        self.stream[slots] = streams
        self.number[slots] = np.arange(self.total, self.total + len(streams))
        self.total += len(streams)
        for number, batch in enumerate(rows):
            if not batch.num_rows:
                continue
            at = slots if batch.num_rows == len(slots) else slots[streams == number]
            self.row[at] = np.arange(self._counts[number], self._counts[number] + len(at))
            self._counts[number] += len(at)
            self._keep(number, batch)
            for column, evaluate in enumerate(self._evaluate[number]):
                frames[number].failures = {}
                vector = evaluate(frames[number]).spread(len(at))
                self.values[at, column], self.nulls[at, column] = self._bits(vector)
                if frames[number].failures:
                    self.nulls[at[list(frames[number].failures)], column] = FAILED
        self.count += len(streams)
        return slots

    def _keep(self, stream: int, rows: pa.RecordBatch) -> None:
        """Keep some of the columns of further rows of a stream."""
        schema, names = self._schemas[stream], self._names[stream]
        parts = self._rows[stream]
        if isinstance(rows, FewRows):
            lists = {name: rows.lists[name] for name in names}
            parts.append(FewRows(schema, lists, rows.num_rows))
        else:
            parts.append(rows.select(names))
        if len(parts) > _PARTS_MAX:
            self.rows_of(stream)

    def few_values(self, stream: int, name: str, slots: Array) -> list[Any]:
        """``column`` of few events, as a list: not all rows have to be one batch for them."""
        return [
            None if row < 0 else self._value(stream, name, row)
            for row in np.where(slots < 0, -1, self.row[slots]).tolist()
        ]

    def _value(self, stream: int, name: str, row: int) -> object:
        begin = self._counts[stream]
        for part in reversed(self._rows[stream]):
            begin -= part.num_rows
            if row >= begin:
                break
        if isinstance(part, FewRows):
            return part.lists[name][row - begin]
        return part.column(name)[row - begin].as_py()

    def add_again(
        self,
        numbers: Array,
        streams: Array,
        rows: Sequence[Sequence[pa.RecordBatch]],
        places: Sequence[Sequence[Array]],
    ) -> None:
        """Give the first slots to events that had some, in order.

        Args:
            numbers: int64[n], which of the slots that were ever given they had, rising.
            streams: int64[n], of which stream each event is.
            rows: by stream, its events in parts.
            places: by stream, for each part the places of its events among all n.
        """
        batches = []
        for number, parts in enumerate(rows):
            if not parts:
                batches.append(pa.RecordBatch.from_pylist([], self._schemas[number]))
                continue
            order: Any = pa.array(np.argsort(np.concatenate(list(places[number]))))
            batches.append(concat(list(parts)).take(order))
        total = self.total
        slots = self.add(streams, batches, [untimed(part) for part in batches])
        self.number[slots], self.total = numbers, total

    def _reserve(self, size: int) -> None:
        have = len(self.stream)
        if size <= have:
            return
        more = max(size, 2 * have, 1024) - have
        self.values = np.concatenate([self.values, np.zeros((more, self._width), np.int64)])
        self.nulls = np.concatenate([self.nulls, np.zeros((more, self._width), np.int64)])
        self.stream = np.concatenate([self.stream, np.zeros(more, np.int64)])
        self.number = np.concatenate([self.number, np.zeros(more, np.int64)])
        self.row = np.concatenate([self.row, np.zeros(more, np.int64)])

    def rows_of(self, stream: int) -> pa.RecordBatch:
        """All rows that are kept of a stream."""
        if not self._rows[stream]:
            return no_rows(self._schemas[stream])
        together = concat(self._rows[stream])
        self._rows[stream] = [together]
        return together

    def column(self, stream: int, name: str, slots: Array) -> ArrowArray:
        """An attribute of the events in ``slots``, of one stream; null for negative ones."""
        values: ArrowArray = self.rows_of(stream).column(name)
        if not len(values):
            nothing: ArrowArray = pa.nulls(len(slots), values.type)
            return nothing
        if not len(slots) or int(slots.min()) >= 0:
            return values.take(self.row[slots])
        missing = slots < 0
        rows = np.where(missing, 0, self.row[np.where(missing, 0, slots)])
        places: Any = pa.array(rows, mask=missing)
        return values.take(places)

    def keep(self, slots: Array) -> None:
        """Forget all events but those in ``slots``, rising, which are 0, 1 .. from now on."""
        self.values, self.nulls = self.values[slots], self.nulls[slots]
        self.stream, rows = self.stream[slots], self.row[slots]
        self.number = self.number[slots]
        self.row = np.empty(len(slots), dtype=np.int64)
        for number in range(len(self._rows)):
            mask = self.stream == number
            self._rows[number] = [self.rows_of(number).take(pa.array(rows[mask]))]
            self._counts[number] = int(mask.sum())
            self.row[mask] = np.arange(self._counts[number])
        self.count = len(slots)

    def rows_at(self, slots: Array) -> list[pa.RecordBatch]:
        """By stream, the rows of the events in ``slots``, rising."""
        streams, rows = self.stream[slots], self.row[slots]
        return [
            self.rows_of(number).take(pa.array(rows[streams == number]))
            for number in range(len(self._rows))
        ]
