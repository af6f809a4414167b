"""State of a group with a changed text: unchanged parts keep their state, new parts begin.

Queries, tables, named windows and aggregations that continue (``mesh.plan.states``) keep their
state under their present names.  So do the streams from outside: the events that they held back are
still to be processed.  Positions of output rows and the order of events continue, so that neither
is ever used twice.  A part without a state begins at the present time of the others.

Queries remember an order of events by counts of causes: those of the whole, of a partition, or of
a ring of queries that feed each other.  Where another text moves a query elsewhere, the count there
continues after all counts of the place where the query was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.operators.base import State, namespaced, subset
from mesh.operators.dataflow.merge import CHANGE_SCHEMA, CHANGES, with_schema
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
    """The state from which an executor of ``after`` continues.

    Args:
        state: a snapshot of an executor of ``before``.
        before: the group that made the state.
        after: the group that continues from it, its events divided as they were.
        keeps: False where everything begins with an empty state, except for unprocessed events.
    """
    # The outputs make no difference to the place of a state.
    old, new = Executor(before, ()), Executor(after, ())
    going = continued(before, after) if keeps else []
    former = _former_names(going)
    if keeps:
        triggers = (t.schema.name for t in after.triggers if t in before.triggers)
        former |= {f"trigger-{name}": f"trigger-{name}" for name in triggers}
    was, now = old.places, new.places
    moved = {now[one]: was[other] for one, other in former.items() if one in now and other in was}
    parts = {place: subset(state, earlier) for place, earlier in moved.items()}
    tables = subset(state, "tables")
    for one, other in going:
        if one.kind == "table":
            parts[f"tables/{one.name}"] = subset(tables, other.name)
    parts["inputs"] = _inputs(subset(state, "inputs"), old, new)
    for place, count in _counts(state, moved).items():
        parts[f"{place}/own"] = State({}, {"causes": count})
    scalars = dict(subset(state, "own").scalars)
    scalars["events"] = max(
        [_count(state, ""), *(_count(state, _above(p)) for p in _outside(moved))]
    )
    return namespaced({"own": State({}, scalars | {"new": True}), **parts})


def _former_names(going: Sequence[tuple[Keeper, Keeper]]) -> dict[str, str]:
    """By present name of each part that continues, as in ``Executor.places``, its former name."""
    former: dict[str, str] = {}
    for one, was in going:
        if one.kind == "table":
            continue
        former[_node(one)] = _node(was)
        if one.partition is not None:
            former[_ENTRANCE.format(one.partition)] = _ENTRANCE.format(was.partition)
    return former


def _node(one: Keeper) -> str:
    """The name of a query, a window or an aggregation in ``Executor.places``."""
    if one.kind in ("window", "aggregation"):
        return f"{one.kind}-{one.name}"
    inside = "" if one.partition is None else f"partition{one.partition}."
    return f"{inside}query{one.number}"


def _inputs(state: State, old: Executor, new: Executor) -> State:
    """Events that the streams still read hold back, with their present attributes."""
    pieces, scalars = {}, {}
    before = old.input_schemas
    for stream, schema in [*new.input_schemas.items(), (CHANGES, CHANGE_SCHEMA)]:
        progress = state.scalars.get(stream)
        if progress is None:
            continue
        scalars[stream] = progress
        _, gone, came = progress
        if came > gone:
            name = f"{stream}-{gone}-{came}"
            held = state.pieces[name]
            is_same = stream == CHANGES or before[stream] == schema
            pieces[name] = held if is_same else with_schema(held, schema)
    return State(pieces, scalars)


def _counts(state: State, moved: Mapping[str, str]) -> dict[str, int]:
    """By partition and ring with a part that continues, the number of causes so far."""
    counts: dict[str, int] = {}
    for place, earlier in moved.items():
        above = _above(place)
        if above:
            counts[above] = max(counts.get(above, 0), _count(state, _above(earlier)))
    return counts


def _outside(moved: Mapping[str, str]) -> list[str]:
    """Former place of parts that are in no partition or ring now."""
    return [earlier for place, earlier in moved.items() if not _above(place)]


def _above(place: str) -> str:
    """The partition or ring that a place is in; empty for none."""
    return place.rpartition("/")[0]


def _count(state: State, above: str) -> int:
    """Number of causes so far in a partition or ring, or in the whole."""
    count = subset(state, f"{above}/own").scalars.get("causes", 0) if above else None
    if count is None:
        count = subset(state, "own").scalars["events"]
    return int(count)
