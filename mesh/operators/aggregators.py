"""All aggregates of one query, and their state as pieces.

State is kept in pages of groups, so that a batch that touches few groups changes few pieces.
"""

from __future__ import annotations

import hashlib
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from mesh.errors import MeshError
from mesh.operators.aggregates import (
    Average,
    Batch,
    Columns,
    Conditions,
    Count,
    Deviation,
    ExtremeEver,
    ExtremeSince,
    Leaving,
    Listing,
    Sum,
)
from mesh.operators.base import RESET, State, part, prefixed
from mesh.operators.distinct import DistinctCount, UnionSet
from mesh.operators.expressions import compile_expression, compile_filter
from mesh.operators.extremes import WindowExtreme
from mesh.operators.failing import Failing, stopped
from mesh.operators.lifting import AGGREGATES, FAIL_ON_NULL, may_fail, names_aggregate
from mesh.operators.native import njit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.functions.vectors import Vector
    from mesh.operators.aggregates import Aggregate
    from mesh.operators.base import Bools, Events, Longs
    from mesh.operators.expressions import Evaluator, Frame
    from mesh.operators.groups import Groups
    from mesh.operators.lifting import Lifted
    from mesh.operators.windows.row_refs import RowRefs
    from mesh.plan.bound import AggregateCall

#: Groups, or instances, in one piece of state; a power of two, of which these are the bits.
_PAGE_BITS = 12
_PAGE = 1 << _PAGE_BITS
#: How far the input had come when a page changed; behind that, where groups were released before.
Version = int | str


def make(call: AggregateCall, leaving: Leaving) -> Aggregate:
    """What computes ``call``.

    ``leaving``: whether events expire, so that min and max have to remember what is in the window.

    Raises:
        MeshError: MESH-O101, there is nothing that does.
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
        case "min" | "max" if leaving is Leaving.TRACKED:
            return WindowExtreme(type, larger=name == "max")
        case "min" | "max" if leaving is Leaving.UNTRACKED:
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
        case _:
            raise MeshError(
                "MESH-O101",
                f'aggregator "{call.function}" has no kernel',
                detail="The planner accepted it, but this version can't compute it.",
                hint="Do manager and worker have the same version?",
            )


@njit
def _freshen(groups: Any, reset: Any, instance: Any, resets: Any, seen: Any, fresh: Any) -> None:
    """Mark rows whose group had no other since its instance was reset.

    ``resets``: how often each instance has been reset; ``seen``: what that was when a row of the
    group came last.
    """
    for row in range(len(groups)):
        of = instance[row]
        if reset[row]:
            resets[of] += 1
        elif groups[row] >= 0:
            group = groups[row]
            fresh[row] = seen[group] != resets[of]
            seen[group] = resets[of]


def _pages_of(rows: Longs) -> list[int]:
    """The pages that ``rows`` are in; what is less than 0 is in none."""
    last = int(rows.max(initial=-1)) >> _PAGE_BITS
    if last < 1:
        return [0] if last == 0 else []
    touched = np.zeros(last + 2, dtype=np.bool_)
    touched[rows >> _PAGE_BITS] = True
    found: list[int] = np.flatnonzero(touched[:-1]).tolist()
    return found


class Pages:
    """The pieces of rows in pages: each is made anew once something in it has changed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._versions: dict[int, Version] = {}
        self._pieces: dict[int, pa.RecordBatch] = {}

    def touch(self, rows: Longs, version: Version) -> None:
        """Note that ``rows`` have changed, by the input up to ``version``."""
        for page in _pages_of(rows):
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

    def versions(self) -> dict[str, Version]:
        """What ``restore`` needs to know the names of the pieces."""
        return {str(page): version for page, version in self._versions.items()}

    def restore(self, versions: Any, state: State) -> dict[int, pa.RecordBatch]:
        """Take over the pieces of ``state``; returns them by the number of the first row."""
        self._versions = {int(page): version for page, version in versions.items()}
        self._pieces = {page: state.pieces[self._piece(page)] for page in sorted(self._versions)}
        return {page * _PAGE: piece for page, piece in self._pieces.items()}


class _Resets:
    """How often each instance has been reset, and what that was when each group was used last."""

    def __init__(self) -> None:
        self.resets = Columns(resets=np.int64)
        self.seen = Columns(seen=np.int64)
        self.pages = Pages("resets")
        self.ever = False

    def fresh(
        self, groups: Longs, events: Events | RowRefs, reached: Bools | None, version: Version
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
        """bool[n], which groups will begin anew, of the instances ``instance_of``."""
        resets = np.zeros(max(int(instance_of.max(initial=0)) + 1, len(self.resets["resets"])))
        resets[: len(self.resets["resets"])] = self.resets["resets"]
        stale: Bools = self.seen["seen"][: len(instance_of)] != resets[instance_of]
        return stale

    def forget(self, instances: Longs, groups: Longs, version: Version) -> None:
        """Be as if ``instances`` and ``groups`` had never been."""
        self.seen.forget(groups)
        known = instances[instances < len(self.resets["resets"])]
        self.resets.forget(known)
        self.pages.touch(known, version)

    def pieces(self) -> dict[str, pa.RecordBatch]:
        """A piece for each page of instances."""
        return self.pages.pieces(self._page, len(self.resets["resets"]))

    def _page(self, start: int, stop: int) -> pa.RecordBatch:
        # How much room there is behind the last of them depends on how the input was cut.
        resets = np.trim_zeros(self.resets["resets"][start:stop], "b")
        return pa.RecordBatch.from_pydict({"resets": resets.copy()})

    def restore(self, versions: Any, state: State) -> None:
        """Take over the pieces; ``seen`` is in the pages of groups."""
        self.ever = False
        self.resets.clear()
        for start, piece in self.pages.restore(versions, state).items():
            self.ever = True
            self.resets.grow(start + len(piece))
            self.resets["resets"][start : start + len(piece)] = piece.column(0).to_numpy()


class _Site:
    """One aggregator of the query, where it stands."""

    def __init__(self, lifted: Lifted, leaving: Leaving) -> None:
        self.aggregate = make(lifted.call, leaving)
        self.listing = cast("Listing", self.aggregate) if hasattr(self.aggregate, "lists") else None
        self.conditions = [compile_filter(condition) for condition in lifted.conditions]
        name, arguments = lifted.call.function, lifted.call.arguments
        #: Its name, if it has no answer to a null.
        self.fails_on_null = name if name.lower() in FAIL_ON_NULL else None
        self._argument = compile_expression(arguments[0]) if arguments else None
        #: Whether it looks at no other aggregator's value.
        self.is_apart = not any(map(names_aggregate, (*lifted.conditions, *arguments)))
        self.may_fail = may_fail(lifted)

    def argument_in(self, frame: Frame, reached: Bools | None = None) -> Vector | None:
        """What it is given in each row; notes in ``frame`` where that fails, and is ``reached``."""
        if self._argument is None:
            return None
        if reached is None:
            return self._given(self._argument, frame)
        return frame.only(partial(self._given, self._argument), reached)

    def _given(self, evaluate: Evaluator, frame: Frame) -> Vector:
        argument = evaluate(frame)
        if self.fails_on_null:
            _fail_on_nulls(frame, argument, self.fails_on_null)
        return argument

    def reached(self, frame: Frame) -> Bools | None:
        """bool[n], the events for which it is looked at; None for all."""
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


def _resets_of(sites: Sequence[_Site]) -> list[int]:
    """For each aggregator the number of its resets.

    Those that are looked at in the same events share them.  One that is looked at under a condition
    has its own; and where one may fail, those before it take an event that it and those behind it
    don't.
    """
    following = itertools.count(1)
    own = [next(following) if site.conditions else 0 for site in sites]
    shared, is_used = 0, False
    for number, site in enumerate(sites):
        if site.may_fail and is_used:
            shared, is_used = next(following), False
        if not site.conditions:
            own[number], is_used = shared, True
    return own


class Aggregators:
    """The aggregators ``lifted`` out of a query, in their order.

    ``prefix``: what ``lift`` was given; ``leaving``: whether events expire; ``resets``: whether
    they begin anew when an event says so.
    """

    def __init__(
        self,
        lifted: Sequence[Lifted],
        groups: Groups,
        leaving: Leaving,
        prefix: str = "",
        resets: bool = True,
    ) -> None:
        self.groups = groups
        self._prefix = prefix
        self._may_reset = resets
        self._sites = [_Site(one, leaving) for one in lifted]
        self._are_apart = all(site.is_apart for site in self._sites)
        self._resets_of = _resets_of(self._sites)
        self._resets = [_Resets() for _ in range(1 + max(self._resets_of, default=0))]
        self._listing = {n: s.listing for n, s in enumerate(self._sites) if s.listing is not None}
        #: Rows seen so far: the state is a function of the input up to there, and of where in it
        #: groups were released, which depends on how it was cut.
        self._rows = 0
        self._released = ""
        self._clear_pages()

    def _clear_pages(self) -> None:
        self._pages = Pages("groups")
        self._list_pages = {n: Pages(f"list{n}") for n in self._listing}

    def run(self, frame: Frame, groups: Longs, events: Events) -> None:
        """Add to ``frame`` the value of each aggregator after each event.

        ``groups``: int64[n], of each event; -1 for those that reset, or don't take part.
        """
        self._grow(len(self.groups))
        self._touch(groups)
        failing: Failing | None = None
        known: list[tuple[Vector | None, Bools | None]] = []
        if self._are_apart:
            failing = Failing(frame, events)
            for number, site in enumerate(self._sites):
                reached = site.reached(frame)
                known.append((site.argument_in(frame, reached), reached))
                failing.note(number)
        shared: dict[int, Bools] = {}
        for number, site in enumerate(self._sites):
            if failing is None:
                reached = site.reached(frame)
                argument = site.argument_in(frame, reached)
                own = np.where(stopped(frame, events), -1, groups) if frame.failures else groups
            else:
                argument, reached = known[number]
                own = failing.reaching(groups, number)
            if not self._may_reset:
                fresh = np.zeros(len(events), dtype=np.bool_)
                own = own if reached is None else np.where(reached, own, -1)
            elif reached is not None:
                own = np.where(reached, own, -1)
                resets = self._resets[self._resets_of[number]]
                fresh = resets.fresh(own, events, reached, self._version)
            else:
                whose = self._resets_of[number]
                if whose not in shared:
                    looked_at = ~stopped(frame, events) if frame.failures else None
                    # What nobody takes leaves its group as fresh as it was.
                    shared[whose] = self._resets[whose].fresh(own, events, looked_at, self._version)
                fresh = shared[whose]
            value = site.aggregate.run(argument, Batch(own, events.kind, fresh))
            frame.add(AGGREGATES, f"{self._prefix}{number}", value)

    def enter(self, groups: Longs) -> None:
        """Note groups of rows that come into a window, and of which ``follow`` tells later."""
        self._grow(len(self.groups))
        # The keys of those that are new are a part of the state.
        self._touch(groups)

    def follow(
        self, lines: RowRefs, groups: Longs, arguments: Sequence[Vector | None]
    ) -> list[tuple[str, Vector]]:
        """As ``run``, where all that is needed is known.

        Args:
            lines: what came into a window and left it.
            groups: int64[n], of each line; -1 for those that reset.
            arguments: the argument of each aggregator at each line.

        Returns:
            The values of each aggregator behind each line, by its column's name.
        """
        self._touch(groups)
        if len(lines.instance) and self._may_reset:
            fresh = self._resets[0].fresh(groups, lines, None, self._version)
        else:
            fresh = np.zeros(len(groups), dtype=np.bool_)
        batch = Batch(groups, lines.kind, fresh)
        return [
            (f"{self._prefix}{number}", site.aggregate.run(argument, batch))
            for number, (site, argument) in enumerate(zip(self._sites, arguments, strict=True))
        ]

    @property
    def _version(self) -> Version:
        return f"{self._rows}-{self._released}" if self._released else self._rows

    def _touch(self, groups: Longs) -> None:
        """Note that something changes in ``groups``, by as many rows."""
        self._rows += len(groups)
        for pages in (self._pages, *self._list_pages.values()):
            pages.touch(groups, self._version)

    def idle(self) -> Bools:
        """bool[n], which groups are as if they had never been, or will begin anew."""
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
        for listing in self._listing.values():
            listing.forget(groups)
        for site in self._sites:
            site.aggregate.columns.forget(groups)
        for resets in self._resets:
            resets.seen.forget(groups)
        for pages in (self._pages, *self._list_pages.values()):
            pages.touch(groups, self._version)

    def _grow(self, groups: int) -> None:
        for resets in self._resets:
            resets.seen.grow(groups)
        for site in self._sites:
            site.aggregate.columns.grow(groups)

    def forget(self, instances: Longs, groups: Longs) -> None:
        """Drop ``groups`` of ``instances``, so that they may begin anew."""
        groups = groups[groups < len(self._resets[0].seen["seen"])]
        # A call without rows changes the state as well.
        self._rows += 1
        for listing in self._listing.values():
            listing.forget(groups)
        for site in self._sites:
            site.aggregate.columns.forget(groups)
        for resets in self._resets:
            resets.forget(instances, groups, self._version)
        for pages in (self._pages, *self._list_pages.values()):
            pages.touch(groups, self._version)

    def snapshot(self) -> State:
        """Pieces for each page of groups, and for the instances that have been reset."""
        count = len(self.groups)
        self._grow(count)
        pieces = self._pages.pieces(self._page, count)
        for number, listing in self._listing.items():
            pieces |= self._list_pages[number].pieces(listing.lists, count)
        versions = {"groups": self._pages.versions()}
        versions |= {f"list{n}": pages.versions() for n, pages in self._list_pages.items()}
        own = prefixed({str(n): State(r.pieces()) for n, r in enumerate(self._resets)})
        resets = [resets.pages.versions() for resets in self._resets]
        scalars = {
            "rows": self._rows,
            "released": self._released,
            "versions": versions,
            "resets": resets,
            "free": self.groups.free.tolist(),
        }
        return State({**pieces, **own.pieces}, scalars)

    def restore(self, state: State) -> None:
        """Take over what ``snapshot`` gave, groups included."""
        scalars: Any = state.scalars
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
                    stored = f"{name}.{field}"
                    if stored not in piece.schema.names:
                        # An earlier release had one for all that have no condition.
                        stored = f"resets0.{field}"
                    column[start : start + len(piece)] = piece.column(stored).to_numpy()
        for number, resets in enumerate(self._resets):
            stored_as = number if number < len(scalars["resets"]) else 0
            resets.restore(scalars["resets"][stored_as], part(state, str(stored_as)))
        for number, listing in self._listing.items():
            versions = scalars["versions"][f"list{number}"]
            listing.fill(self._list_pages[number].restore(versions, state))

    def _columns(self) -> list[tuple[str, Columns]]:
        own = [(str(number), site.aggregate.columns) for number, site in enumerate(self._sites)]
        return own + [(f"resets{number}", r.seen) for number, r in enumerate(self._resets)]

    def _page(self, start: int, stop: int) -> pa.RecordBatch:
        instance, *keys = self.groups.to_arrow(start, stop)
        arrays: dict[str, pa.Array[Any]] = {"instance": instance}
        arrays |= {f"key{i}": column for i, column in enumerate(keys)}
        for name, columns in self._columns():
            for field, column in columns.arrays.items():
                arrays[f"{name}.{field}"] = pa.array(column[start:stop].copy())
        return pa.RecordBatch.from_pydict(arrays)


def _keys(piece: pa.RecordBatch) -> list[str]:
    return [name for name in piece.schema.names if name.startswith("key") or name == "instance"]
