"""Numbers for the groups of ``group by``, one set of groups for each partition instance.

Keys are compared as the reference engine does: a null string and the text ``null`` are one group,
NaN equals itself, and 0.0 and -0.0 are two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.functions.vectors import Vector, dtype_of
from mesh.model.types import AttributeType
from mesh.operators.base import RESET
from mesh.operators.select.hashing import RowNumbers, TextNumbers, more_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.operators.base import Bools, Kinds, Longs
    from pyspark_nats.arrow import ArrowArray

#: Texts that no group has any more, before those of the others get new numbers.
_SPARE = 65_536
#: ``instance_of`` of a number that is free.
FREE = -1


class Groups:
    """Numbers of groups in the order of first appearance; freed numbers are reused first.

    Without columns to group by, an instance is one group, whose number is the instance's own.

    ``nulls_are_text``: whether a null string is the same as the text ``null``.
    """

    def __init__(self, types: Sequence[AttributeType], *, nulls_are_text: bool = True) -> None:
        self._types = tuple(types)
        self._nulls_are_text = nulls_are_text
        #: A group's key: instance, which columns are null, and a number for each column's value.
        self._rows = RowNumbers(len(types) + 2)
        self._texts = [TextNumbers() if t is AttributeType.STRING else None for t in types]
        self._instances = 0
        #: For a single column of texts outside of partitions: by text, its group plus one.
        self._direct: Longs = np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return self._rows.count if self._types else self._instances

    def number(self, keys: Sequence[Vector], instance: Longs, kind: Kinds) -> Longs:
        """The group of each row, -1 for those that reset.

        ``keys``: the group-by columns, of the same length as ``instance`` and ``kind``, or 1.
        """
        length = len(instance)
        keys = [key.spread(length) for key in keys]
        resets = kind == RESET
        if not self._types:
            self._instances = max(self._instances, int(instance.max(initial=-1)) + 1)
            return np.where(resets, -1, instance) if resets.any() else instance
        (texts, *_) = self._texts
        if len(keys) == 1 and texts is not None and self._nulls_are_text and not instance.any():
            return self._number_texts(keys[0], texts, resets)
        return self._number_rows(keys, instance, resets)

    def _number_texts(self, key: Vector, texts: TextNumbers, resets: Bools) -> Longs:
        codes = texts.number(key.values.fill_null("null"))
        self._direct = more_rows(self._direct, len(texts))
        numbers: Longs = self._direct[codes]
        numbers -= 1
        new = np.flatnonzero(numbers < 0)
        if len(new):
            rows = np.zeros((len(new), 3), dtype=np.int64)
            rows[:, 2] = codes[new]
            new_numbers = self._rows.number(rows, resets[new])
            numbers[new] = new_numbers
            self._direct[codes[new[new_numbers >= 0]]] = new_numbers[new_numbers >= 0] + 1
        return np.where(resets, -1, numbers) if resets.any() else numbers

    def _number_rows(self, keys: Sequence[Vector], instance: Longs, resets: Bools) -> Longs:
        if len(keys) == 1 and self._texts[0] is None and not instance.any():
            values, nulls = _bits(keys[0])
            if nulls is None:
                longs = np.ascontiguousarray(values, dtype=np.int64)
                return self._rows.number_longs(longs, resets)
        rows = np.empty((len(instance), len(keys) + 2), dtype=np.int64)
        rows[:, 0] = instance
        rows[:, 1] = 0
        for column, (key, texts) in enumerate(zip(keys, self._texts, strict=True)):
            values, nulls = self._codes(key, texts)
            rows[:, column + 2] = values
            if nulls is not None:
                rows[:, 1] += nulls.astype(np.int64) << column
                rows[:, column + 2] = np.where(nulls, 0, rows[:, column + 2])
        return self._rows.number(rows, resets)

    def _codes(self, key: Vector, texts: TextNumbers | None) -> tuple[Any, Bools | None]:
        if texts is None:
            return _bits(key)
        if self._nulls_are_text or not key.values.null_count:
            return texts.number(key.values.fill_null("null")), None
        return texts.number(key.values.fill_null("")), key.null_mask

    def find(self, keys: Sequence[Vector]) -> int:
        """The number of the group outside of partitions with this key; -1 if there is none.

        ``keys``: the group-by columns, each of length 1.
        """
        row = np.zeros(len(keys) + 2, dtype=np.int64)
        for column, (key, texts) in enumerate(zip(keys, self._texts, strict=True)):
            is_null = bool(key.null_mask[0])
            if texts is None:
                row[column + 2] = 0 if is_null else _bits(key)[0][0]
            else:
                missing = "null" if self._nulls_are_text else ""
                code = texts.find(missing if is_null else key.values[0].as_py())
                if code < 0 and not (is_null and not self._nulls_are_text):
                    return -1
                is_null = is_null and not self._nulls_are_text
                row[column + 2] = 0 if is_null else code
            row[1] += int(is_null) << column
        return self._rows.find(row)

    def renumber(self, instance: Longs, values: ArrowArray) -> Longs:
        """The groups of a single column's ``values`` in the form of ``to_arrow``."""
        rows = np.zeros((len(instance), 3), dtype=np.int64)
        rows[:, 0] = instance
        self._fill(rows, 0, values)
        return self._rows.number(rows, np.zeros(len(rows), dtype=np.bool_))

    def _fill(self, rows: Longs, column: int, values: Any) -> None:
        nulls = values.is_null().to_numpy(zero_copy_only=False)
        rows[:, 1] += nulls.astype(np.int64) << column
        texts = self._texts[column]
        codes = (
            values.fill_null(0).to_numpy(zero_copy_only=False)
            if texts is None
            else texts.number(values.fill_null(""))
        )
        rows[:, column + 2] = np.where(nulls, 0, codes)

    def instance_of(self, start: int, stop: int) -> Longs:
        """The instances of the groups numbered ``start`` to below ``stop``; ``FREE`` for none."""
        if not self._types:
            return np.arange(start, stop)
        instances = self._rows.keys[start:stop, 0].copy()
        free = self._rows.free
        instances[free[(free >= start) & (free < stop)] - start] = FREE
        return instances

    def forget(self, instances: Longs) -> Longs:
        """Free the groups of ``instances``, and return their numbers."""
        if not self._types:
            return instances[instances < self._instances]
        gone: Longs = np.flatnonzero(np.isin(self.instance_of(0, len(self)), instances))
        if len(gone):
            self._rows.forget(gone)
            self._direct[:] = 0
        return gone

    @property
    def in_use(self) -> int:
        """Number of groups that are not free."""
        return len(self) - (len(self._rows.free) if self._types else 0)

    def release(self, numbers: Longs) -> None:
        """Free ``numbers``, which are in use, of groups with columns."""
        self._rows.forget(numbers)
        self._direct[:] = 0
        for column, texts in enumerate(self._texts):
            if texts is not None and len(texts) > 2 * self.in_use + _SPARE:
                self._texts[column] = self._fewer(texts, column)

    def _fewer(self, texts: TextNumbers, column: int) -> TextNumbers:
        """The texts of a column that are in use, which get new numbers."""
        fewer = TextNumbers()
        live = np.flatnonzero(self._rows.live())
        keys = self._rows.keys[live]
        keys[:, column + 2] = fewer.number(texts.take(pa.array(keys[:, column + 2])))
        self._rows.replace(live, keys)
        # The entry at a free number is no longer the number of a text.
        self._rows.keys[self._rows.free, 1] |= 1 << column
        return fewer

    @property
    def free(self) -> Longs:
        """The numbers that are free, in the order they became so."""
        return self._rows.free

    def to_arrow(self, start: int, stop: int) -> list[ArrowArray]:
        """Instance and key columns of the groups numbered ``start`` to below ``stop``, in order."""
        columns: list[ArrowArray] = [pa.array(self.instance_of(start, stop))]
        keys = self._rows.keys[start:stop]
        for column, texts in enumerate(self._texts):
            values = keys[:, column + 2]
            nulls = (keys[:, 1] >> column & 1).astype(np.bool_)
            if texts is None:
                columns.append(pa.array(values, mask=nulls))
            else:
                columns.append(texts.take(pa.array(values, mask=nulls)))
        return columns

    def restore(self, pages: Mapping[int, Sequence[Any]], free: Longs) -> None:
        """Restore what ``to_arrow`` returned, by the number of the first group, in order.

        ``free``: the numbers that are free.  Only without columns may numbers be missing.
        """
        self._instances = max((start + len(page[0]) for start, page in pages.items()), default=0)
        if not self._types:
            return
        rows = np.zeros((self._instances, len(self._types) + 2), dtype=np.int64)
        self._texts = [TextNumbers() if t is AttributeType.STRING else None for t in self._types]
        self._direct = np.zeros(0, dtype=np.int64)
        for start, (instances, *columns) in pages.items():
            part = rows[start : start + len(instances)]
            part[:, 0] = instances.to_numpy()
            for column, values in enumerate(columns):
                self._fill(part, column, values)
        self._rows.restore(rows, free)


def _bits(key: Vector) -> tuple[Any, Bools | None]:
    """Values as whole numbers that are equal when the values are the same for grouping."""
    values = key.values
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), np.nan, values).astype(values.dtype)
        values = values.view(np.int64 if dtype_of(key.type).itemsize == 8 else np.int32)
    return values, key.nulls
