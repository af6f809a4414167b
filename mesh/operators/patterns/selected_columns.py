"""The columns of a match that a query reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.functions.objects import FLOAT, INTEGER, to_binary
from mesh.model.types import AttributeType
from mesh.operators.expressions import selected_expressions
from mesh.operators.frame import Frame
from mesh.operators.patterns import memory_layout
from mesh.plan.bound import Column, EventIsNull, walk
from pyspark_nats.arrow import FEW, ArrowArray
from pyspark_nats.few_rows import FewRows

if TYPE_CHECKING:
    from mesh.operators.base import EventBatch, Longs
    from mesh.operators.frame import Key
    from mesh.operators.patterns.events import EventStore
    from mesh.operators.patterns.memory import Array
    from mesh.plan.bound import BoundQuery

#: A table without columns still has as many rows.
_ROWS = "#"


@dataclass(frozen=True, slots=True)
class _Read:
    """A column of a match: an attribute of one event, a list of those of all, or a missing event.

    ``number``: that of the machine's read that supplies it.
    """

    name: str
    number: int
    key: Key | None
    type: AttributeType
    is_list: bool = False


class SelectedColumns:
    """All reads of ``query`` of a match; ``counted``: the steps that take several events.

    ``table``: int64[n, 3], the machine's record of a match (``PatternMemory.reads``).
    ``schema``: of the columns.
    """

    def __init__(self, query: BoundQuery, counted: frozenset[int]) -> None:
        numbers: dict[tuple[int, int, int], int] = {}
        columns: dict[str, _Read] = {}
        for expression in selected_expressions(query):
            for part in walk(expression):
                if isinstance(part, Column) and part.step >= 0:
                    is_list = (
                        part.type is AttributeType.OBJECT
                        and part.step in counted
                        and part.index is None
                    )
                    index = -1 if part.index is None else part.index
                    read = numbers.setdefault((part.step, index, int(is_list)), len(numbers))
                    mark = "" if part.index is None else f"[{part.index}]"
                    name = f"{part.step}{mark}.{part.name}"
                    key: Key = (part.step, part.name)
                    if part.index is not None:
                        key = (part.step, part.name, part.index)
                    columns[name] = _Read(name, read, key, part.type, is_list)
                elif isinstance(part, EventIsNull) and part.step is not None:
                    index = -1 if part.index is None else part.index
                    read = numbers.setdefault((part.step, index, 0), len(numbers))
                    name = f"{part.step}?" if part.index is None else f"{part.step}[{part.index}]?"
                    columns[name] = _Read(name, read, None, AttributeType.BOOL)
        self._columns = list(columns.values())
        #: Whether each column is an attribute of one event, and no object.
        self._is_plain = all(
            c.key is not None and not c.is_list and c.type is not AttributeType.OBJECT
            for c in self._columns
        )
        self.table: Array = np.array(list(numbers), dtype=np.int64).reshape(len(numbers), 3)
        self.schema = pa.schema(
            [pa.field(_ROWS, pa.int8()), *(pa.field(c.name, c.type.arrow) for c in self._columns)]
        )

    def attributes(self, steps: Longs) -> set[str]:
        """The attributes that are read of the events of ``steps``."""
        keys = (column.key for column in self._columns if column.key is not None)
        return {key[1] for key in keys if key[0] in steps}

    def rows(
        self,
        matches: Array,
        items: Array,
        events: EventStore,
        stream_of: Longs,
        *,
        is_few: bool = False,
    ) -> pa.RecordBatch:
        """The columns of matches that the machine wrote down.

        Args:
            matches: n rows of ``memory_layout.PatternMemory.outputs``.
            items: the slots of lists of events.
            events: the content of the slots.
            stream_of: by step, the number of its stream.
            is_few: whether lists of values are taken.
        """
        if is_few and len(matches) <= FEW and self._is_plain:
            lists: dict[str, list[Any]] = {_ROWS: [0] * len(matches)}
            for column in self._columns:
                assert column.key is not None, "asked before"
                slots = matches[:, memory_layout.OUT_COLUMNS + 2 * column.number]
                stream, name = int(stream_of[column.key[0]]), column.key[1]
                lists[column.name] = events.few_values(stream, name, slots)
            return FewRows(self.schema, lists, len(matches))
        arrays: list[ArrowArray] = [pa.array(np.zeros(len(matches), dtype=np.int8))]
        arrays += [self._column(c, matches, items, events, stream_of) for c in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(
        self, column: _Read, matches: Array, items: Array, events: EventStore, stream_of: Longs
    ) -> ArrowArray:
        at = memory_layout.OUT_COLUMNS + 2 * column.number
        if column.key is None:
            missing: ArrowArray = pa.array(matches[:, at + 1] == 1)
            return missing
        stream = int(stream_of[column.key[0]])
        if not column.is_list:
            return events.column(stream, column.key[1], np.ascontiguousarray(matches[:, at]))
        starts, lengths = matches[:, at], matches[:, at + 1] - matches[:, at]
        ends = np.cumsum(lengths)
        places = np.arange(int(lengths.sum())) - np.repeat(ends - lengths - starts, lengths)
        values = _objects(events.column(stream, column.key[1], items[places]))
        first = (ends - lengths).tolist()
        return to_binary([values[a:b] for a, b in zip(first, ends.tolist(), strict=True)])

    def frame(self, matches: EventBatch) -> Frame:
        """The columns of ``matches``, by step, attribute and index."""
        rows = matches.rows
        column_of = rows.lists.__getitem__ if isinstance(rows, FewRows) else rows.column
        arrays = {c.key: column_of(c.name) for c in self._columns if c.key is not None}
        frame = Frame(len(matches), arrays)
        for column in self._columns:
            if column.key is None:
                step, index = self.table[column.number, :2].tolist()
                has_index = column.name.endswith("]?")
                missing = matches.rows.column(column.name).to_numpy(zero_copy_only=False)
                frame.add_missing(step, missing, index if has_index else None)
        return frame


def _objects(values: ArrowArray) -> list[object]:
    """A column as the values that objects are."""
    items = values.to_pylist()
    if values.type == pa.int32():
        return [None if item is None else INTEGER(item) for item in items]
    if values.type == pa.float32():
        return [None if item is None else FLOAT(item) for item in items]
    return items
