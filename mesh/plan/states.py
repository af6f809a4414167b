"""Which states of a group that restarts can be kept: those of queries, tables and named windows."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from mesh.model.app import Strategy
from mesh.plan.build import bind_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mesh.model.app import GroupSpec
    from mesh.plan.bound import BoundApp, BoundPartition, BoundQuery

#: The names that queries get that have none.
_NUMBERED: Final = re.compile(r"query-[0-9]+\Z")


class StateFate(StrEnum):
    """What becomes of a state."""

    KEPT = "kept"
    #: What keeps it stays, but can't go on from it.
    LOST = "lost"
    #: What keeps it is new, and starts from nothing.
    NEW = "new"
    #: What keeps it is gone.
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class StateChange:
    """The state of one query, table or named window."""

    #: ``query``, ``table`` or ``window``.
    kind: str
    name: str
    fate: StateFate
    #: Why it is lost.
    reason: str | None = None
    #: Its name before, where that was another.
    was: str | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    """What keeps state in a group: its name, all that the state depends on, and where it stands."""

    kind: str
    name: str
    #: Equal for what can go on from each other's state.
    content: object
    #: The keys of the partition that it stands in.
    place: object = None

    @property
    def is_numbered(self) -> bool:
        """Whether it got its name from its place in the text."""
        return self.kind == "query" and _NUMBERED.match(self.name) is not None


def state_changes(old: GroupSpec, new: GroupSpec) -> Iterator[StateChange]:
    """What becomes of each state of a group that restarts; first those of the new plan."""
    before, after = list(_keepers(bind_group(old))), list(_keepers(bind_group(new)))
    divided = _division_changed(old, new)
    pairs = _pairs(before, after)
    for one in after:
        was = pairs.get(id(one))
        if was is None:
            yield StateChange(one.kind, one.name, StateFate.NEW)
            continue
        name = was.name if was.name != one.name else None
        reason = divided or _reason(was, one)
        fate = StateFate.KEPT if reason is None else StateFate.LOST
        yield StateChange(one.kind, one.name, fate, reason, name)
    found = {id(was) for was in pairs.values()}
    for one in before:
        if id(one) not in found:
            yield StateChange(one.kind, one.name, StateFate.DROPPED)


def first_states(group: GroupSpec) -> Iterator[StateChange]:
    """The states of a group that is new."""
    for one in _keepers(bind_group(group)):
        yield StateChange(one.kind, one.name, StateFate.NEW)


def dropped_states(group: GroupSpec) -> Iterator[StateChange]:
    """The states of a group that is gone."""
    for one in _keepers(bind_group(group)):
        yield StateChange(one.kind, one.name, StateFate.DROPPED)


def without_numbers(app: BoundApp) -> BoundApp:
    """``app`` without the names that queries got from their places, its definitions sorted."""
    return replace(
        app,
        streams=tuple(sorted(app.streams, key=lambda schema: schema.name)),
        stream_annotations=tuple(sorted(app.stream_annotations, key=lambda one: one[0])),
        tables=tuple(sorted(app.tables, key=lambda table: table.schema.name)),
        windows=tuple(sorted(app.windows, key=lambda window: window.schema.name)),
        triggers=tuple(sorted(app.triggers, key=lambda trigger: trigger.schema.name)),
        scripts=tuple(sorted(app.scripts, key=lambda script: script.name)),
        queries=tuple(_unnumbered(query) for query in app.queries),
        partitions=tuple(
            replace(p, queries=tuple(_unnumbered(query) for query in p.queries))
            for p in app.partitions
        ),
    )


def _unnumbered(query: BoundQuery) -> BoundQuery:
    return replace(query, name="") if _NUMBERED.match(query.name) else query


def _keepers(app: BoundApp) -> Iterator[_Kept]:
    for query in app.queries:
        if not query.is_stateless:
            yield _Kept("query", query.name, replace(query, name=""))
    for partition in app.partitions:
        for query in partition.queries:
            yield _Kept("query", query.name, replace(query, name=""), _entrance(partition))
    for table in app.tables:
        yield _Kept("table", table.schema.name, table)
    for window in app.windows:
        yield _Kept("window", window.schema.name, window)


def _entrance(partition: BoundPartition) -> object:
    """What the instances of a partition depend on."""
    return (partition.keys, partition.annotations)


def _pairs(before: Sequence[_Kept], after: Sequence[_Kept]) -> Mapping[int, _Kept]:
    """By ``id`` of what is new, what it goes on from or takes the place of."""
    pairs: dict[int, _Kept] = {}
    left = list(before)

    def pair(fits: Callable[[_Kept, _Kept], bool]) -> None:
        for one in after:
            if id(one) not in pairs:
                was = next((b for b in left if b.kind == one.kind and fits(b, one)), None)
                if was is not None:
                    pairs[id(one)] = was
                    left.remove(was)

    pair(lambda was, one: was == one)
    pair(
        lambda was, one: (
            was.is_numbered
            and one.is_numbered
            and (was.content, was.place) == (one.content, one.place)
        )
    )
    pair(lambda was, one: was.name == one.name)
    return pairs


def _reason(was: _Kept, one: _Kept) -> str | None:
    if was.content != one.content:
        return "it changed" if one.kind == "query" else "its definition changed"
    return "its partition has other keys or purges otherwise" if was.place != one.place else None


def _division_changed(old: GroupSpec, new: GroupSpec) -> str | None:
    """Why no state of a group can be kept; None where each could be."""
    before, after = _division(old), _division(new)
    for stream, how in after.items():
        if stream in before and before[stream] != how:
            return f"events of {stream} are divided {how} rather than {before[stream]}"
    counts = _count(old), _count(new)
    if counts[0] != counts[1]:
        return f"{counts[0]} virtual partitions become {counts[1]}"
    return None


def _division(group: GroupSpec) -> dict[str, str]:
    return {
        i.channel.stream.name: (
            f"by ({i.channel.key_text}) in {i.channel.partitions} partitions"
            if i.strategy is Strategy.BY_KEY
            else "not at all"
        )
        for i in group.inputs
    }


def _count(group: GroupSpec) -> int:
    keyed = (i.channel.partitions for i in group.inputs if i.strategy is Strategy.BY_KEY)
    return max(keyed, default=1)
