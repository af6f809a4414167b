"""Rows that events of a join find in an aggregation: ``A on .. within .. per ..``.

Events that ask for the same span and duration are answered together, with one pass over the
aggregation's cells.  Where the condition compares a group-by column with a value of the event, only
the groups of these values are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import Vector
from mesh.language.syntax import BinaryOperator
from mesh.model.types import AttributeType
from mesh.operators.aggregations.find import find, find_joined, groups_with, key_place
from mesh.operators.aggregations.rollup import Aggregation
from mesh.operators.aggregations.times import duration_named, span_between
from mesh.operators.base import concat, no_rows
from mesh.operators.expressions import (
    Frame,
    columns_of,
    compile_expression,
    compile_filter,
    conjunction,
    current,
    using,
)
from mesh.operators.tables.pushed import Pushed
from mesh.plan.bound import BinaryExpression, Column, conjuncts
from mesh.plan.bound.expressions import TABLE_STEP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mesh.language.syntax import TimeUnit
    from mesh.operators.base import Longs
    from mesh.operators.expressions import Evaluator
    from mesh.plan.bound import BoundExpression, BoundJoin

#: Pairs of an event and a row that are tested at once.
_PAIRS_MAX: Final = 1 << 20
_WHOLE: Final = (AttributeType.INT, AttributeType.LONG)
#: Why an event fails in one of several partitions.
_NULL_TEXT: Final = (
    "the text 'null' is the group of events without a value too, and several partitions have "
    'parts of this group of aggregation "{}"'
)


@dataclass(frozen=True, slots=True)
class AggregationQuestion:
    """The span and the duration that an event asks for; ``moment``: see ``Aggregation.moments``."""

    moment: tuple[int, int]
    within: tuple[int, int]
    per: TimeUnit


@dataclass(frozen=True, slots=True)
class AggregationAnswer:
    """Found ``rows``; for each pair its event and the place of its row, by event.

    ``spans``: int64[n, 2], by event the start and the end of the span that it asks for.
    """

    row: Longs
    place: Longs
    rows: pa.RecordBatch
    spans: Longs


@dataclass(frozen=True, slots=True)
class _KeyEquality:
    """``A.column == value``; ``key``: the number of the group-by column that it is, or None."""

    column: str
    key: int | None
    value: Evaluator


class AggregationLookup:
    """The aggregation of a join, which is its side ``step``."""

    def __init__(self, source: BoundJoin, step: int) -> None:
        side = (source.left, source.right)[step]
        assert source.within is not None, "the binder asks for both"
        assert source.per is not None, "the binder asks for both"
        self._step = step
        self._environment = current()
        self._name = side.schema.name
        ends = [e for e in (source.within.start, source.within.end) if e is not None]
        self._ends = [compile_expression(end) for end in ends]
        self._per = compile_expression(source.per)
        self._on = None if source.on is None else compile_filter(source.on)
        # The engine takes any expression here; one that is no condition holds for no row.
        self._never = source.on is not None and source.on.type is not AttributeType.BOOL
        self._written = source.on
        #: In one of several partitions, the text that divides the join's events.
        self._divided_by = _divided_by(source, step)
        self._equal: _KeyEquality | None = None
        #: Of an aggregation in a store, the part of ``on`` that its database evaluates.
        self._pushed: Pushed | None = None
        self._is_ready = False

    @property
    def _cells(self) -> Aggregation:
        cells = self._environment.aggregations[self._name].cells
        assert isinstance(cells, Aggregation), "its node keeps one"
        return cells

    def _prepare(self) -> None:
        """Find an equality with the aggregation, which exists when the first event comes."""
        self._is_ready = True
        if self._written is not None and not self._never:
            with using(self._environment):
                self._equal = next(_equalities(self._written, self._step, self._cells), None)
        if self._cells.reads:
            with using(self._environment):
                self._pushed = Pushed(_of_keys(self._written, self._step, self._cells))

    def find(
        self, frame: Frame, asks: Longs, clock_ms: Longs, schema: pa.Schema
    ) -> AggregationAnswer:
        """The rows that events find; where a question can't be read, the event fails.

        Args:
            frame: events, n of them.
            asks: the numbers of those that ask, rising.
            clock_ms: int64[n].
            schema: of the columns of found rows.
        """
        if not self._is_ready:
            self._prepare()
        self._refuse_null_text(frame, asks)
        questions = self._questions(frame, asks, clock_ms)
        rows: list[Longs] = []
        places: list[Longs] = []
        parts: list[pa.RecordBatch] = []
        count = 0
        spans = np.zeros((frame.length, 2), dtype=np.int64)
        for question, events in questions.items():
            spans[events] = question.within
        add_spans(frame, spans)
        self._require(frame, questions)
        for question, events in questions.items():
            batch, row, place = self._answer(question, np.array(events), frame, clock_ms)
            rows.append(row)
            places.append(place + count)
            parts.append(batch.select(schema.names))
            count += batch.num_rows
        if not parts:
            none = np.empty(0, dtype=np.int64)
            return AggregationAnswer(none, none, no_rows(schema), spans)
        row, place = np.concatenate(rows), np.concatenate(places)
        order = np.argsort(row, kind="stable")
        return AggregationAnswer(row[order], place[order], concat(parts), spans)

    def _refuse_null_text(self, frame: Frame, asks: Longs) -> None:
        """Fail events whose key is the text ``null``, which is the group of no value as well.

        Events without a value are in the partition of the empty text: a part would be found here.
        """
        if self._divided_by is None:
            return
        values = _values(self._divided_by, frame, asks)
        if "null" not in values:
            return
        for event, value in zip(asks.tolist(), values, strict=True):
            if value == "null":
                frame.failures.setdefault(event, _NULL_TEXT.format(self._name))

    def load(self, frame: Frame) -> None:
        """Load what the rows of ``frame`` may find of an aggregation in a store.

        Raises:
            MeshError: a database does not answer.
        """
        if not self._is_ready:
            self._prepare()
        if self._pushed is not None:
            asks = np.arange(frame.length)
            self._require(frame, self._questions(frame, asks, np.zeros(frame.length, np.int64)))

    def _require(
        self, frame: Frame, questions: Mapping[AggregationQuestion, Sequence[int]]
    ) -> None:
        if self._pushed is None or self._never:
            return
        for question, events in questions.items():
            pairs = frame.pairs(np.array(events), Frame(0, {}), np.empty(0, dtype=np.int64))
            lookups = list(self._pushed.lookups(pairs))
            for reads in self._cells.reads[question.per]:
                reads.require(question.within, lookups)

    def _questions(
        self, frame: Frame, asks: Longs, clock_ms: Longs
    ) -> dict[AggregationQuestion, list[int]]:
        """The events that ask each question, the earlier questions first."""
        if self._pushed is None:
            moments = self._cells.moments(clock_ms[asks]).tolist()
        else:
            # Closed buckets make no difference to them.
            moments = [(0, 0)] * len(asks)
        columns = [_values(one, frame, asks) for one in (self._per, *self._ends)]
        cache: dict[tuple[object, ...], tuple[tuple[int, int], TimeUnit] | str] = {}
        questions: dict[AggregationQuestion, list[int]] = {}
        for number, event in enumerate(asks.tolist()):
            key = tuple(column[number if len(column) > 1 else 0] for column in columns)
            if key not in cache:
                cache[key] = self._read(*key)
            read = cache[key]
            if isinstance(read, str):
                frame.failures.setdefault(event, read)
                continue
            moment = moments[number][0], moments[number][1]
            questions.setdefault(AggregationQuestion(moment, *read), []).append(event)
        return questions

    def _read(
        self, per: Any, start: Any, end: Any = None
    ) -> tuple[tuple[int, int], TimeUnit] | str:
        """The span and the duration of a question; a text says why it has none."""
        if per is None or start is None or (end is None and len(self._ends) > 1):
            return "'within' or 'per' is null"
        try:
            duration = duration_named(per, self._cells.durations, self._name)
            return span_between(start, end), duration
        except ValueError as error:
            return str(error)

    def _answer(
        self, question: AggregationQuestion, events: Longs, frame: Frame, clock_ms: Longs
    ) -> tuple[pa.RecordBatch, Longs, Longs]:
        """The rows for a question, and the pairs of events and rows for which ``on`` holds."""
        cells, equal = self._cells, self._equal
        none = np.empty(0, dtype=np.int64)
        if self._never:
            return pa.RecordBatch.from_pylist([], cells.schema), none, none
        values = None if equal is None else _values(equal.value, frame, events)
        if values is not None and len(values) < len(events):
            values = values * len(events)
        groups = None
        if equal is not None and equal.key is not None and values is not None:
            groups = groups_with(cells, equal.key, list(dict.fromkeys(values)))
        now_ms = int(clock_ms[events].max())
        if self._pushed is None:
            batch = find(cells, question.within, question.per, now_ms=now_ms, groups=groups)
        else:
            batch = find_joined(cells, question.within, question.per, groups)
        if equal is None or values is None:
            row = np.repeat(events, batch.num_rows)
            place = np.tile(np.arange(batch.num_rows), len(events))
        else:
            row, place = _alike(events, values, batch.column(equal.column).to_pylist())
        if self._on is None or not len(row):
            return batch, row, place
        met = [
            self._met(frame, row[at : at + _PAIRS_MAX], batch, place[at : at + _PAIRS_MAX])
            for at in range(0, len(row), _PAIRS_MAX)
        ]
        holds = np.concatenate(met)
        return batch, row[holds], place[holds]

    def _met(self, frame: Frame, row: Longs, batch: pa.RecordBatch, place: Longs) -> Any:
        """bool[n], for which pairs the condition holds."""
        assert self._on is not None
        pairs = frame.pairs(row, Frame.of_rows(batch, self._step), place)
        holds = np.broadcast_to(self._on(pairs), len(row))
        for pair, why in sorted(pairs.failures.items()):
            frame.failures.setdefault(int(row[pair]), why)
        return holds


def add_spans(frame: Frame, spans: Longs) -> None:
    """Add the span that each row asks for, as attributes of the left side."""
    for column, name in enumerate(("_START", "_END")):
        frame.add(0, name, Vector(AttributeType.LONG, np.ascontiguousarray(spans[:, column])))


def _values(evaluate: Evaluator, frame: Frame, rows: Longs) -> list[object]:
    """The values at ``rows`` as Python values, None for null; one for a constant."""
    vector = evaluate(frame)
    if len(vector) == 1 and frame.length > 1:
        return list(vector.to_arrow(1).to_pylist())
    return list(vector.take(rows).to_arrow(len(rows)).to_pylist())


def _alike(
    events: Longs, values: Sequence[object], others: Sequence[object]
) -> tuple[Longs, Longs]:
    """The pairs of events and rows with equal values that are not null, by event."""
    by_value: dict[Any, list[int]] = {}
    for place, value in enumerate(others):
        if value is not None:
            by_value.setdefault(value, []).append(place)
    matches = [by_value.get(value, []) for value in values]
    row = np.repeat(events, [len(places) for places in matches])
    return row, np.array([place for places in matches for place in places], dtype=np.int64)


def _divided_by(source: BoundJoin, step: int) -> Evaluator | None:
    """Evaluates the attribute that divides a join with the side ``step``, if it is a text."""
    stream = (source.left, source.right)[1 - step].schema
    attribute = None if source.divided_by is None else stream.get(source.divided_by)
    if attribute is None or attribute.type is not AttributeType.STRING:
        return None
    return compile_expression(Column(attribute.name, attribute.type, 1 - step))


def _equalities(on: BoundExpression, step: int, cells: Aggregation) -> Iterator[_KeyEquality]:
    """The parts of ``on`` that are equalities with a column of the aggregation, keys first."""
    equalities = []
    for part in conjuncts(on):
        if not isinstance(part, BinaryExpression) or part.operator is not BinaryOperator.EQUAL:
            continue
        for side, other in ((part.left, part.right), (part.right, part.left)):
            if (
                isinstance(side, Column)
                and side.step == step
                and all(column.step != step for column in columns_of(other))
                and _is_same_kind(side, other)
            ):
                key = key_place(side.name, cells.schema.names, cells.layout)
                equalities.append(_KeyEquality(side.name, key, compile_expression(other)))
    return iter(sorted(equalities, key=lambda one: one.key is None))


def _of_keys(on: BoundExpression | None, step: int, cells: Aggregation) -> BoundExpression | None:
    """The parts of ``on`` that compare group-by columns, as conditions of a table's rows.

    A group-by attribute without a value has one in tables, so ``is null`` is no part.
    """
    conditions = [_of_table(part, step, cells) for part in ([] if on is None else conjuncts(on))]
    parts = [part for part in conditions if part is not None]
    return conjunction(parts) if parts else None


def _of_table(part: BoundExpression, step: int, cells: Aggregation) -> BoundExpression | None:
    """A comparison of group-by columns, or several with ``and`` and ``or``; None for others."""
    match part:
        case Column() if part.step == step:
            place = key_place(part.name, cells.schema.names, cells.layout)
            if place is None:
                return None
            return replace(part, name=cells.layout.keys[place].name, step=TABLE_STEP)
        case BinaryExpression():
            left, right = (_of_table(one, step, cells) for one in (part.left, part.right))
            return None if left is None or right is None else replace(part, left=left, right=right)
        case _:
            is_foreign = all(column.step != step for column in columns_of(part))
            return part if is_foreign else None


def _is_same_kind(side: BoundExpression, other: BoundExpression) -> bool:
    """Whether equal values are equal in Python."""
    if side.type is AttributeType.STRING:
        return other.type is AttributeType.STRING
    return side.type in _WHOLE and other.type in _WHOLE
