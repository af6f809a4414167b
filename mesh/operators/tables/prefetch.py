"""Rows of databases that the events of a run may need, loaded with few statements.

Queries that share tables or aggregations are run event by event, and each event would ask the
database by itself.  So before a run the conditions of queries that read a stream directly are
looked up for all of its events at once.  Events that a filter stops are among them: more rows come
than are needed.

Reads of tables in databases that are repeated: an executor's runs, with the rows that they read.

A run that looks anything up is one *read run*: up to how many of the merged events it went, up to
which time, and the rows that came.  They are written before the output of the run leaves.  After a
failure the same events come again, perhaps cut in another way.  Then they are cut as they were, and
tables have the rows of each read run and ask no database.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from mesh.language.syntax import BinaryOperator
from mesh.model.stored import ReadRun
from mesh.model.types import AttributeType
from mesh.operators.dataflow.merge import ranked
from mesh.operators.expressions import Frame, conjunction
from mesh.operators.joins.aggregation_lookup import AggregationLookup
from mesh.operators.joins.lookup_input import of_table
from mesh.operators.tables.lookup_table import LookupCondition, LookupTable
from mesh.plan.bound import (
    AggregateCall,
    BinaryExpression,
    BoundFilter,
    BoundJoin,
    BoundStream,
    Column,
    EventIsNull,
    FunctionCall,
    Insert,
    SourceKind,
    TableCheck,
    UnaryExpression,
    walk,
)
from mesh.plan.bound import AnswerOutput as Reads
from mesh.plan.bound.expressions import OUTPUT_STEP, TABLE_STEP
from mesh.plan.stores import stored_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from mesh.operators.base import EventBatch
    from mesh.operators.dataflow.merge import MergedRun
    from mesh.operators.tables.app_table import AppTable
    from mesh.plan.bound import BoundApp, BoundExpression, BoundQuery


#: Fewer events ask by themselves.
_EVENTS_MIN = 2


class Repeated(Protocol):
    """Rows of a table in a database, of which those that a run has read can be found again."""

    @property
    def read_name(self) -> str:
        """Its name in read runs."""
        ...

    def take_reads(self) -> pa.RecordBatch | None:
        """The rows that came since the last call; None if none were asked for."""
        ...

    def repeat(self, rows: pa.RecordBatch | None, *, continues: bool) -> None:
        """Have the rows of an earlier run at hand, and ask for no others from now on."""
        ...

    def ask_again(self) -> None:
        """Ask the database again: no earlier run is left."""
        ...


class Replay:
    """Cuts merged events at the ends of earlier read runs, and gives tables their rows."""

    def __init__(self, tables: Sequence[Repeated]) -> None:
        self._tables = tables
        self._runs: deque[ReadRun] = deque()
        self._has_begun = False
        #: Whether the present run has repeated another one to its end.
        self._has_repeated = False
        #: Merged events and changes that were handed out.
        self.taken = 0
        #: The number of the last read run.
        self.number = 0

    def repeat(self, runs: Iterable[ReadRun]) -> None:
        """Repeat these read runs, the first ones after the present state.

        The first one begins at once: a state of its middle has rows that a new run would forget.
        """
        self._runs.extend(run for run in runs if run.number > self.number)
        self._begin()

    def _begin(self) -> None:
        """Give tables the rows of the first read run, unless they have them."""
        if self._runs and not self._has_begun:
            self._has_begun = True
            run = self._runs[0]
            for table in self._tables:
                table.repeat(run.rows.get(table.read_name), continues=run.continues)

    def parts(
        self, ready: list[MergedRun], watermark_ms: int
    ) -> Iterator[tuple[list[MergedRun], int]]:
        """The events up to the end of each earlier read run, and its time; then the others."""
        self._has_repeated = bool(self._runs)
        while self._runs:
            run = self._runs[0]
            self._begin()
            count = sum(len(one.index) for one in ready)
            rest = run.until - self.taken
            if count < rest or (count == rest and watermark_ms < run.known_ms):
                self.taken += count
                yield ready, watermark_ms
                return
            self.taken = run.until
            yield ranked(ready, 0, rest), run.known_ms
            self.number = run.number
            self._runs.popleft()
            self._has_begun = False
            if not self._runs:
                for table in self._tables:
                    table.ask_again()
            ready = ranked(ready, rest, count)
        self.taken += sum(len(one.index) for one in ready)
        yield ready, watermark_ms

    def read(self, watermark_ms: int, *, continues: bool, writes: bool) -> ReadRun | None:
        """The read run that has just ended; None if nothing was looked up, and not ``writes``."""
        reads = [table.take_reads() for table in self._tables]
        if self._runs or (not writes and all(one is None for one in reads)):
            return None
        self.number += 1
        named = zip(self._tables, reads, strict=True)
        rows = {table.read_name: one for table, one in named if one is not None}
        return ReadRun(self.number, self.taken, watermark_ms, continues or self._has_repeated, rows)


class Prefetch:
    """By stream, the conditions over tables in databases that its events are used in."""

    def __init__(self, app: BoundApp, tables: Mapping[str, AppTable]) -> None:
        """Compile them; inside of ``using``."""
        self._tables = {n: t for n, t in tables.items() if isinstance(t, LookupTable)}
        self._table_lookups: dict[str, list[tuple[int, LookupCondition]]] = {}
        self._aggregation_lookups: dict[str, list[tuple[int, AggregationLookup]]] = {}
        inside = (query for partition in app.partitions for query in partition.queries)
        stored = {one.schema.name for one in app.aggregations if stored_in(one) is not None}
        for query in (*app.queries, *inside) if self._tables or stored else ():
            for stream, step, lookup in _aggregations(query, stored):
                self._aggregation_lookups.setdefault(stream, []).append((step, lookup))
            for stream, step, table, on in self._conditions(query):
                condition = LookupCondition(on, self._tables[table])
                self._table_lookups.setdefault(stream, []).append((step, condition))

    def load(self, entering: Iterable[tuple[str, EventBatch]]) -> None:
        """Load what the events of a run may need.

        Raises:
            MeshError: a database does not answer.
        """
        if not self._table_lookups and not self._aggregation_lookups:
            return
        for stream, events in entering:
            for step, lookup in self._aggregation_lookups.get(stream, ()):
                if len(events) >= _EVENTS_MIN:
                    lookup.load(Frame.of_events(events, step))
            for step, condition in self._table_lookups.get(stream, ()):
                if len(events) >= _EVENTS_MIN:
                    condition.require(Frame.of_events(events, step))

    def _conditions(
        self, query: BoundQuery
    ) -> Iterator[tuple[str, int, str, BoundExpression | None]]:
        """Stream, its step, table, and the condition over columns of both."""
        sources: list[tuple[int, BoundStream]] = []
        if isinstance(query.input, BoundStream):
            sources = [(0, query.input)]
        elif isinstance(query.input, BoundJoin):
            sources = [(0, query.input.left), (1, query.input.right)]
        for step, source in sources:
            if source.kind is not SourceKind.STREAM:
                continue
            for table, on in self._of_source(query, step, source):
                if table in self._tables and _is_of(on, step, source):
                    yield source.schema.name, step, table, on

    def _of_source(
        self, query: BoundQuery, step: int, source: BoundStream
    ) -> Iterator[tuple[str, BoundExpression]]:
        if isinstance(query.input, BoundJoin):
            other = query.input.right if step == 0 else query.input.left
            on = of_table(query.input.on, 1 - step)
            if other.kind is SourceKind.TABLE and on is not None:
                yield other.schema.name, on
        roots = [output.expression for output in query.outputs]
        roots += [h.condition for h in source.handlers if isinstance(h, BoundFilter)]
        for part in (part for one in roots for part in walk(one)):
            if isinstance(part, TableCheck):
                yield part.table, part.operand
        action = query.action
        if isinstance(action, Reads) or action.target.name not in self._tables:
            return
        values = {output.name: output.expression for output in query.outputs}
        if isinstance(action, Insert):
            yield action.target.name, self._by_key(action.target.name, [*values.values()])
            return
        on = _with_outputs(action.on, values)
        if on is not None:
            yield action.target.name, on

    def _by_key(self, name: str, values: Sequence[BoundExpression]) -> BoundExpression:
        """The condition that a row has the primary key of ``values``, all of a row."""
        table = self._tables[name]
        columns = (Column(a.name, a.type, TABLE_STEP) for a in table.schema.attributes)
        return conjunction(
            BinaryExpression(BinaryOperator.EQUAL, column, value, AttributeType.BOOL)
            for column, value in zip(columns, values, strict=True)
            if column.name in table.primary_key
        )


def _aggregations(
    query: BoundQuery, stored: Collection[str]
) -> Iterator[tuple[str, int, AggregationLookup]]:
    """Of a join with an aggregation in a store: stream, its step, and the look-up."""
    join = query.input
    if not isinstance(join, BoundJoin) or join.within is None:
        return
    for step, (source, other) in enumerate(((join.left, join.right), (join.right, join.left))):
        if source.kind is not SourceKind.STREAM or other.kind is not SourceKind.AGGREGATION:
            continue
        arguments = [join.per, join.within.start, join.within.end]
        is_computable = all(
            (isinstance(part, Column) and part.step != step)
            or _is_computable(part, step, source.schema.names)
            for one in (*arguments, join.on)
            if one is not None
            for part in walk(one)
        )
        if is_computable and other.schema.name in stored:
            yield source.schema.name, step, AggregationLookup(join, 1 - step)


def _is_of(on: BoundExpression, step: int, source: BoundStream) -> bool:
    """Whether a condition can be computed of a stream's events alone, as they come."""
    return on.type is AttributeType.BOOL and all(
        _is_computable(part, step, source.schema.names) for part in walk(on)
    )


def _is_computable(part: BoundExpression, step: int, names: Sequence[str]) -> bool:
    match part:
        case AggregateCall() | TableCheck() | EventIsNull():
            return False
        case FunctionCall():
            return not part.is_script
        case Column():
            is_input = (part.step, part.index) == (step, None) and part.name in names
            return part.step == TABLE_STEP or is_input
        case _:
            return True


def _with_outputs(
    on: BoundExpression, values: Mapping[str, BoundExpression]
) -> BoundExpression | None:
    """``on`` with the expressions of a query's output in place of its attributes."""
    match on:
        case Column() if on.step == OUTPUT_STEP:
            return values.get(on.name)
        case UnaryExpression():
            operand = _with_outputs(on.operand, values)
            return None if operand is None else replace(on, operand=operand)
        case BinaryExpression():
            left, right = (_with_outputs(one, values) for one in (on.left, on.right))
            if left is None or right is None:
                return None
            return replace(on, left=left, right=right)
        case FunctionCall():
            arguments = [_with_outputs(one, values) for one in on.arguments]
            if any(one is None for one in arguments):
                return None
            return replace(on, arguments=tuple(one for one in arguments if one is not None))
        case _:
            return on
