"""All aggregates of one query, and their state as pieces.

State is kept in pages of groups, so that a batch that touches few groups changes few pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from numba import njit

from mesh.errors import MeshError
from mesh.operators.aggregates import (
    Average,
    Batch,
    Columns,
    Conditions,
    Count,
    Deviation,
    ExtremeEver,
    Listing,
    Sum,
)
from mesh.operators.base import RESET, State
from mesh.operators.extremes import WindowExtreme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.functions.vectors import Vector
    from mesh.model.types import AttributeType
    from mesh.operators.aggregates import Aggregate
    from mesh.operators.base import Events, Longs
    from mesh.operators.groups import Groups
    from mesh.plan.bound import AggregateCall

#: Groups, or instances, in one piece of state.
_PAGE = 4096


def make(function: str, type: AttributeType, windowed: bool) -> Aggregate:
    """The aggregator called ``function`` with results of ``type``; MESH-O101 without one."""
    name = function.lower()
    match name:
        case "count":
            return Count()
        case "sum":
            return Sum(type)
        case "avg":
            return Average()
        case "stddev":
            return Deviation()
        case "min" | "max" if windowed:
            return WindowExtreme(type, larger=name == "max")
        case "min" | "max":
            return ExtremeEver(type, larger=name == "max", resets=True)
        case "minforever" | "maxforever":
            return ExtremeEver(type, larger=name == "maxforever", resets=False)
        case "and" | "or":
            return Conditions(every=name == "and")
        case _:
            raise MeshError(
                "MESH-O101",
                f'aggregator "{function}" has no kernel',
                detail="The planner accepted it, but this version can't compute it.",
                hint="Do manager and worker have the same version?",
            )


@njit(cache=True)
def _freshen(
    groups: Any, kind: Any, instance: Any, resets: Any, seen: Any, reset: int, fresh: Any
) -> None:
    """Mark rows whose group had no other since its instance was reset.

    ``resets``: how often each instance has been reset; ``seen``: what that was when a row of the
    group came last.
    """
    for row in range(len(groups)):
        of = instance[row]
        if kind[row] == reset:
            resets[of] += 1
        elif groups[row] >= 0:
            group = groups[row]
            fresh[row] = seen[group] != resets[of]
            seen[group] = resets[of]


class Pages:
    """The pieces of rows in pages: each is made anew once something in it has changed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._versions: dict[int, int] = {}
        self._pieces: dict[int, pa.RecordBatch] = {}

    def touch(self, rows: Longs, version: int) -> None:
        """Note that ``rows`` have changed, by the input up to ``version``."""
        for page in np.unique(rows // _PAGE).tolist():
            self._versions[page] = version
            self._pieces.pop(page, None)

    def pieces(self, make: Any, length: int) -> dict[str, pa.RecordBatch]:
        """All pieces by name; ``make(start, stop)`` makes one."""
        for page in self._versions:
            if page not in self._pieces:
                self._pieces[page] = make(page * _PAGE, min((page + 1) * _PAGE, length))
        return {self._piece(page): piece for page, piece in self._pieces.items()}

    def _piece(self, page: int) -> str:
        return f"{self._name}-{page}-{self._versions[page]}"

    def versions(self) -> dict[str, int]:
        """What ``restore`` needs to know the names of the pieces."""
        return {str(page): version for page, version in self._versions.items()}

    def restore(self, versions: Any, state: State) -> dict[int, pa.RecordBatch]:
        """Take over the pieces of ``state``; returns them by the number of the first row."""
        self._versions = {int(page): version for page, version in versions.items()}
        self._pieces = {page: state.pieces[self._piece(page)] for page in sorted(self._versions)}
        return {page * _PAGE: piece for page, piece in self._pieces.items()}


def _keys(piece: pa.RecordBatch) -> list[str]:
    return [name for name in piece.schema.names if name.startswith("key") or name == "instance"]


class Aggregators:
    """The aggregates ``calls``, in their order.

    ``windowed``: whether events expire, so that min and max have to remember what is in the window.
    """

    def __init__(self, calls: Sequence[AggregateCall], groups: Groups, windowed: bool) -> None:
        self.groups = groups
        self._aggregates = [make(call.function, call.type, windowed) for call in calls]
        self._listing = {
            f"list{n}": cast("Listing", a)
            for n, a in enumerate(self._aggregates)
            if hasattr(a, "lists")
        }
        #: How often each instance has been reset, and that number when each group was last used.
        self._resets = Columns(resets=np.int64)
        self._seen = Columns(seen=np.int64)
        self._ever_reset = False
        #: Rows seen so far: the state is a function of the input up to there.
        self._rows = 0
        self._clear_pages()

    def _clear_pages(self) -> None:
        self._pages = {name: Pages(name) for name in ("groups", "resets", *self._listing)}

    def run(
        self, arguments: Sequence[Vector | None], groups: Longs, events: Events
    ) -> list[Vector]:
        """The value of each aggregate after each event; any where the group is -1."""
        self._grow(len(self.groups))
        fresh = np.zeros(len(events), dtype=np.bool_)
        resets = events.kind == RESET
        any_reset = bool(resets.any())
        self._rows += len(events)
        if any_reset or self._ever_reset:
            self._ever_reset = True
            self._resets.grow(int(events.instance.max(initial=-1)) + 1)
            _freshen(
                groups, events.kind, events.instance, self._resets["resets"], self._seen["seen"],
                RESET, fresh,
            )  # fmt: skip
            self._pages["resets"].touch(events.instance[resets], self._rows)
        batch = Batch(groups, events.kind, fresh)
        results = [
            aggregate.run(argument, batch)
            for aggregate, argument in zip(self._aggregates, arguments, strict=True)
        ]
        touched = groups[groups >= 0]
        for name, pages in self._pages.items():
            if name != "resets":
                pages.touch(touched, self._rows)
        return results

    def _grow(self, groups: int) -> None:
        self._seen.grow(groups)
        for aggregate in self._aggregates:
            aggregate.columns.grow(groups)

    def forget(self, instances: Longs) -> None:
        """Drop all groups of ``instances``, so that they may begin anew."""
        groups = self.groups.forget(instances)
        if not len(groups):
            return
        for aggregate in self._listing.values():
            aggregate.forget(groups)
        for aggregate_ in self._aggregates:
            aggregate_.columns.forget(groups)
        self._seen.forget(groups)
        reset = instances[instances < len(self._resets["resets"])]
        self._resets.forget(reset)
        # A call without rows changes the state as well.
        self._rows += 1
        for name, pages in self._pages.items():
            pages.touch(reset if name == "resets" else groups, self._rows)

    def snapshot(self) -> State:
        """Pieces for each page of groups, and for the instances that have been reset."""
        count = len(self.groups)
        self._grow(count)
        pieces: dict[str, pa.RecordBatch] = {}
        for name, pages in self._pages.items():
            match name:
                case "groups":
                    pieces |= pages.pieces(self._page, count)
                case "resets":
                    pieces |= pages.pieces(self._resets_page, len(self._resets["resets"]))
                case _:
                    pieces |= pages.pieces(self._listing[name].lists, count)
        return State(
            pieces,
            {
                "rows": self._rows,
                "versions": {name: pages.versions() for name, pages in self._pages.items()},
                "free": self.groups.free.tolist(),
            },
        )

    def restore(self, state: State) -> None:
        """Take over what ``snapshot`` gave."""
        scalars: Any = state.scalars
        self._rows = scalars["rows"]
        self._clear_pages()
        restored = {
            name: pages.restore(scalars["versions"][name], state)
            for name, pages in self._pages.items()
        }
        pages = restored.pop("groups")
        self.groups.restore(
            {start: piece.select(_keys(piece)).columns for start, piece in pages.items()},
            np.array(scalars["free"], dtype=np.int64),
        )
        self._grow(len(self.groups))
        for start, piece in pages.items():
            for name, columns in self._columns():
                for field, column in columns.arrays.items():
                    column[start : start + len(piece)] = piece.column(f"{name}.{field}").to_numpy()
        self._ever_reset = False
        for start, piece in restored.pop("resets").items():
            self._ever_reset = True
            self._resets.grow(start + len(piece))
            self._resets["resets"][start : start + len(piece)] = piece.column(0).to_numpy()
        for name, lists in restored.items():
            self._listing[name].fill(lists)

    def _columns(self) -> list[tuple[str, Columns]]:
        own = [(str(index), a.columns) for index, a in enumerate(self._aggregates)]
        return [*own, ("own", self._seen)]

    def _page(self, start: int, stop: int) -> pa.RecordBatch:
        instance, *keys = self.groups.to_arrow(start, stop)
        arrays: dict[str, pa.Array[Any]] = {"instance": instance}
        arrays |= {f"key{i}": column for i, column in enumerate(keys)}
        for name, columns in self._columns():
            for field, column in columns.arrays.items():
                arrays[f"{name}.{field}"] = pa.array(column[start:stop].copy())
        return pa.RecordBatch.from_pydict(arrays)

    def _resets_page(self, start: int, stop: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"resets": self._resets["resets"][start:stop].copy()})
