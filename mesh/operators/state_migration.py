"""The state of a group whose text has changed: what stays as it was goes on, what is new begins.

Queries, tables and named windows that go on (``mesh.plan.states``) keep what they have under the
names that they have now.  So do the streams that come from outside: what they held back is still to
be processed.  Positions of output rows and the order of events go on, so that neither is ever given
twice.  What has no state begins at the time at which the others are.

What queries remember of an order of events counts causes: those of the whole, of a partition, or of
a ring of queries that feed each other.  Where another text puts a query elsewhere, the count there
goes on behind all that was counted where it comes from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mesh.operators.base import State, namespaced, subset
from mesh.operators.dataflow.merge import with_schema
from mesh.operators.executor import Executor
from mesh.plan.states import continued

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mesh.plan.bound import BoundApp
    from mesh.plan.states import Keeper

_ENTRANCE = "partition{}.entrance"


def remap(
    state: State,
    before: BoundApp,
    after: BoundApp,
    *,
    keeps: bool = True,
) -> State:
    """The state from which an executor of ``after`` goes on.

    Args:
        state: a snapshot of an executor of ``before``.
        before: the group that made the state.
        after: the group that is to go on from it, its events divided as they were.
        keeps: False where all is to begin anew, but for what has not been processed yet.
    """
    # What is given out makes no difference to where a state is.
    old, new = Executor(before, ()), Executor(after, ())
    going = continued(before, after) if keeps else []
    kept = _kept(going)
    if keeps:
        triggers = (t.schema.name for t in after.triggers if t in before.triggers)
        kept |= {f"trigger-{name}": f"trigger-{name}" for name in triggers}
    was, now = old.places, new.places
    moved = {now[one]: was[other] for one, other in kept.items() if one in now and other in was}
    parts = {place: subset(state, earlier) for place, earlier in moved.items()}
    tables = subset(state, "tables")
    for one, other in going:
        if one.kind == "table":
            parts[f"tables/{one.name}"] = subset(tables, other.name)
    parts["inputs"] = _inputs(subset(state, "inputs"), old, new)
    for place, count in _counts(state, moved).items():
        parts[f"{place}/own"] = State({}, {"causes": count})
    own = dict(subset(state, "own").scalars)
    own["events"] = max([_count(state, ""), *(_count(state, _above(p)) for p in _outside(moved))])
    return namespaced({"own": State({}, own | {"new": True}), **parts})


def _kept(going: Sequence[tuple[Keeper, Keeper]]) -> dict[str, str]:
    """By the name of what goes on, as ``Executor.places`` has it, its name before."""
    kept: dict[str, str] = {}
    for one, was in going:
        if one.kind == "table":
            continue
        kept[_node(one)] = _node(was)
        if one.partition is not None:
            kept[_ENTRANCE.format(one.partition)] = _ENTRANCE.format(was.partition)
    return kept


def _node(one: Keeper) -> str:
    """The name of a query or a window in ``Executor.places``."""
    if one.kind == "window":
        return f"window-{one.name}"
    inside = "" if one.partition is None else f"partition{one.partition}."
    return f"{inside}query{one.number}"


def _inputs(state: State, old: Executor, new: Executor) -> State:
    """What the streams that are still read hold back, with the attributes that they have now."""
    pieces, scalars = {}, {}
    before = old.input_schemas
    for stream, schema in new.input_schemas.items():
        own: Any = state.scalars.get(stream)
        if own is None:
            continue
        scalars[stream] = own
        _, gone, came = own
        if came > gone:
            name = f"{stream}-{gone}-{came}"
            held = state.pieces[name]
            pieces[name] = held if before[stream] == schema else with_schema(held, schema)
    return State(pieces, scalars)


def _counts(state: State, moved: Mapping[str, str]) -> dict[str, int]:
    """By partition and ring that something in goes on, how many causes it has had."""
    counts: dict[str, int] = {}
    for place, earlier in moved.items():
        above = _above(place)
        if above:
            counts[above] = max(counts.get(above, 0), _count(state, _above(earlier)))
    return counts


def _outside(moved: Mapping[str, str]) -> list[str]:
    """Where what is in no partition or ring now was before."""
    return [earlier for place, earlier in moved.items() if not _above(place)]


def _above(place: str) -> str:
    """The partition or ring that a place is in; empty for none."""
    return place.rpartition("/")[0]


def _count(state: State, above: str) -> int:
    """How many causes there have been in a partition or ring, or in the whole."""
    found: Any = subset(state, f"{above}/own").scalars.get("causes", 0) if above else None
    if found is None:
        found = subset(state, "own").scalars["events"]
    return int(found)
