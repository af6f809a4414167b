"""States of a restarting group that can be kept: of queries, tables, windows and aggregations.

A query continues from its state if it is the same, over the same streams.  In a partition its state
is divided by the numbers that the partition gave its keys.  So a partition continues from one
earlier partition, and its queries from the queries of that one.  A reader of a named window
continues only with the window's content, because it will receive the events that leave it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from mesh.language.syntax import find
from mesh.model.app import Strategy
from mesh.plan.bind.apps import bind_group
from mesh.plan.bound import BoundTable, SourceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from mesh.model.app import GroupSpec
    from mesh.plan.bound import BoundApp, BoundQuery

#: The names that queries get that have none.
_NUMBERED: Final = re.compile(r"query-[0-9]+\Z")


class StateFate(StrEnum):
    """The effect of an edit on a state."""

    KEPT = "kept"
    #: The query, table or window stays, but can't continue from it.
    LOST = "lost"
    #: The query, table or window is new, and starts empty.
    NEW = "new"
    #: The query, table or window no longer exists.
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class StateChange:
    """The state of one query, table or named window."""

    #: ``query``, ``table``, ``window`` or ``aggregation``.
    kind: str
    name: str
    fate: StateFate
    #: Why it is lost.
    reason: str | None = None
    #: Its name before, where that was another.
    was: str | None = None


@dataclass(frozen=True, slots=True)
class Keeper:
    """A query, table, window or aggregation with state: its name, its place, its dependencies."""

    #: ``query``, ``table``, ``window`` or ``aggregation``.
    kind: str
    name: str
    #: Equal for keepers that can continue from each other's state.
    content: object
    #: The keys of its partition.
    place: object = None
    #: Of a query in a partition: number of the partition in the app, from 0.
    partition: int | None = field(default=None, compare=False)
    #: Of a query: its number in the app or in its partition, from 0.
    number: int = field(default=0, compare=False)
    #: The named windows that it reads.
    windows: tuple[str, ...] = field(default=(), compare=False)

    @property
    def where(self) -> tuple[str, int | None, int, str]:
        """A description that identifies it in its app."""
        return self.kind, self.partition, self.number, self.name

    @property
    def is_numbered(self) -> bool:
        """Whether its name is derived from its place in the text."""
        return self.kind == "query" and _NUMBERED.match(self.name) is not None


@dataclass(frozen=True, slots=True)
class _Match:
    """A keeper, the one that it continues from or replaces, and why it can't continue."""

    one: Keeper
    was: Keeper | None
    reason: str | None = None
    #: Whether a table can't continue from the state, but its database has its rows.
    is_stored: bool = False


def state_changes(old: GroupSpec, new: GroupSpec) -> Iterator[StateChange]:
    """The changes of each state of a group that restarts; those of the new plan first."""
    before, after = bind_group(old), bind_group(new)
    divided = division_changed(old, new)
    matches = _matches(before, after)
    for match in matches:
        one, was = match.one, match.was
        if was is None:
            yield StateChange(one.kind, one.name, StateFate.NEW)
            continue
        name = was.name if was.name != one.name else None
        reason = None if match.is_stored else divided or match.reason
        fate = StateFate.KEPT if reason is None else StateFate.LOST
        yield StateChange(one.kind, one.name, fate, reason, name)
    origins = {match.was.where for match in matches if match.was is not None}
    for one in _keepers(before):
        if one.where not in origins:
            yield StateChange(one.kind, one.name, StateFate.DROPPED)


def continued(before: BoundApp, after: BoundApp) -> list[tuple[Keeper, Keeper]]:
    """The keepers of ``after`` that continue, each with its state in ``before``; divided as it was.

    Queries of one partition all continue from one partition, which may be that of others too.
    """
    return [(m.one, m.was) for m in _matches(before, after) if m.was is not None and not m.reason]


def states_of(group: GroupSpec, fate: StateFate) -> tuple[StateChange, ...]:
    """The states of a group that is new, or gone, as its fate says."""
    return tuple(StateChange(one.kind, one.name, fate) for one in _keepers(bind_group(group)))


def left_behind(
    new: GroupSpec, states: Sequence[StateChange], dropped: Mapping[str, Collection[Keeper]]
) -> Iterator[StateChange]:
    """``states`` of a group, where keepers that moved to it from another leave their state there.

    Args:
        new: the group.
        states: its states, from ``state_changes`` or ``states_of``.
        dropped: by group, the keepers that it no longer has.
    """
    keepers = {(one.kind, one.name): one for one in _keepers(bind_group(new))}
    for state in states:
        one = keepers.get((state.kind, state.name))
        if state.fate is StateFate.NEW and one is not None:
            for group, gone in dropped.items():
                if any((was.content, was.place) == (one.content, one.place) for was in gone):
                    reason = f"it is from group {group}"
                    state = replace(state, fate=StateFate.LOST, reason=reason)
        yield state


def dropped_keepers(group: GroupSpec, states: Iterable[StateChange]) -> list[Keeper]:
    """Keepers of a group of the earlier plan that lose their state, by its state changes."""
    gone = {(s.kind, s.name) for s in states if s.fate is StateFate.DROPPED}
    return [one for one in _keepers(bind_group(group)) if (one.kind, one.name) in gone]


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
        aggregations=tuple(sorted(app.aggregations, key=lambda one: one.schema.name)),
        queries=tuple(_unnumbered(query) for query in app.queries),
        partitions=tuple(
            replace(p, queries=tuple(_unnumbered(query) for query in p.queries))
            for p in app.partitions
        ),
    )


def _unnumbered(query: BoundQuery) -> BoundQuery:
    return replace(query, name="") if _NUMBERED.match(query.name) else query


def _keepers(app: BoundApp) -> Iterator[Keeper]:
    for number, query in enumerate(app.queries):
        if not query.is_stateless:
            yield _keeper(query, number)
    for place, partition in enumerate(app.partitions):
        for number, query in enumerate(partition.queries):
            yield _keeper(query, number, (partition.keys, partition.annotations), place)
    for table in app.tables:
        yield Keeper("table", table.schema.name, table)
    for window in app.windows:
        yield Keeper("window", window.schema.name, window)
    zone = find(app.annotations, "App:aggTimeZone")
    for one in app.aggregations:
        # Retention and place of the values do not matter to those that there are.
        yield Keeper("aggregation", one.schema.name, (replace(one, annotations=()), zone))


def _keeper(
    query: BoundQuery, number: int, place: object = None, partition: int | None = None
) -> Keeper:
    windows = tuple(name for name, kind in query.inputs if kind is SourceKind.WINDOW)
    content = replace(query, name="")
    return Keeper("query", query.name, content, place, partition, number, windows)


def _matches(before: BoundApp, after: BoundApp) -> list[_Match]:
    """For each keeper of ``after``, the one that it continues from, or why it can't."""
    keepers = list(_keepers(after))
    pairs = _pairs(list(_keepers(before)), keepers)
    matches = [_match(one, pairs.get(id(one))) for one in keepers]
    # By partition, the earlier one whose key numbers it inherits: that of its first query.
    source: dict[int | None, int | None] = {}
    for match in matches:
        if match.was is not None and match.reason is None and match.one.partition is not None:
            source.setdefault(match.one.partition, match.was.partition)
    windows = {m.one.name for m in matches if m.one.kind == "window" and m.was and not m.reason}
    return [_in_company(match, source, windows) for match in matches]


def _match(one: Keeper, was: Keeper | None) -> _Match:
    if was is None:
        return _Match(one, was)
    return _Match(one, was, _reason(was, one), _is_in_one_store(was, one))


def _is_in_one_store(was: Keeper, one: Keeper) -> bool:
    """Whether a table stays in its database, with its rows in the state or not."""
    if was.content == one.content:
        return False
    before, after = _stored(was.content), _stored(one.content)
    return before is not None and before == after


def _stored(content: object) -> BoundTable | None:
    """A table in a store without the options that say where its rows are; None for others."""
    store = find(content.annotations, "store") if isinstance(content, BoundTable) else None
    if store is None:
        return None
    assert isinstance(content, BoundTable), "it has a store"
    elements = tuple(
        (key, value)
        for key, value in store.elements
        if key is None or key.lower() not in ("kept", "on.error")
    )
    inner = tuple(one for one in store.annotations if one.name.lower() != "cache")
    bare = replace(store, elements=elements, annotations=inner)
    others = (bare if one is store else one for one in content.annotations)
    return replace(content, annotations=tuple(others))


def _in_company(
    match: _Match, source: Mapping[int | None, int | None], windows: Collection[str]
) -> _Match:
    """``match``, given the changes of its partition and of the windows that it reads."""
    one, was = match.one, match.was
    if was is None or match.reason is not None:
        return match
    if one.partition is not None and source[one.partition] != was.partition:
        return replace(match, reason="it is from another partition than its neighbouring queries")
    gone = [name for name in one.windows if name not in windows]
    if gone:
        return replace(match, reason=f"it reads window {gone[0]}, which starts from nothing")
    return match


def _pairs(before: Sequence[Keeper], after: Sequence[Keeper]) -> Mapping[int, Keeper]:
    """By ``id`` of a new keeper, the one that it continues from or replaces."""
    pairs: dict[int, Keeper] = {}
    left = list(before)

    def pair(fits: Callable[[Keeper, Keeper], bool]) -> None:
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
    pair(lambda was, one: (was.content, was.place) == (one.content, one.place))
    pair(lambda was, one: was.name == one.name)
    return pairs


def _reason(was: Keeper, one: Keeper) -> str | None:
    if was.content != one.content:
        return "it changed" if one.kind == "query" else "its definition changed"
    return "its partition has other keys or purges otherwise" if was.place != one.place else None


def division_changed(old: GroupSpec, new: GroupSpec) -> str | None:
    """The reason why no state of a group can be kept; None if each could be."""
    before, after = _division(old), _division(new)
    for stream, how in after.items():
        if stream in before and before[stream] != how:
            return f"events of {stream} are divided {how} rather than {before[stream]}"
    if old.partition_count != new.partition_count:
        return f"{old.partition_count} virtual partitions become {new.partition_count}"
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
