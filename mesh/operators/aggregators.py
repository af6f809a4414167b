"""All aggregates of one query, and their state as pieces.

State is kept in pages of groups, so that a batch that touches few groups changes few pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mesh.errors import MeshError
from mesh.operators.aggregates import Average, Count, Deviation, ExtremeEver, Sum
from mesh.operators.base import State
from mesh.operators.extremes import WindowExtreme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.functions.vectors import Vector
    from mesh.model.types import AttributeType
    from mesh.operators.aggregates import Aggregate, Batch
    from mesh.operators.groups import Groups
    from mesh.plan.bound import AggregateCall

#: Groups in one piece of state.
_PAGE = 4096


def make(function: str, type: AttributeType, windowed: bool) -> Aggregate:
    """The aggregator called ``function`` with results of ``type``; MESH-O101 without one."""
    match function.lower():
        case "count":
            return Count()
        case "sum":
            return Sum(type)
        case "avg":
            return Average()
        case "stddev":
            return Deviation()
        case "min" | "max":
            larger = function.lower() == "max"
            return WindowExtreme(type, larger) if windowed else ExtremeEver(type, larger)
        case _:
            raise MeshError(
                "MESH-O101",
                f'aggregator "{function}" has no kernel',
                detail="The planner accepted it, but this version can't compute it.",
                hint="Do manager and worker have the same version?",
            )


class Aggregators:
    """The aggregates ``calls``, in their order."""

    def __init__(self, calls: Sequence[AggregateCall], groups: Groups, windowed: bool) -> None:
        self.groups = groups
        self._aggregates = [make(call.function, call.type, windowed) for call in calls]
        for aggregate in self._aggregates:
            aggregate.columns.grow(len(groups))
        self._versions: dict[int, int] = {}
        self._pages: dict[int, pa.RecordBatch] = {}
        #: Rows seen so far: the state is a function of the input up to there.
        self._rows = 0

    def run(self, arguments: Sequence[Vector | None], batch: Batch) -> list[Vector]:
        """The value of each aggregate after each row of ``batch``."""
        results = []
        for aggregate, argument in zip(self._aggregates, arguments, strict=True):
            aggregate.columns.grow(len(self.groups))
            results.append(aggregate.run(argument, batch))
        self._rows += len(batch)
        for page in np.unique(batch.groups // _PAGE).tolist():
            self._versions[page] = self._rows
            self._pages.pop(page, None)
        return results

    def snapshot(self) -> State:
        """A piece for each page of groups, and one for each extreme over a window."""
        pieces = {}
        for page, version in self._versions.items():
            if page not in self._pages:
                self._pages[page] = self._page(page)
            pieces[f"groups-{page}-{version}"] = self._pages[page]
        for name, extreme in self._extremes():
            pieces[f"{name}-{self._rows}"] = pa.RecordBatch.from_arrays(
                [pa.array(extreme.keys), pa.array(extreme.values)], names=["key", "value"]
            )
        versions = {str(page): version for page, version in self._versions.items()}
        return State(pieces, {"versions": versions, "rows": self._rows})

    def restore(self, state: State) -> None:
        """Take over what ``snapshot`` gave."""
        scalars: Any = state.scalars
        self._versions = {int(page): version for page, version in scalars["versions"].items()}
        self._rows = scalars["rows"]
        self._pages = {p: state.pieces[f"groups-{p}-{v}"] for p, v in self._versions.items()}
        # Groups get their numbers in order, so pages without a gap hold them all.
        pages = [self._pages[page] for page in sorted(self._pages)]
        if pages:
            table = pa.Table.from_batches(pages).combine_chunks()
            keys = [n for n in table.column_names if n.startswith("key")]
            self.groups.restore([table.column(n).combine_chunks() for n in keys])
            for index, aggregate in enumerate(self._aggregates):
                for name in aggregate.columns.arrays:
                    values = table.column(f"{index}.{name}").to_numpy()
                    aggregate.columns.arrays[name] = values.copy()
        for name, extreme in self._extremes():
            piece = state.pieces[f"{name}-{self._rows}"]
            extreme.keys = piece.column("key").to_numpy()
            extreme.values = piece.column("value").to_numpy()

    def _page(self, page: int) -> pa.RecordBatch:
        start, stop = page * _PAGE, min((page + 1) * _PAGE, len(self.groups))
        arrays: dict[str, pa.Array[Any]] = {
            f"key{i}": column for i, column in enumerate(self.groups.to_arrow(start, stop))
        }
        for index, aggregate in enumerate(self._aggregates):
            for name, column in aggregate.columns.arrays.items():
                arrays[f"{index}.{name}"] = pa.array(column[start:stop].copy())
        return pa.RecordBatch.from_pydict(arrays)

    def _extremes(self) -> list[tuple[str, WindowExtreme]]:
        return [
            (f"extreme{index}", aggregate)
            for index, aggregate in enumerate(self._aggregates)
            if isinstance(aggregate, WindowExtreme)
        ]
