"""The memory of the exact pattern machine: arrays of whole numbers, and lists made in them.

A partial match is a row of ``matches``: for each step the first node of its chain of events, or
-1; then its time, -1 before its first event, and whether ``within`` has dropped it.  Copies of one
share the chains of the steps before the one they wait at: one that grows does so for all.

Each step of each instance has two lists of partial matches: those that wait (``PENDING``) and those
that will from the next event on (``NEW``).  Lists are chains of cells.

Native code; no Python objects inside.

Tables in memory as native code sees them: addresses, without a count of references.

Numba counts the references to each array that is passed to an ``njit`` function, and passes each as
nine words.  The pattern machine has some thirty tables and many small functions: passing the
tables would cost more than the work of the functions.  So each function gets one address, that of a
directory: for each table its address, the width of its rows and their number.
``w.lists[3, SIZE]`` is then two loads, and ``w`` is one word.

The owner of a directory keeps its tables alive, and makes another when one of them moves.  Bounds
are not checked, as with Numba's own arrays.
"""
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending as numba_extending
from numba import types
from numba.core import cgutils as numba_cgutils
from numba.core.typing.templates import AttributeTemplate

from mesh.operators.base import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numba.core.base import BaseContext
    from numba.core.datamodel.manager import DataModelManager
    from numba.core.typing.context import BaseContext as BaseTypingContext
    from numba.core.typing.templates import Signature

    from mesh.operators.base import Longs

    #: A signature, and the code for a call with it.
    Typed = tuple[Signature, Callable[..., ir.Value]]

Array = Numbers
# Numba has no types.
extending: Any = numba_extending
cgutils: Any = numba_cgutils

#: Words of a directory for each table: address, width of a row, rows.
_ENTRY: Final = 3
_WORD = ir.IntType(64)
_WORDS = _WORD.as_pointer()


class TableType(types.Type):
    """A table of cells of 64 bits; ``width``: of its rows, 0 if the directory has it."""

    def __init__(self, width: int, is_floating: bool) -> None:
        self.width = width
        self.is_floating = is_floating
        super().__init__(name=f"Table({width}, {is_floating})")


class DirectoryType(types.Type):
    """All tables, by name."""

    def __init__(self, tables: Sequence[tuple[str, TableType]]) -> None:
        self.numbers = {name: number for number, (name, _) in enumerate(tables)}
        self.tables = dict(tables)
        super().__init__(name=f"Directory({tables})")


def directory_type(widths: Mapping[str, int], floating: Sequence[str]) -> DirectoryType:
    """The type of a directory, from the tables' names in order and their widths."""
    return DirectoryType([(n, TableType(width, n in floating)) for n, width in widths.items()])


class TableDirectory:
    """The directory of tables in the order of their names: contiguous, of 64 bits wide cells."""

    def __init__(self) -> None:
        self._tables: list[Array] = []
        self._entries: Longs = np.empty(0, dtype=np.int64)

    def of(self, tables: Sequence[Array]) -> Longs:
        """Its cells; these tables live as long as it has no others."""
        if len(tables) != len(self._tables):
            self._tables = [self._entries] * len(tables)
            self._entries = np.empty(_ENTRY * len(tables), dtype=np.int64)
        for number, table in enumerate(tables):
            if table is not self._tables[number]:
                width = 1 if table.ndim == 1 else table.shape[1]
                at = _ENTRY * number
                self._entries[at : at + _ENTRY] = table.ctypes.data, width, len(table)
        self._tables = list(tables)
        return self._entries


@extending.register_model(TableType)
@extending.register_model(DirectoryType)
class _Address(extending.models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: DataModelManager, of: types.Type) -> None:
        super().__init__(manager, of, _WORDS)


def opener(kind: DirectoryType) -> Callable[[Array], Any]:
    """A native function from the array that ``directory`` made to the tables."""

    @extending.intrinsic  # type: ignore[untyped-decorator]
    def opened(context: BaseTypingContext, entries: types.Type) -> Typed:
        def generate(
            context: BaseContext,
            builder: ir.IRBuilder,
            signature: Signature,
            arguments: Sequence[ir.Value],
        ) -> ir.Value:
            return context.make_array(signature.args[0])(context, builder, arguments[0]).data

        return kind(entries), generate

    return cast("Callable[[Array], Any]", opened)


@extending.intrinsic  # type: ignore[untyped-decorator]
def as_floating(context: BaseTypingContext, bits: types.Type) -> Typed:
    """Native: the double that 64 bits are."""

    def generate(
        context: BaseContext,
        builder: ir.IRBuilder,
        signature: Signature,
        arguments: Sequence[ir.Value],
    ) -> ir.Value:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@extending.infer_getattr
class _Names(AttributeTemplate):
    key = DirectoryType

    def generic_resolve(self, kind: DirectoryType, name: str) -> TableType | None:  # type: ignore[override]
        return kind.tables.get(name)


@extending.lower_getattr_generic(DirectoryType)  # type: ignore[untyped-decorator]
def _table(
    context: BaseContext, builder: ir.IRBuilder, kind: DirectoryType, value: ir.Value, name: str
) -> ir.Value:
    """The place of a table's entry."""
    return builder.gep(value, [_WORD(_ENTRY * kind.numbers[name])])


def _entry(builder: ir.IRBuilder, table: ir.Value, number: int) -> ir.Value:
    return builder.load(builder.gep(table, [_WORD(number)]))


def _cell(
    context: BaseContext,
    builder: ir.IRBuilder,
    signature: Signature,
    table: ir.Value,
    index: ir.Value,
) -> ir.Value:
    """The address of a cell."""
    kind: TableType = signature.args[0]
    of: Any = signature.args[1]
    if isinstance(signature.args[1], types.BaseTuple):
        row, column = cgutils.unpack_tuple(builder, index)
        row = context.cast(builder, row, of[0], types.int64)
        column = context.cast(builder, column, of[1], types.int64)
        width = _WORD(kind.width) if kind.width else _entry(builder, table, 1)
        place = builder.add(builder.mul(row, width), column)
    else:
        place = context.cast(builder, index, of, types.int64)
    cells = ir.DoubleType().as_pointer() if kind.is_floating else _WORDS
    return builder.gep(builder.inttoptr(_entry(builder, table, 0), cells), [place])


def _load(
    context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Sequence[ir.Value]
) -> ir.Value:
    return builder.load(_cell(context, builder, signature, *arguments))


def _store(
    context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Sequence[ir.Value]
) -> ir.Value:
    table, index, value = arguments
    kind, _, value_type = signature.args
    value = context.cast(builder, value, value_type, _cell_type(kind))
    builder.store(value, _cell(context, builder, signature, table, index))
    return context.get_dummy_value()


def _length(
    context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Sequence[ir.Value]
) -> ir.Value:
    return _entry(builder, arguments[0], 2)


def _cell_type(kind: TableType) -> types.Type:
    return types.float64 if kind.is_floating else types.int64


@extending.type_callable(operator.getitem)  # type: ignore[untyped-decorator]
def _types_of_loads(
    context: BaseTypingContext,
) -> Callable[[types.Type, types.Type], types.Type | None]:
    def typed(table: types.Type, index: types.Type) -> types.Type | None:
        return _cell_type(table) if isinstance(table, TableType) else None

    return typed


@extending.type_callable(operator.setitem)  # type: ignore[untyped-decorator]
def _types_of_stores(
    context: BaseTypingContext,
) -> Callable[[types.Type, types.Type, types.Type], types.Type | None]:
    def typed(table: types.Type, index: types.Type, value: types.Type) -> types.Type | None:
        return types.none if isinstance(table, TableType) else None

    return typed


@extending.type_callable(len)  # type: ignore[untyped-decorator]
def _types_of_lengths(context: BaseTypingContext) -> Callable[[types.Type], types.Type | None]:
    def typed(table: types.Type) -> types.Type | None:
        return types.int64 if isinstance(table, TableType) else None

    return typed


for _index in (types.BaseTuple, types.Integer):
    extending.lower_builtin(operator.getitem, TableType, _index)(_load)
    extending.lower_builtin(operator.setitem, TableType, _index, types.Any)(_store)
extending.lower_builtin(len, TableType)(_length)


# Columns of ``plan``, one row a step.
KIND, START, NEXT, EVERY, WITHIN_EVERY, CALLBACK, FINISHES, LAST, PARTNER = range(9)
LOGIC, WAITING, LEAST, MOST, STREAM, PROGRAM, PROGRAM_END = range(9, 16)
#: A comparison that is evaluated first, or ``NONE``; the programs of the match's and the event's
#: side.
QUICK, OF_MATCH, OF_MATCH_END, OF_EVENT, OF_EVENT_END = range(16, 21)
#: Whether waiting matches are found by a value, and the programs of that.
KEY, KEY_OF_MATCH, KEY_OF_MATCH_END, KEY_OF_EVENT, KEY_OF_EVENT_END = range(21, 26)
PLAN_COLUMNS: Final = 26

# ``KIND``
ONE, COUNT, ABSENT, LOGICAL, ABSENT_LOGICAL = range(5)
# ``LOGIC``
AND, OR = 1, 2

# ``scalars``
IS_SEQUENCE, WITHIN_MS, STEPS, MATCHES, NODES, CELLS, FREE_CELL, TASKS, TASK_COUNT = range(9)
OUTPUTS, ITEMS, CLOCK_MS, ORDER, CAUSE, CHUNK, LAST_ORDER, LAST_CLOCK = range(9, 17)
#: ``READERS``: the width of ``readers``.
#: ``MOST_ALIKE``: as many, at most, are in one bucket.
#: ``IS_TIMED``: whether anything waits for time alone.
FIRED, SKIPS, READERS, BUCKETS, MOST_ALIKE, IS_TIMED = range(17, 23)
#: Whether a condition has just failed, and on which part: see ``WHY``.  ``FAILURES``: how many are
#: written down; ``LOST_CHUNK``: the number of the array of which no further event is processed.
FAILING, REASON, FAILURES, LOST_CHUNK = range(23, 27)
#: Whether the journal is kept, the number of its first entry, how many matches entered and how many
#: left; and, where it has no room, how much is needed of both.
JOURNALS, SERIAL, ENTERED, LEFT, NEED_ENTERED, NEED_LEFT = range(27, 33)
#: Number of requests to Python, and how many one event may make for each match; how many a match
#: may make without answers, how many end a run, the event of the first without an answer, and for
#: how many room is needed: see ``requests``.
REQUESTS, PREDICATES, LOOKAHEAD, MOST_REQUESTS, FIRST_UNANSWERED, NEED_REQUESTS = range(33, 39)
#: Seed of the hashes of ``match_index``, for this process.
SEED: Final = 39
SCALARS: Final = 40

# Columns of ``nodes``; ``TAIL`` and ``LENGTH`` are those of a chain, at its first node.
EVENT, TIME, FORWARD, BACK, TAIL, LENGTH = range(6)
NODE_COLUMNS: Final = 6

# Columns of ``cells``.  ``BITS`` is the match's side of the step's quick comparison; ``ALIKE``
# and ``ALIKE_BEFORE`` link the cells of one ``BUCKET``: see ``match_index``.
HOLDS, AFTER, BITS, BITS_NULL, BEFORE, ALIKE, ALIKE_BEFORE, BUCKET = range(8)
CELL_COLUMNS: Final = 8
#: ``ALIKE_BEFORE`` of a cell in a list ``NEW``.
UNLINKED: Final = -2

# Columns of ``buckets``.
BUCKET_LIST, BUCKET_KEY, BUCKET_HEAD, BUCKET_END, BUCKET_SIZE = range(5)
BUCKET_COLUMNS: Final = 5

# Columns of ``lists``; ``LOW`` and ``HIGH`` bound the times of its matches' first events.
HEAD, END, SIZE, LOW, HIGH = range(5)
LIST_COLUMNS: Final = 5
#: Lists that belong to no step.
SCRATCH: Final = 1
PENDING, NEW = 0, 1

# Columns of ``entered``: the list that a match has entered, and the match.
ENTERED_LIST, ENTERED_MATCH = range(2)
ENTERED_COLUMNS: Final = 2

# Columns of ``local``, one row for each step of each instance; ``DUE`` is the time that the step
# was last scheduled for or, of a pair, that of its last event.
ACTIVE, DUE, INITIALIZED, RESETS, STARTED, QUEUE, QUEUE_END, RUNNING = range(8)
LOCAL_COLUMNS: Final = 8

# Columns of ``tasks``, a heap by (time, number).
TASK_TIME, TASK_NUMBER, TASK_KEY, TASK_ORDER = range(4)
TASK_COLUMNS: Final = 4

# Columns of ``flags``, one row a step.
CHANGED, SUCCESS, RETURNED = range(3)
FLAG_COLUMNS: Final = 3

# Columns of ``outputs``, before the events that the query reads.
OUT_TIME, OUT_CLOCK, OUT_ORDER, OUT_CAUSE, OUT_CHUNK, OUT_DROPPED, OUT_INSTANCE, OUT_MATCH = range(
    8
)
OUT_COLUMNS: Final = 8

# Columns of ``failed``: the event on which a condition failed, the step, and the failed part:
# ``NONE`` for the condition on the event alone; an attribute of an event, as ``slot *
# ATTRIBUTES_MOST + column``; or, below ``NONE``, the row of the program of an expression without
# its event; from ``PREDICATE_REASON`` downwards, the reason of a predicate of Python.
FAILED_EVENT, FAILED_STEP, WHY = range(3)
FAILED_COLUMNS: Final = 3
ATTRIBUTES_MOST: Final = 1 << 16
PREDICATE_REASON: Final = -(1 << 40)

#: ``receivers``: whether matches that a stream's event completes are emitted, and each separately.
NOT_AT_ALL, AT_ONCE, EACH = range(3)

NONE: Final = -1
#: ``EVENT`` of a node for an absent event.
NOTHING: Final = -1
#: In place of an event: its own condition fails at every waiting match.
FAILS: Final = -2
#: ``nulls`` of a value that could not be computed.
FAILED: Final = 2
NEVER: Final = -1
FAR: Final = 1 << 62


class PatternMemory(NamedTuple):
    """All that the machine works on; the arrays' columns are named above."""

    plan: Array
    #: The steps that a match can begin with.
    starts: Array
    #: The steps in the orders in which the engine begins, resets and updates them.
    initials: Array
    resets: Array
    updates: Array
    #: By stream: the steps in the order of the text, and in the order in which they receive an
    #: event.
    readers: Array
    #: By stream: whether it is read once, and whether matches that it completes are emitted.
    receivers: Array
    #: The reads of a match: step, index, whether all of its events.
    reads: Array
    program: Array
    program_floats: Array
    scalars: Array
    flags: Array
    matches: Array
    nodes: Array
    cells: Array
    lists: Array
    #: Matches of a list that are found by a value; ``hashes`` is a hash table of their numbers.
    buckets: Array
    hashes: Array
    local: Array
    tasks: Array
    values: Array
    floats: Array
    nulls: Array
    stack: Array
    stack_floats: Array
    stack_nulls: Array
    path: Array
    outputs: Array
    items: Array
    #: Events on which conditions failed.
    failed: Array
    #: The journal (see ``entries``): by cell, the number of its entry; the entered matches, by
    #: number, and the numbers of those that left; by step and instance, the last entry that is
    #: ready.
    entries: Array
    entered: Array
    left: Array
    ready: Array
    #: The reads of Python's predicates: step and index.
    references: Array
    #: Requests to Python, their hash table, and by match how many have no answer in this run.
    requests: Array
    request_heads: Array
    request_counts: Array


#: Widths of rows that are the same in all memories.
_WIDTHS: Final = {
    "plan": PLAN_COLUMNS,
    "reads": 3,
    "flags": FLAG_COLUMNS,
    "nodes": NODE_COLUMNS,
    "cells": CELL_COLUMNS,
    "buckets": BUCKET_COLUMNS,
    "lists": LIST_COLUMNS,
    "local": LOCAL_COLUMNS,
    "tasks": TASK_COLUMNS,
    "failed": FAILED_COLUMNS,
    "entered": ENTERED_COLUMNS,
    "references": 2,
}
#: Arrays that are another's memory as doubles.
_FLOATING: Final = ("program_floats", "floats", "stack_floats")
#: Native: the memory that a directory leads to.
opened: Final = opener(
    directory_type({name: _WIDTHS.get(name, 0) for name in PatternMemory._fields}, _FLOATING)
)
