"""A table whose rows stay in its database: those that queries need are read there.

    event ──▶ condition ──▶ look-up ──▶ rows, kept beside the changes until these are written
                                └─ not for keys that are known: read or changed before, or cached

Before a condition is evaluated, the rows that may meet it are loaded; before a row is written, the
one with its key.  So the table in memory has every row that a query can find or change, and its
queries are those of any table.  ``settle`` ends that, when the changes are in the database: then
only a cache is left.

Which rows of a table in a database stay at hand: ``@cache``, by size, policy and age.

It knows keys only; the rows are those of the table.  Each step costs what changed, not what is
there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import from_arrow
from mesh.model.stored import EVERY_ROW, UNFIT, AllOf, AnyKey, CachePolicy
from mesh.operators.base import State, concat, no_rows
from mesh.operators.tables.pushed import Pushed, key_parts
from mesh.operators.tables.store import Table
from mesh.operators.tables.written import WrittenCondition, WrittenTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mesh.functions.vectors import Vector
    from mesh.model.stored import CacheOptions, Clause, StoreOptions
    from mesh.operators.base import Longs
    from mesh.operators.expressions import Environment, Frame
    from mesh.operators.tables.conditions import Condition
    from mesh.operators.tables.order import Key
    from mesh.plan.bound import BoundExpression, BoundTable

    Reader = Callable[[Clause], pa.RecordBatch]


@dataclass(slots=True, eq=False)
class _Entry:
    key: Key
    #: Uses that count: those of the policy LFU.
    uses: int = 0


class RowCache:
    """The keys of a cache, in the order in which they would leave."""

    def __init__(self, options: CacheOptions) -> None:
        self._options = options
        self._entries: dict[Key, _Entry] = {}
        #: By uses, the keys: the oldest first, or that not used for longest.
        self._order: dict[int, dict[Key, None]] = {}
        self._new: list[_Entry] = []
        #: When each entry was met by ``leaving`` first.
        self._ages: deque[tuple[int, _Entry]] = deque()

    def __repr__(self) -> str:
        return f"RowCache({len(self._entries)} keys)"

    @property
    def counts_use(self) -> bool:
        """Whether ``used`` changes anything."""
        return self._options.policy is not CachePolicy.FIFO

    def came(self, keys: Iterable[Key]) -> None:
        """Enter keys whose rows are at hand now."""
        for key in keys:
            if key not in self._entries:
                entry = self._entries[key] = _Entry(key)
                self._order.setdefault(0, {})[key] = None
                self._new.append(entry)

    def went(self, key: Key) -> None:
        """Forget a key whose row is gone."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._unlink(entry)

    def used(self, keys: Iterable[Key]) -> None:
        """Note that rows were found."""
        if not self.counts_use:
            return
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None:
                self._unlink(entry)
                entry.uses += self._options.policy is CachePolicy.LFU
                self._order.setdefault(entry.uses, {})[key] = None

    def leaving(self, now_ms: int) -> list[Key]:
        """The keys whose rows leave at ``now_ms``, which never falls; they are forgotten."""
        self._ages.extend((now_ms, entry) for entry in self._new)
        self._new.clear()
        gone: list[Key] = []
        retention_ms = self._options.retention_ms
        while self._ages and self._is_over(*self._ages[0], now_ms, retention_ms):
            entry = self._ages.popleft()[1]
            if self._entries.get(entry.key) is entry:
                gone.append(entry.key)
                self.went(entry.key)
        while len(self._entries) > self._options.size:
            key = next(iter(self._order[min(self._order)]))
            gone.append(key)
            self.went(key)
        return gone

    def _is_over(self, since_ms: int, entry: _Entry, now_ms: int, retention_ms: int | None) -> bool:
        """Whether an entry is too old, or is no entry any more."""
        is_old = retention_ms is not None and now_ms - since_ms >= retention_ms
        return is_old or self._entries.get(entry.key) is not entry

    def _unlink(self, entry: _Entry) -> None:
        keys = self._order[entry.uses]
        del keys[entry.key]
        if not keys:
            del self._order[entry.uses]


class LookupTable(WrittenTable):
    """The rows of a table in a database that queries have asked for since the last ``settle``."""

    def __init__(
        self, definition: BoundTable, environment: Environment, options: StoreOptions
    ) -> None:
        super().__init__(definition, environment, options)
        #: Reads rows of the database; the process that runs the queries sets it.
        self.find_rows: Reader | None = None
        #: Since the last ``settle``: look-ups, the values of those by equality, by columns and the
        #: parts that hold besides, and keys without a row.
        self._done: set[Clause] = set()
        self._values: dict[tuple[tuple[str, ...], frozenset[Clause]], set[Key]] = {}
        self._absent: set[Key] = set()
        #: Rows that came since the last ``take_reads``; None if nothing was asked.
        self._reads: list[pa.RecordBatch] | None = None
        #: Whether all rows are at hand: those of an earlier run, which is repeated.
        self._is_repeating = False
        self._is_restored = False
        self._cache = None if options.cache is None else RowCache(options.cache)

    def __repr__(self) -> str:
        return f"LookupTable({self.schema.name}, {len(self)} rows at hand)"

    @property
    def is_cached(self) -> bool:
        """Whether rows stay at hand: what was read is not repeated after a failure then."""
        return self._cache is not None

    @property
    def read_name(self) -> str:
        """See ``Repeated``."""
        return self.schema.name

    # Loading

    def require(self, lookups: Iterable[Clause]) -> None:
        """Load the rows that look-ups find, unless they are at hand."""
        for clause in lookups:
            self._reads = [] if self._reads is None else self._reads
            if self._is_repeating:
                return
            if EVERY_ROW in self._done or clause in self._done:
                continue
            by, rest = _by_key(clause)
            if by is not None and self._covers(by, rest):
                continue
            self._load(clause)
            self._done.add(clause)
            if by is not None:
                self._values.setdefault((by.columns, rest), set()).update(by.keys)

    def _covers(self, by: AnyKey, rest: frozenset[Clause]) -> bool:
        """Whether earlier look-ups by these columns, with no other parts, had these values."""
        return any(
            columns == by.columns and parts <= rest and values.issuperset(by.keys)
            for (columns, parts), values in self._values.items()
        )

    def require_keys(self, keys: Iterable[Key]) -> None:
        """Load the rows with these primary keys."""
        self._reads = [] if self._reads is None else self._reads
        if EVERY_ROW in self._done or self._is_repeating:
            return
        unknown = [key for key in dict.fromkeys(keys) if not self._is_resolved(key)]
        many = len(self.primary_key) > 1
        for clause in key_parts(self.primary_key, [key if many else (key,) for key in unknown]):
            self._load(clause)
        self._absent.update(key for key in unknown if key not in self._keys)

    def _is_resolved(self, key: Key) -> bool:
        parts = key if isinstance(key, tuple) else (key,)
        return key in self._keys or key in self._absent or None in parts

    def _load(self, clause: Clause) -> None:
        assert self.find_rows is not None, "a process that runs queries sets a reader"
        self._take_in(self.find_rows(clause))

    def _take_in(self, batch: pa.RecordBatch) -> None:
        columns = [batch.column(name).to_pylist() for name in self.primary_key]
        keys = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        new = np.array([not self._is_resolved(key) for key in keys], dtype=np.bool_)
        rows = batch.filter(pa.array(new))
        if self._reads is not None and not self.is_cached:
            self._reads.append(rows)
        vectors = [
            from_arrow(rows.column(name), column.type) for name, column in self._columns.items()
        ]
        # A row that others have written may break the rules of this table: it is not refused.
        Table.add(self, vectors, rows.num_rows)
        self.note_unfit(rows)

    def take_reads(self) -> pa.RecordBatch | None:
        """The rows that came since the last call; None if none were asked for."""
        taken, self._reads = self._reads, None
        if taken is None:
            return None
        if not taken:
            return no_rows(self.schema.arrow)
        if not any(UNFIT in rows.schema.names for rows in taken):
            return concat(taken)
        return concat(
            [
                rows
                if UNFIT in rows.schema.names
                else rows.append_column(UNFIT, pa.nulls(rows.num_rows, pa.string()))
                for rows in taken
            ]
        )

    def repeat(self, rows: pa.RecordBatch | None, *, continues: bool) -> None:
        """Have the rows of an earlier run at hand, and ask for no others from now on."""
        if not continues and not self._is_restored:
            self.forget()
        self._is_restored = False
        self._is_repeating = True
        if rows is not None:
            self._take_in(rows)
        self._reads = None

    def ask_again(self) -> None:
        """Ask the database again: no earlier run is left."""
        self._is_repeating = False
        self._reads = None
        self._done.clear()
        self._values.clear()

    def settle(self, now_ms: int) -> None:
        """Forget all but what the cache keeps at ``now_ms``, which never falls.

        All changes have to be in the database.
        """
        if self._is_repeating:
            return
        if self._cache is None:
            gone = list(self._keys.values())
        else:
            keys = self._cache.leaving(now_ms)
            gone = [self._keys[key] for key in keys if key in self._keys]
        if gone:
            Table.remove(self, np.array(gone, dtype=np.int64))
        self._done.clear()
        self._values.clear()
        self._absent.clear()

    def forget(self) -> None:
        """Forget all rows, those of a cache as well."""
        self._reads = None
        if self._keys:
            Table.remove(self, np.array(list(self._keys.values()), dtype=np.int64))
        self._done.clear()
        self._values.clear()
        self._absent.clear()

    # Reading

    def condition(self, on: BoundExpression | None) -> Condition:
        """See ``AppTable.condition``."""
        return LookupCondition(on, self)

    def used(self, slots: Longs) -> None:
        """Note for the cache that rows were found."""
        if self._cache is not None and self._cache.counts_use and len(slots):
            self._cache.used(self._key_at(slot) for slot in slots.tolist())

    def rows(self) -> pa.RecordBatch:
        """All rows of the database, by primary key."""
        self.require((EVERY_ROW,))
        return super().rows()

    def arrange(self, slots: Longs) -> Longs:
        """By primary key: which rows are at hand makes no difference."""
        if len(slots) < 2:
            return slots
        keys = [self._key_at(slot) for slot in slots.tolist()]
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__))
        result: Longs = slots[order]
        return result

    # Changing

    def add(self, vectors: Sequence[Vector], count: int) -> dict[int, str]:
        """See ``Table``."""
        vectors = self.formed(vectors, count)
        self.require_keys(self._keys_in(dict(zip(self._columns, vectors, strict=True)), count))
        return super().add(vectors, count)

    def put(self, vectors: Sequence[Vector]) -> str | None:
        """See ``Table``."""
        vectors = self.formed(vectors, 1)
        self.require_keys(self._keys_in(dict(zip(self._columns, vectors, strict=True)), 1))
        return super().put(vectors)

    def put_all(self, vectors: Sequence[Vector], count: int) -> bool:
        """See ``Table``: whole rows are written over whatever the database has."""
        vectors = self.formed(vectors, count)
        keys = self._keys_in(dict(zip(self._columns, vectors, strict=True)), count)
        if self._indexes:
            self.require_keys(keys)
        if not super().put_all(vectors, count):
            return False
        if self._cache is not None:
            self._cache.came(keys)
        return True

    def change(self, slots: Longs, values: Mapping[str, Vector]) -> str | None:
        """See ``Table``."""
        if len(slots) and any(name in values for name in self.primary_key):
            self.require_keys(self._key_of(values, slots))
        return super().change(slots, values)

    def _enter(self, slot: int) -> str | None:
        reason = super()._enter(slot)
        if reason is None and self._cache is not None:
            self._cache.came((self._key_at(slot),))
        return reason

    def _leave(self, slot: int) -> None:
        key = self._key_at(slot)
        super()._leave(slot)
        self._absent.add(key)
        if self._cache is not None:
            self._cache.went(key)

    def _keys_in(self, values: Mapping[str, Vector], count: int) -> list[Key]:
        columns = [
            values[name].spread(count).to_arrow(count).to_pylist() for name in self.primary_key
        ]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    # State

    def snapshot(self) -> State:
        """Nothing: all changes are in the database when a state is stored.

        In the middle of a run that is repeated it is what is at hand.
        """
        if not self._is_repeating:
            return State()
        state = super().snapshot()
        absent = [list(key) if isinstance(key, tuple) else key for key in self._absent]
        return State(state.pieces, {**state.scalars, "absent": absent})

    def restore(self, state: State) -> None:
        """Begin without rows at hand, unless the state is of the middle of a repeated run."""
        scalars = state.scalars
        if "absent" not in scalars:
            self._restored += 1
            return
        super().restore(state)
        self._is_restored = True
        self._absent = {tuple(key) if isinstance(key, list) else key for key in scalars["absent"]}


class LookupCondition(WrittenCondition):
    """A condition that loads the rows that may meet it."""

    def __init__(self, on: BoundExpression | None, table: LookupTable) -> None:
        super().__init__(on, table)
        self._lookup_table = table
        self._pushed = Pushed(on)
        self._loaded: Frame | None = None

    def find(self, frame: Frame, row: int) -> Longs:
        """See ``Condition.find``."""
        self.require(frame)
        slots = super().find(frame, row)
        self._lookup_table.used(slots)
        return slots

    def pairs(self, frame: Frame) -> tuple[Longs, Longs]:
        """See ``Condition.pairs``."""
        self.require(frame)
        rows, slots = super().pairs(frame)
        self._lookup_table.used(slots)
        return rows, slots

    def require(self, frame: Frame) -> None:
        """Load the rows that may meet it with any row of ``frame``, once."""
        if self._loaded is frame or self._never:
            return
        self._loaded = frame
        if self._key is None:
            self._lookup_table.require(self._pushed.lookups(frame))
            return
        columns = [equal.values(frame) for equal in self._key]
        keys = columns[0] if len(columns) == 1 else zip(*columns, strict=True)
        self._lookup_table.require_keys(keys)


def _by_key(clause: Clause) -> tuple[AnyKey | None, frozenset[Clause]]:
    """The part of a look-up that is by equality, and the parts that hold besides."""
    match clause:
        case AnyKey():
            return clause, frozenset()
        case AllOf((AnyKey() as by, *rest)):
            return by, frozenset(rest)
        case _:
            return None, frozenset()
