"""All aggregates of one query, and their state as pieces.

State is kept in pages of groups, so that a batch that touches few groups changes few pieces.

One aggregator of a query: the aggregate that computes it, its argument and its conditions.

Resets of aggregates by batch windows: a group starts again at its first row after a reset.
"""

from __future__ import annotations

import hashlib
import itertools
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from mesh.errors import MeshError
from mesh.operators.base import RESET, State, namespaced, subset
from mesh.operators.expressions import compile_expression, compile_filter
from mesh.operators.failures import FailureRouter, stopped
from mesh.operators.native import njit
from mesh.operators.select.aggregates import (
    AGGREGATES,
    FAIL_ON_NULL,
    AggregateBatch,
    Average,
    CollectList,
    Conditions,
    Count,
    Deviation,
    Expiry,
    GroupColumns,
    Sum,
    may_fail,
    names_aggregate,
)
from mesh.operators.select.collections import COLLECTIONS, CollectedValues, collected_items
from mesh.operators.select.distinct import DistinctCount, UnionSet
from mesh.operators.select.extremes import ExtremeEver, ExtremeSince, WindowExtreme
from mesh.operators.state.range_pieces import PagedPieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.functions.vectors import Vector
    from mesh.operators.base import Bools, EventBatch, Longs
    from mesh.operators.expressions import Evaluator, Frame
    from mesh.operators.select.aggregates import Aggregate, ExtractedAggregate
    from mesh.operators.select.groups import Groups
    from mesh.operators.state.range_pieces import Version
    from mesh.operators.windows.row_ref_window import RowRefs
    from mesh.plan.bound import AggregateCall
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


def make_aggregate(call: AggregateCall, leaving: Expiry) -> Aggregate:
    """The aggregate that computes ``call``.

    ``leaving``: whether events expire, so that min and max have to remember the window's content.

    Raises:
        MeshError: MESH-O101, no aggregate computes it.
    """
    name, type = call.function.lower(), call.type
    match name:
        case "count":
            return Count()
        case "sum":
            return Sum(type)
        case "avg":
            return Average()
        case "stddev":
            return Deviation()
        case "min" | "max" if leaving is Expiry.TRACKED:
            return WindowExtreme(type, larger=name == "max")
        case "min" | "max" if leaving is Expiry.UNTRACKED:
            return ExtremeSince(type, larger=name == "max")
        case "min" | "max":
            return ExtremeEver(type, larger=name == "max")
        case "minforever" | "maxforever":
            return ExtremeEver(type, larger=name == "maxforever")
        case "and" | "or":
            return Conditions(every=name == "and")
        case "distinctcount":
            argument = call.arguments[0].type
            assert argument is not None, "the planner refuses a bare null here"
            return DistinctCount(argument)
        case "unionset":
            return UnionSet()
        case _ if name in COLLECTIONS:
            return CollectedValues(call)
        case _:
            raise MeshError(
                "MESH-O101",
                f'aggregator "{call.function}" has no kernel',
                detail="The planner accepted it, but this version can't compute it.",
                hint="Do manager and worker have the same version?",
            )


class AggregateSlot:
    """One aggregator of the query: its state, its argument, and the conditions it is read under."""

    def __init__(self, lifted: ExtractedAggregate, leaving: Expiry) -> None:
        self.aggregate = make_aggregate(lifted.call, leaving)
        self.listing = (
            cast("CollectList", self.aggregate) if hasattr(self.aggregate, "lists") else None
        )
        self.conditions = [compile_filter(condition) for condition in lifted.conditions]
        name, arguments = lifted.call.function, lifted.call.arguments
        #: Its name, if it has no answer to a null.
        self.fails_on_null = name if name.lower() in FAIL_ON_NULL else None
        self._argument: Evaluator | None = None
        if name.lower() in COLLECTIONS:
            self._argument = collected_items(lifted.call)
        elif arguments:
            self._argument = compile_expression(arguments[0])
        #: Whether it uses no other aggregator's value.
        self.is_apart = not any(map(names_aggregate, (*lifted.conditions, *arguments)))
        self.may_fail = may_fail(lifted)

    def argument_in(self, frame: Frame, reached: Bools | None = None) -> Vector | None:
        """Its argument in each row; records in ``frame`` where that fails and is ``reached``."""
        if self._argument is None:
            return None
        if reached is None:
            return self._evaluate(self._argument, frame)
        return frame.only(partial(self._evaluate, self._argument), reached)

    def _evaluate(self, evaluate: Evaluator, frame: Frame) -> Vector:
        argument = evaluate(frame)
        if self.fails_on_null:
            _fail_on_nulls(frame, argument, self.fails_on_null)
        return argument

    def active_mask(self, frame: Frame) -> Bools | None:
        """bool[n], the events for which it is evaluated; None for all."""
        if not self.conditions:
            return None
        reached = self.conditions[0](frame)
        for condition in self.conditions[1:]:
            reached = reached & condition(frame)
        return reached


def _fail_on_nulls(frame: Frame, argument: Vector, name: str) -> None:
    if argument.nulls is not None:
        for row in np.flatnonzero(argument.spread(frame.length).null_mask).tolist():
            frame.failures.setdefault(row, f"{name}: the condition is null")


def reset_counters(sites: Sequence[AggregateSlot]) -> list[int]:
    """For each aggregator the number of its resets.

    Aggregators that are evaluated in the same events share them.  One under a condition has its
    own.  Where one may fail, those before it process an event that it and those after it don't.
    """
    following = itertools.count(1)
    counters = [next(following) if site.conditions else 0 for site in sites]
    shared, is_used = 0, False
    for number, site in enumerate(sites):
        if site.may_fail and is_used:
            shared, is_used = next(following), False
        if not site.conditions:
            counters[number], is_used = shared, True
    return counters


@njit
def _freshen(
    groups: Longs, reset: Bools, instance: Longs, resets: Longs, seen: Longs, fresh: Bools
) -> None:
    """Mark rows with a group that had no other row since its instance was reset.

    ``resets``: how often each instance has been reset; ``seen``: that count at the last row of the
    group.
    """
    for row in range(len(groups)):
        of = instance[row]
        if reset[row]:
            resets[of] += 1
        elif groups[row] >= 0:
            group = groups[row]
            fresh[row] = seen[group] != resets[of]
            seen[group] = resets[of]


class GroupResets:
    """The number of resets of each instance, and the number that each group saw last."""

    def __init__(self) -> None:
        self.resets = GroupColumns(resets=np.int64)
        self.seen = GroupColumns(seen=np.int64)
        self.pages = PagedPieces("resets")
        self.ever = False

    def fresh(
        self, groups: Longs, events: EventBatch | RowRefs, reached: Bools | None, version: Version
    ) -> Bools:
        """bool[n], where a group's instance has been reset since the last row of the group.

        ``reached``: which events count at all, None for all of them.
        """
        fresh = np.zeros(len(events), dtype=np.bool_)
        resets = events.kind == RESET
        if reached is not None:
            resets &= reached
        if self.ever or resets.any():
            self.ever = True
            self.resets.grow(int(events.instance.max(initial=-1)) + 1)
            _freshen(
                groups, resets, events.instance, self.resets["resets"], self.seen["seen"], fresh
            )
            self.pages.touch(events.instance[resets], version)
        return fresh

    def are_stale(self, instance_of: Longs) -> Bools:
        """bool[n], the groups of the instances ``instance_of`` that will be reset."""
        resets = np.zeros(max(int(instance_of.max(initial=0)) + 1, len(self.resets["resets"])))
        resets[: len(self.resets["resets"])] = self.resets["resets"]
        stale: Bools = self.seen["seen"][: len(instance_of)] != resets[instance_of]
        return stale

    def forget(self, instances: Longs, groups: Longs, version: Version) -> None:
        """Reset ``instances`` and ``groups`` to the initial state."""
        self.seen.forget(groups)
        existing = instances[instances < len(self.resets["resets"])]
        self.resets.forget(existing)
        self.pages.touch(existing, version)

    def pieces(self) -> dict[str, pa.RecordBatch]:
        """A piece for each page of instances."""
        return self.pages.pieces(self._page, len(self.resets["resets"]))

    def _page(self, start: int, stop: int) -> pa.RecordBatch:
        # The room after the last of them depends on how the input was cut.
        resets = np.trim_zeros(self.resets["resets"][start:stop], "b")
        return pa.RecordBatch.from_pydict({"resets": resets.copy()})

    def restore(self, versions: object, state: State) -> None:
        """Restore from the pieces; ``seen`` is in the pages of groups."""
        self.ever = False
        self.resets.clear()
        for start, piece in self.pages.restore(versions, state).items():
            self.ever = True
            self.resets.grow(start + len(piece))
            self.resets["resets"][start : start + len(piece)] = piece.column(0).to_numpy()
