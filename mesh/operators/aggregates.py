"""Running aggregates: avg, sum, count, min, max, stdDev, over current (+) and expired (-) events.

An aggregate's state is one value a group in each of its columns; group numbers come from the
selector.  Nulls are passed over, except by ``count``, which counts rows.  Sums are kept as the
reference engine keeps them: expired values are subtracted from the running double, and what
rounding leaves over stays, also while the group is empty.

Min and max of a window are the true ones.  The engine loses a value when an equal one that is older
leaves after a smaller (larger) one has come between them; that is taken for an error of its own.
A NaN hides what comes behind it, as nothing is less or more than it.

Source: observed on Siddhi 5.1.7; tests/cases/operators/aggregates.jsonl.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mesh.functions import kernels
from mesh.functions.vectors import Vector, dtype_of
from mesh.model.types import AttributeType
from mesh.operators.segments import Segments, running

if TYPE_CHECKING:
    from mesh.operators.base import Bools, Longs

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows sorted by group: ``groups`` says which one each segment is."""

    segments: Segments
    groups: Longs
    #: Whether the row takes its value away again.
    expired: Bools

    def __len__(self) -> int:
        return len(self.expired)


class Columns:
    """Growing columns with a row for each group, all zero at first."""

    def __init__(self, **types: Any) -> None:
        self.arrays: dict[str, Array] = {n: np.zeros(0, dtype=t) for n, t in types.items()}

    def grow(self, groups: int) -> None:
        """Make room for ``groups`` groups."""
        for name, array in self.arrays.items():
            if len(array) < groups:
                more = np.zeros(max(groups, 2 * len(array)), dtype=array.dtype)
                more[: len(array)] = array
                self.arrays[name] = more

    def get(self, name: str, groups: Longs) -> Array:
        """The values of ``groups``."""
        return self.arrays[name][groups]

    def put(self, name: str, batch: Batch, values: Array) -> None:
        """Keep the last of each segment's ``values`` (one for each row)."""
        self.arrays[name][batch.groups] = values[batch.segments.ends]


class Aggregate(Protocol):
    """One aggregator of a query."""

    columns: Columns

    def run(self, values: Vector | None, batch: Batch) -> Vector:
        """Its value after each row; ``values`` are its argument's, None for ``count()``."""
        ...


class Count:
    """``count()``, ``count(x)``: rows, whatever is in them."""

    def __init__(self) -> None:
        self.columns = Columns(count=np.int64)

    def run(self, values: Vector | None, batch: Batch) -> Vector:
        """Never null."""
        counts = _counts(self.columns, batch, np.ones(len(batch), dtype=np.bool_))
        return Vector(AttributeType.LONG, counts)


class Sum:
    """``sum(x)``: long for integers (wrapping), else double; null over no values."""

    def __init__(self, type: AttributeType) -> None:
        self._type = type
        self.columns = Columns(count=np.int64, total=dtype_of(type))

    def run(self, values: Vector | None, batch: Batch) -> Vector:
        """Running totals."""
        assert values is not None
        counts, totals = self._run(kernels.cast(values, self._type), batch)
        return Vector(self._type, totals, _nulls(counts))

    def _run(self, values: Vector, batch: Batch) -> tuple[Longs, Array]:
        present = ~values.null_mask
        counts = _counts(self.columns, batch, present)
        with np.errstate(all="ignore"):
            changes = np.where(batch.expired, -values.values, values.values)
            changes = np.where(present, changes, changes.dtype.type(0))
            before = self.columns.get("total", batch.groups)
            totals = running(np.add, changes, batch.segments, before)
        self.columns.put("total", batch, totals)
        return counts, totals


class Average(Sum):
    """``avg(x)``: the running double sum by the count; null over no values."""

    def __init__(self) -> None:
        super().__init__(AttributeType.DOUBLE)

    def run(self, values: Vector | None, batch: Batch) -> Vector:
        """Running means."""
        assert values is not None
        counts, totals = self._run(kernels.cast(values, AttributeType.DOUBLE), batch)
        return Vector(AttributeType.DOUBLE, totals / np.maximum(counts, 1), _nulls(counts))


class Deviation:
    """``stdDev(x)``: of the population, by the recurrence over the running mean.

    It starts afresh whenever the last value has left.
    """

    def __init__(self) -> None:
        self.columns = Columns(count=np.int64, total=np.float64, squares=np.float64)

    def run(self, values: Vector | None, batch: Batch) -> Vector:
        """Null over no values, 0 over one."""
        assert values is not None
        values = kernels.cast(values, AttributeType.DOUBLE)
        present = ~values.null_mask
        count_before = self.columns.get("count", batch.groups)
        counts = _counts(self.columns, batch, present)
        previous = batch.segments.shifted(counts, count_before)

        # Pieces between the moments when nothing is left, each with a sum of its own.
        begins = np.zeros(len(batch), dtype=np.bool_)
        begins[batch.segments.starts] = True
        fresh = previous == 0
        pieces = Segments.of_sorted(np.cumsum(begins | fresh))
        first = np.zeros(len(batch), dtype=np.float64)
        first[batch.segments.starts] = self.columns.get("total", batch.groups)
        before = np.where(fresh, 0.0, first)[pieces.starts]
        with np.errstate(all="ignore"):
            signed = np.where(batch.expired, -values.values, values.values)
            changes = np.where(present, signed, 0.0)
            totals = running(np.add, changes, pieces, before)
            means = totals / np.maximum(counts, 1)
            old_total = pieces.shifted(totals, before)
            old_means = old_total / np.maximum(previous, 1)
            squared = (values.values - old_means) * (values.values - means)
            squared = np.where(batch.expired, -squared, squared)
            squared = np.where(present & ~fresh & (counts > 0), squared, 0.0)
            first[batch.segments.starts] = self.columns.get("squares", batch.groups)
            before = np.where(fresh, 0.0, first)[pieces.starts]
            squares = running(np.add, squared, pieces, before)
            result = np.where(counts > 1, np.sqrt(squares / np.maximum(counts, 1)), 0.0)
        self.columns.put("total", batch, totals)
        self.columns.put("squares", batch, squares)
        return Vector(AttributeType.DOUBLE, result, _nulls(counts))


class ExtremeEver:
    """``min(x)``, ``max(x)`` without a window: of all values so far."""

    def __init__(self, type: AttributeType, larger: bool) -> None:
        self._type = type
        self._fold = np.fmax if larger else np.fmin
        dtype = dtype_of(type)
        self._none = worst(dtype, larger)
        self.columns = Columns(count=np.int64, best=dtype)

    def run(self, values: Vector | None, batch: Batch) -> Vector:
        """Null over no values."""
        assert values is not None
        present = ~values.null_mask
        before = self.columns.get("count", batch.groups)
        counts = _counts(self.columns, batch, present)
        best = np.where(before == 0, self._none, self.columns.get("best", batch.groups))
        usable = np.where(present, values.values, self._none)
        result = running(self._fold, usable, batch.segments, best)
        if values.values.dtype.kind == "f":
            # No value is less or more than NaN, so a NaN that came first stays for ever.
            first = np.append(np.flatnonzero(present), len(present))
            first = first[np.searchsorted(first, batch.segments.starts)]
            came_first = np.append(np.isnan(values.values) & present, False)[first]
            came_first &= (before == 0) & (first <= batch.segments.ends)
            stuck = came_first | (np.isnan(best) & (before > 0))
            result = np.where(batch.segments.spread(stuck) & (counts > 0), np.nan, result)
            result = result.astype(values.values.dtype)
        self.columns.put("best", batch, result)
        return Vector(self._type, result, _nulls(counts))


def worst(dtype: np.dtype[Any], larger: bool) -> Any:
    """What any value is at least as good as."""
    if dtype.kind == "f":
        return dtype.type(-np.inf if larger else np.inf)
    info = np.iinfo(dtype)
    return dtype.type(info.min if larger else info.max)


def _counts(columns: Columns, batch: Batch, counted: Bools) -> Longs:
    changes = np.where(batch.expired, -1, 1) * counted
    before = columns.get("count", batch.groups)
    counts = running(np.add, changes.astype(np.int64), batch.segments, before)
    columns.put("count", batch, counts)
    return counts


def _nulls(counts: Longs) -> Bools | None:
    nulls = counts <= 0
    return nulls if nulls.any() else None
