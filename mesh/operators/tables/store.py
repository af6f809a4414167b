"""A table in memory: rows at numbered slots, found by primary key, by index or by a scan.

Slots are given in order of insertion and are never used again until the table is packed.  So a
slot's number is also its place in that order.  A row with a changed primary key gets a new slot.

As in the reference engine a second row of one primary key is refused, and a key that is one number
can't be null.  Nor can an attribute with an index of its own in a table without a primary key.

Source: observed on Siddhi 5.1.7, live; tests/cases/conformance/tables.jsonl.

A growing column of a table: values at numbered slots, changed in place.

Numbers and bools are NumPy arrays of the type's width with a mask of nulls beside them.  Strings
and objects are Python values; the Arrow array that kernels need for a string column is made on
request, and kept until the column changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import Vector, dtype_of, from_arrow
from mesh.model.types import AttributeType
from mesh.operators.base import State, concat
from mesh.operators.tables.order import BUCKETS, bucket, buckets_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mesh.model.types import StreamSchema
    from mesh.operators.base import Bools, Longs
    from mesh.operators.tables.order import Key


#: Slots of one piece of the state.
PIECE_ROWS = 1024
#: A table with fewer free slots than this is not packed.
_FREE_MIN = 1024
#: Column of a piece of the state with the slot of each row.
SLOT = "#slot"

_PYTHON = (AttributeType.STRING, AttributeType.OBJECT)
_CAPACITY = 16


class TableColumn:
    """The values of one attribute, of slots 0 to below ``length``."""

    def __init__(self, type: AttributeType) -> None:
        self.type = type
        self.length = 0
        self._values: Any = np.empty(_CAPACITY, self._dtype)
        self._nulls: Bools = np.zeros(_CAPACITY, dtype=np.bool_)
        self._whole: Vector | None = None

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(object) if self.type in _PYTHON else dtype_of(self.type)

    def append(self, vector: Vector, count: int) -> None:
        """Append ``count`` further values, of this type."""
        start, stop = self.length, self.length + count
        if stop > len(self._values):
            self._grow(stop)
        values, nulls = _plain(vector.spread(count))
        self._values[start:stop] = values
        self._nulls[start:stop] = nulls
        self.length = stop
        self._whole = None

    def _grow(self, least: int) -> None:
        size = max(2 * len(self._values), least)
        values = np.empty(size, self._dtype)
        nulls = np.zeros(size, dtype=np.bool_)
        values[: self.length] = self._values[: self.length]
        nulls[: self.length] = self._nulls[: self.length]
        self._values, self._nulls = values, nulls

    def set(self, slots: Longs, vector: Vector) -> None:
        """Put values into ``slots``: one for each, or the same into all."""
        values, nulls = _plain(vector.spread(len(slots)))
        self._values[slots] = values
        self._nulls[slots] = nulls
        self._whole = None

    def get(self, slot: int) -> Any:
        """The value at ``slot`` as a Python value."""
        if self._nulls[slot]:
            return None
        value = self._values[slot]
        return value if self.type in _PYTHON else value.item()

    def whole(self) -> Vector:
        """The values of all slots; those of free slots have no meaning."""
        if self._whole is None:
            self._whole = self._vector(slice(0, self.length))
        return self._whole

    def take(self, slots: Longs) -> Vector:
        """The values at ``slots``."""
        return self._vector(slots)

    def _vector(self, at: Any) -> Vector:
        # A copy: a returned array does not change when the table does.
        values, nulls = self._values[at].copy(), self._nulls[at]
        if self.type is AttributeType.STRING:
            return Vector(self.type, pa.array(values, pa.string()))
        return Vector(self.type, values, nulls.copy() if nulls.any() else None)

    def keep(self, slots: Longs) -> None:
        """Forget all but ``slots``, which are numbered from 0 then."""
        self._values = self._values[slots]
        self._nulls = self._nulls[slots]
        self.length = len(slots)
        self._whole = None


def _plain(vector: Vector) -> tuple[Any, Bools]:
    """Values as this module keeps them, and a mask of the missing ones."""
    values = vector.values
    if vector.type is AttributeType.STRING:
        values = values.to_numpy(zero_copy_only=False)
    return values, vector.null_mask


def python_value(vector: Vector, at: int = 0) -> object:
    """The value at ``at``; a vector of length 1 has the same everywhere."""
    at = at if len(vector) > 1 else 0
    if bool(vector.null_mask[at]):
        return None
    value = vector.values[at]
    if isinstance(value, pa.Scalar):
        return value.as_py()
    return value.item() if isinstance(value, np.generic) else value


class Table:
    """The rows of one table, shared by all that read and write it."""

    def __init__(
        self, schema: StreamSchema, primary_key: Sequence[str] = (), indexes: Sequence[str] = ()
    ) -> None:
        self.schema = schema
        self.primary_key = tuple(primary_key)
        types = {attribute.name: attribute.type for attribute in schema.attributes}
        self._key_types = tuple(types[name] for name in self.primary_key)
        #: Whether rows are listed by their key rather than in order of insertion.
        self._sorted = len(self._key_types) == 1 and self._key_types[0].is_numeric
        self._columns = {name: TableColumn(type) for name, type in types.items()}
        self._indexes = {name: _AttributeIndex(self._columns[name]) for name in indexes}
        self._keys: dict[Key, int] = {}
        self._buckets = BUCKETS
        #: Whether a slot has a row; the first ``_slot_count`` slots have been allocated.
        self._flags: Bools = np.zeros(PIECE_ROWS, dtype=np.bool_)
        self._slot_count = 0
        self._count = 0
        #: Changes so far, and when each piece of the state changed last.
        self._changes = 0
        self._changed: dict[int, int] = {}
        self._restored = 0

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Table({self.schema.name}, {self._count} rows)"

    @property
    def version(self) -> tuple[int, int]:
        """Changes whenever a row has been added, removed or changed."""
        return self._restored, self._changes

    @property
    def indexes(self) -> tuple[str, ...]:
        """Attributes that have an index of their own."""
        return tuple(self._indexes)

    # Reading

    def vector(self, name: str, slots: Longs | None = None) -> Vector:
        """An attribute of the rows at ``slots``, or of all slots ever given."""
        column = self._columns[name]
        return column.whole() if slots is None else column.take(slots)

    def slots(self) -> Longs:
        """The slots of all rows, in order of insertion."""
        return np.flatnonzero(self.alive())

    def alive(self) -> Bools:
        """bool[n], of all slots ever given, whether they have a row."""
        return self._flags[: self._slot_count]

    def by_key(self, key: Key) -> int | None:
        """The slot of the row with this primary key: a value, or a tuple of several."""
        return self._keys.get(key)

    def by_keys(self, keys: Iterable[Key]) -> Longs:
        """The slots of the rows with these primary keys, -1 where there is none."""
        get = self._keys.get
        return np.array([get(key, -1) for key in keys], dtype=np.int64)

    def by_index(self, name: str, value: object) -> Longs:
        """The slots of the rows with ``value`` in an attribute that has an index."""
        return self._indexes[name].slots(value)

    def arrange(self, slots: Longs) -> Longs:
        """``slots``, growing, in the order in which the engine lists their rows."""
        if not self.primary_key or len(slots) < 2:
            return slots
        if self._sorted:
            return slots[np.argsort(self.vector(self.primary_key[0], slots).values, kind="stable")]
        places = [
            bucket(self._key_at(slot), self._key_types, self._buckets) for slot in slots.tolist()
        ]
        return slots[np.argsort(np.array(places), kind="stable")]

    def take(self, slots: Longs, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows at ``slots``, in the table's schema or with some attributes only."""
        count = len(slots)
        schema = self.schema.arrow
        if names is not None:
            schema = pa.schema([schema.field(name) for name in names])
        arrays = [self._columns[name].take(slots).to_arrow(count) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def rows(self) -> pa.RecordBatch:
        """All rows, in the order in which the engine lists them."""
        return self.take(self.arrange(self.slots()))

    # Changing

    def insert(self, rows: pa.RecordBatch) -> dict[int, str]:
        """Add rows; returns the refused ones by number, with the reason.

        Args:
            rows: the table's attributes in its order, under any names.
        """
        vectors = [
            from_arrow(rows.column(place), column.type)
            for place, column in enumerate(self._columns.values())
        ]
        return self.add(vectors, rows.num_rows)

    def add(self, vectors: Sequence[Vector], count: int) -> dict[int, str]:
        """As ``insert``, with the attributes as vectors."""
        if not count:
            return {}
        start = self._slot_count
        for column, vector in zip(self._columns.values(), vectors, strict=True):
            column.append(vector, count)
        self._give(count)
        refused: dict[int, str] = {}
        for row in range(count):
            reason = self._enter(start + row)
            if reason is not None:
                refused[row] = reason
        return refused

    def _enter(self, slot: int) -> str | None:
        """Add the row at ``slot`` to the table, or return why that is refused."""
        if self.primary_key:
            key = self._key_at(slot)
            if self._sorted and key is None:
                return f'the primary key of table "{self.schema.name}" is null'
            if key in self._keys:
                return f'table "{self.schema.name}" has a row with the primary key {_shown(key)}'
            self._keys[key] = slot
            self._buckets = buckets_for(len(self._keys), self._buckets)
        else:
            for name in self._indexes:
                if self._columns[name].get(slot) is None:
                    return f'the indexed attribute "{name}" of table "{self.schema.name}" is null'
        for index in self._indexes.values():
            index.add(slot)
        self._flags[slot] = True
        self._count += 1
        self._touch(slot)
        return None

    def remove(self, slots: Longs) -> None:
        """Remove rows."""
        for slot in slots.tolist():
            self._leave(slot)
        self._pack()

    def _leave(self, slot: int) -> None:
        if self.primary_key:
            del self._keys[self._key_at(slot)]
        for index in self._indexes.values():
            index.remove(slot)
        self._flags[slot] = False
        self._count -= 1
        self._touch(slot)

    def change(self, slots: Longs, values: Mapping[str, Vector]) -> str | None:
        """Set attributes of the rows at ``slots``, or return why that is refused.

        ``values``: by attribute, one for each row or the same for all.  Where the primary key
        changes the row gets a new slot, and two rows can't get one key.
        """
        if not len(slots):
            return None
        keyed = any(name in values for name in self.primary_key)
        if keyed:
            new = self._key_of(values, slots)
            reason = self._clash(slots, new)
            if reason is not None:
                return reason
            moves = [self._key_at(s) != k for s, k in zip(slots.tolist(), new, strict=True)]
            if any(moves):
                moving = np.flatnonzero(moves)
                staying = np.flatnonzero(np.logical_not(moves))
                self._move(slots[moving], {n: v.take(moving) for n, v in values.items()})
                slots, values = slots[staying], {n: v.take(staying) for n, v in values.items()}
        self._set(slots, values)
        return None

    def _key_of(self, values: Mapping[str, Vector], slots: Longs) -> list[Key]:
        keys = []
        for at, slot in enumerate(slots.tolist()):
            parts = tuple(
                python_value(values[name], at) if name in values else self._columns[name].get(slot)
                for name in self.primary_key
            )
            keys.append(parts[0] if len(parts) == 1 else parts)
        return keys

    def _clash(self, slots: Longs, keys: Sequence[Key]) -> str | None:
        taken: set[Key] = set()
        for slot, key in zip(slots.tolist(), keys, strict=True):
            if self._sorted and key is None:
                return f'the primary key of table "{self.schema.name}" would be null'
            holder = self._keys.get(key)
            if key in taken or (holder is not None and holder != slot):
                return f'table "{self.schema.name}" has a row with the primary key {_shown(key)}'
            taken.add(key)
        return None

    def _move(self, slots: Longs, values: Mapping[str, Vector]) -> None:
        """Change the keys of rows; no other row has one of them."""
        count = len(slots)
        vectors = [
            values[name].spread(count) if name in values else column.take(slots)
            for name, column in self._columns.items()
        ]
        for slot in slots.tolist():
            self._leave(slot)
        refused = Table.add(self, vectors, count)
        assert not refused, "the keys have been looked at"

    def _set(self, slots: Longs, values: Mapping[str, Vector]) -> None:
        for name, vector in values.items():
            index = self._indexes.get(name)
            if index is not None:
                for at, slot in enumerate(slots.tolist()):
                    index.remove(slot)
                    index.add(slot, python_value(vector, at))
            self._columns[name].set(slots, vector)
        for slot in slots.tolist():
            self._touch(slot)

    def put(self, vectors: Sequence[Vector]) -> str | None:
        """Add one row, or write over the one that has its primary key."""
        values = dict(zip(self._columns, vectors, strict=True))
        parts = tuple(python_value(values[name]) for name in self.primary_key)
        slot = self._keys.get(parts[0] if len(parts) == 1 else parts)
        if slot is None:
            return self.add(vectors, 1).get(0)
        self._set(np.array([slot]), values)
        return None

    def put_all(self, vectors: Sequence[Vector], count: int) -> bool:
        """As ``put`` for ``count`` rows in sequence; returns whether that is possible at once."""
        if self._indexes or count < 2 or AttributeType.OBJECT in self._key_types:
            return False
        values = dict(zip(self._columns, vectors, strict=True))
        parts = [
            values[name].spread(count).to_arrow(count).to_pylist() for name in self.primary_key
        ]
        keys = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
        if self._sorted and None in keys:
            return False
        new: list[int] = []
        # By slot, the last row for it.
        last: dict[int, int] = {}
        for row, key in enumerate(keys):
            slot = self._keys.get(key)
            if slot is None:
                slot = self._keys[key] = self._slot_count + len(new)
                self._buckets = buckets_for(len(self._keys), self._buckets)
                new.append(row)
            self._touch(slot)
            last[slot] = row
        slots = np.fromiter(last, dtype=np.int64, count=len(last))
        rows = np.fromiter(last.values(), dtype=np.int64, count=len(last))
        born = np.array(new, dtype=np.int64)
        first = self._slot_count
        self._give(len(new))
        self._flags[first : self._slot_count] = True
        self._count += len(new)
        for name, column in self._columns.items():
            column.append(values[name].take(born), len(new))
            column.set(slots, values[name].take(rows))
        return True

    def _give(self, count: int) -> None:
        """Allocate further slots, which have no rows yet."""
        self._slot_count += count
        if self._slot_count > len(self._flags):
            more = np.zeros(max(len(self._flags), count), dtype=np.bool_)
            self._flags = np.concatenate([self._flags, more])

    def _key_at(self, slot: int) -> Key:
        parts = tuple(self._columns[name].get(slot) for name in self.primary_key)
        return parts[0] if len(parts) == 1 else parts

    # Slots and state

    def _touch(self, slot: int) -> None:
        self._changes += 1
        self._changed[slot // PIECE_ROWS] = self._changes

    def _pack(self) -> None:
        """Renumber the rows when most slots are free."""
        free = self._slot_count - self._count
        if free < _FREE_MIN or free < self._count:
            return
        live = self.slots()
        for column in self._columns.values():
            column.keep(live)
        self._slot_count = len(live)
        self._flags = np.zeros(max(PIECE_ROWS, 2 * self._slot_count), dtype=np.bool_)
        self._flags[: self._slot_count] = True
        self._changes += 1
        self._changed = dict.fromkeys(range(-(-len(live) // PIECE_ROWS)), self._changes)
        self._find_anew()

    def _find_anew(self) -> None:
        """Fill keys and indexes from the rows."""
        slots = self.slots().tolist()
        self._count = len(slots)
        if self.primary_key:
            self._keys = {self._key_at(slot): slot for slot in slots}
        for name in self._indexes:
            self._indexes[name] = _AttributeIndex(self._columns[name], slots)

    def snapshot(self) -> State:
        """A piece for each ``PIECE_ROWS`` slots; only those change in which a row did."""
        pieces = {}
        for piece, changed in self._changed.items():
            first = piece * PIECE_ROWS
            slots = first + np.flatnonzero(self.alive()[first : first + PIECE_ROWS])
            if len(slots):
                rows = self.take(slots).append_column(SLOT, pa.array(slots))
                pieces[f"rows-{piece}-{changed}"] = rows
        scalars: dict[str, object] = {
            "slots": self._slot_count,
            "changes": self._changes,
            "buckets": self._buckets,
            "changed": [[piece, changed] for piece, changed in self._changed.items()],
        }
        return State(pieces, scalars)

    def restore(self, state: State) -> None:
        """Restore rows and the numbers of their slots."""
        self._restored += 1
        scalars = state.scalars
        self._changes, self._buckets = scalars["changes"], scalars["buckets"]
        self._changed = dict(scalars["changed"])
        count = scalars["slots"]
        names = [f"rows-{piece}-{changed}" for piece, changed in self._changed.items()]
        stored = [state.pieces[name] for name in names if name in state.pieces]
        self._slot_count = count
        self._flags = np.zeros(max(PIECE_ROWS, count), dtype=np.bool_)
        where = np.full(count, -1, dtype=np.int64)
        rows = concat(stored) if stored else None
        if rows is not None:
            slots = rows.column(SLOT).to_numpy()
            self._flags[slots] = True
            where[slots] = np.arange(len(slots))
        self._columns = {name: TableColumn(column.type) for name, column in self._columns.items()}
        if count:
            places: Any = pa.array(where, mask=where < 0)
            for name, column in self._columns.items():
                empty = pa.array([None] * count, column.type.arrow)
                array = empty if rows is None else rows.column(name).take(places)
                column.append(from_arrow(array, column.type), count)
        self._keys = {}
        self._find_anew()


def _shown(key: Key) -> str:
    parts = key if isinstance(key, tuple) else (key,)
    return ", ".join(map(repr, parts))


class _AttributeIndex:
    """Slots of the rows by their value in ``column``; ``slots``: the initial rows."""

    def __init__(self, column: TableColumn, slots: Iterable[int] = ()) -> None:
        self._column = column
        #: By value, the slots as a set that keeps their sequence.
        self._slots: dict[object, dict[int, None]] = {}
        for slot in slots:
            self.add(slot)

    def slots(self, value: object) -> Longs:
        """The slots of the rows with ``value``, ascending."""
        slots = self._slots.get(value, ())
        return np.sort(np.fromiter(slots, dtype=np.int64, count=len(slots)))

    def add(self, slot: int, *value: object) -> None:
        """Enter a row under ``value``, by default the one in its column."""
        (key,) = value or (self._column.get(slot),)
        self._slots.setdefault(key, {})[slot] = None

    def remove(self, slot: int) -> None:
        """Remove a row; its column still has the value that it was entered under."""
        value = self._column.get(slot)
        del self._slots[value][slot]
        if not self._slots[value]:
            del self._slots[value]
