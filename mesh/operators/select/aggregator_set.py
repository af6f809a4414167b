"""All aggregates of one query, and their state as pieces.

State is kept in pages of groups, so that a batch that touches few groups changes few pieces.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mesh.operators.base import State, namespaced, subset
from mesh.operators.failures import FailureRouter, stopped
from mesh.operators.select.aggregate_extraction import AGGREGATES
from mesh.operators.select.aggregate_slot import AggregateSlot, reset_counters
from mesh.operators.select.aggregates import AggregateBatch, GroupColumns
from mesh.operators.select.group_resets import GroupResets
from mesh.operators.state.paged_pieces import PagedPieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.functions.vectors import Vector
    from mesh.operators.base import Bools, EventBatch, Longs
    from mesh.operators.frame import Frame
    from mesh.operators.select.aggregate_extraction import ExtractedAggregate
    from mesh.operators.select.aggregates import Expiry
    from mesh.operators.select.groups import Groups
    from mesh.operators.state.paged_pieces import Version
    from mesh.operators.windows.row_refs import RowRefs
    from pyspark_nats.arrow import ArrowArray


class Aggregators:
    """The aggregators ``lifted`` out of a query, in their order.

    ``prefix``: that of ``lift``; ``leaving``: whether events expire; ``resets``: whether events
    can reset them.
    """

    def __init__(
        self,
        lifted: Sequence[ExtractedAggregate],
        groups: Groups,
        leaving: Expiry,
        prefix: str = "",
        resets: bool = True,
    ) -> None:
        self.groups = groups
        self._prefix = prefix
        self._may_reset = resets
        self._sites = [AggregateSlot(one, leaving) for one in lifted]
        self._are_apart = all(site.is_apart for site in self._sites)
        self._resets_of = reset_counters(self._sites)
        self._resets = [GroupResets() for _ in range(1 + max(self._resets_of, default=0))]
        self._listing = {n: s.listing for n, s in enumerate(self._sites) if s.listing is not None}
        #: Rows processed so far.  The state is a function of the input up to there, and of the
        #: places in it where groups were released.  These depend on how the input was cut.
        self._rows = 0
        self._released = ""
        self._clear_pages()

    def _clear_pages(self) -> None:
        self._pages = PagedPieces("groups")
        self._list_pages = {n: PagedPieces(f"list{n}") for n in self._listing}

    def run(self, frame: Frame, groups: Longs, events: EventBatch) -> None:
        """Add to ``frame`` the value of each aggregator after each event.

        ``groups``: int64[n], of each event; -1 for those that reset, or don't take part.
        """
        self._grow(len(self.groups))
        self._touch(groups)
        failing: FailureRouter | None = None
        inputs: list[tuple[Vector | None, Bools | None]] = []
        if self._are_apart:
            failing = FailureRouter(frame, events)
            for number, site in enumerate(self._sites):
                reached = site.active_mask(frame)
                inputs.append((site.argument_in(frame, reached), reached))
                failing.note(number)
        shared: dict[int, Bools] = {}
        for number, site in enumerate(self._sites):
            if failing is None:
                reached = site.active_mask(frame)
                argument = site.argument_in(frame, reached)
                active = np.where(stopped(frame, events), -1, groups) if frame.failures else groups
            else:
                argument, reached = inputs[number]
                active = failing.reaching(groups, number)
            if not self._may_reset:
                fresh = np.zeros(len(events), dtype=np.bool_)
                active = active if reached is None else np.where(reached, active, -1)
            elif reached is not None:
                active = np.where(reached, active, -1)
                resets = self._resets[self._resets_of[number]]
                fresh = resets.fresh(active, events, reached, self._version)
            else:
                whose = self._resets_of[number]
                if whose not in shared:
                    processed = ~stopped(frame, events) if frame.failures else None
                    # An event without aggregators leaves its group as fresh as before.
                    shared[whose] = self._resets[whose].fresh(
                        active, events, processed, self._version
                    )
                fresh = shared[whose]
            value = site.aggregate.run(argument, AggregateBatch(active, events.kind, fresh))
            frame.add(AGGREGATES, f"{self._prefix}{number}", value)

    def enter(self, groups: Longs) -> None:
        """Record groups of rows that enter a window, which ``follow`` refers to later."""
        self._grow(len(self.groups))
        # The keys of those that are new are a part of the state.
        self._touch(groups)

    def follow(
        self, lines: RowRefs, groups: Longs, arguments: Sequence[Vector | None]
    ) -> list[tuple[str, Vector]]:
        """As ``run``, with all groups and arguments known.

        Args:
            lines: arrivals and expiries of a window.
            groups: int64[n], of each line; -1 for those that reset.
            arguments: the argument of each aggregator at each line.

        Returns:
            The values of each aggregator after each line, by its column's name.
        """
        self._touch(groups)
        if len(lines.instance) and self._may_reset:
            fresh = self._resets[0].fresh(groups, lines, None, self._version)
        else:
            fresh = np.zeros(len(groups), dtype=np.bool_)
        batch = AggregateBatch(groups, lines.kind, fresh)
        return [
            (f"{self._prefix}{number}", site.aggregate.run(argument, batch))
            for number, (site, argument) in enumerate(zip(self._sites, arguments, strict=True))
        ]

    @property
    def _version(self) -> Version:
        return f"{self._rows}-{self._released}" if self._released else self._rows

    def _touch(self, groups: Longs) -> None:
        """Record changes in ``groups``, by as many rows."""
        self._rows += len(groups)
        self._mark(groups)

    def _mark(self, groups: Longs) -> None:
        for pages in (self._pages, *self._list_pages.values()):
            pages.touch(groups, self._version)

    def _drop(self, groups: Longs) -> None:
        for listing in self._listing.values():
            listing.forget(groups)
        for site in self._sites:
            site.aggregate.columns.forget(groups)

    def idle(self) -> Bools:
        """bool[n], the groups that equal unused ones, or that will be reset."""
        count = len(self.groups)
        self._grow(count)
        idle = np.ones(count, dtype=np.bool_)
        for site in self._sites:
            names = site.aggregate.tells
            idle &= bool(names)
            for name in names:
                idle &= site.aggregate.columns.are_zero(name, count)
        (shared, *others) = self._resets
        if shared.ever and not others:
            idle |= shared.are_stale(self.groups.instance_of(0, count))
        return idle

    def release(self, groups: Longs) -> None:
        """Drop ``groups``, which are idle; their numbers are those of others from now on."""
        self._rows += 1
        place = f"{self._released}/{self._rows}".encode()
        self._released = hashlib.blake2b(place, digest_size=4).hexdigest()
        self._drop(groups)
        for resets in self._resets:
            resets.seen.forget(groups)
        self._mark(groups)

    def _grow(self, groups: int) -> None:
        for resets in self._resets:
            resets.seen.grow(groups)
        for site in self._sites:
            site.aggregate.columns.grow(groups)

    def forget(self, instances: Longs, groups: Longs) -> None:
        """Drop ``groups`` of ``instances``, so that their numbers can be reused."""
        groups = groups[groups < len(self._resets[0].seen["seen"])]
        # A call without rows changes the state as well.
        self._rows += 1
        self._drop(groups)
        for resets in self._resets:
            resets.forget(instances, groups, self._version)
        self._mark(groups)

    def snapshot(self) -> State:
        """Pieces for each page of groups, and for the instances that have been reset."""
        count = len(self.groups)
        self._grow(count)
        pieces = self._pages.pieces(self._page, count)
        for number, listing in self._listing.items():
            pieces |= self._list_pages[number].pieces(listing.lists, count)
        versions = {"groups": self._pages.versions()}
        versions |= {f"list{n}": pages.versions() for n, pages in self._list_pages.items()}
        reset_state = namespaced({str(n): State(r.pieces()) for n, r in enumerate(self._resets)})
        resets = [resets.pages.versions() for resets in self._resets]
        scalars = {
            "rows": self._rows,
            "released": self._released,
            "versions": versions,
            "resets": resets,
            "free": self.groups.free.tolist(),
        }
        return State({**pieces, **reset_state.pieces}, scalars)

    def restore(self, state: State) -> None:
        """Restore what ``snapshot`` returned, groups included."""
        scalars = state.scalars
        self._rows, self._released = scalars["rows"], scalars.get("released", "")
        self._clear_pages()
        pages = self._pages.restore(scalars["versions"]["groups"], state)
        self.groups.restore(
            {start: piece.select(_keys(piece)).columns for start, piece in pages.items()},
            np.array(scalars["free"], dtype=np.int64),
        )
        for _, columns in self._columns():
            columns.clear()
        self._grow(len(self.groups))
        for start, piece in pages.items():
            for name, columns in self._columns():
                for field, column in columns.arrays.items():
                    column[start : start + len(piece)] = piece.column(f"{name}.{field}").to_numpy()
        for number, resets in enumerate(self._resets):
            resets.restore(scalars["resets"][number], subset(state, str(number)))
        for number, listing in self._listing.items():
            versions = scalars["versions"][f"list{number}"]
            listing.fill(self._list_pages[number].restore(versions, state))

    def _columns(self) -> list[tuple[str, GroupColumns]]:
        columns = [(str(number), site.aggregate.columns) for number, site in enumerate(self._sites)]
        return columns + [(f"resets{number}", r.seen) for number, r in enumerate(self._resets)]

    def _page(self, start: int, stop: int) -> pa.RecordBatch:
        instance, *keys = self.groups.to_arrow(start, stop)
        arrays: dict[str, ArrowArray] = {"instance": instance}
        arrays |= {f"key{i}": column for i, column in enumerate(keys)}
        for name, columns in self._columns():
            for field, column in columns.arrays.items():
                arrays[f"{name}.{field}"] = pa.array(column[start:stop].copy())
        return pa.RecordBatch.from_pydict(arrays)


def _keys(piece: pa.RecordBatch) -> list[str]:
    return [name for name in piece.schema.names if name.startswith("key") or name == "instance"]
