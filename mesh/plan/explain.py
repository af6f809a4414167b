"""Explanation of a plan as text and as JSON: the output of ``mesh plan``.

Tables in stores that find rows by their key alone: which queries read all rows of one.

A database with SQL evaluates other conditions as well, see ``mesh.operators.tables.pushed``.

Explanation of an edit, printed by ``mesh diff``: restarts with reasons, and kept states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.language.syntax import BinaryOperator, find
from mesh.model.app import GroupKind, GroupMode, Strategy
from mesh.model.names import app_of_token
from mesh.plan.bind.apps import bind_group
from mesh.plan.bound import (
    TABLE_STEP,
    BinaryExpression,
    BoundJoin,
    Column,
    Delete,
    SourceKind,
    TableCheck,
    Update,
    conjuncts,
    walk,
)
from mesh.plan.changes import ChannelFate, GroupFate
from mesh.plan.dependencies import expressions, joined_aggregations, union, uses_of
from mesh.plan.guarantees import describe_delivery, guarantee_of
from mesh.plan.states import StateFate
from mesh.plan.stores import is_lookup_table, is_read_by_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.model.app import Channel, GroupInput, GroupSpec, ScaleBounds
    from mesh.model.values import JsonObject
    from mesh.plan.bound import BoundApp, BoundExpression, BoundQuery
    from mesh.plan.build import AppPlan
    from mesh.plan.changes import Changes, ChannelChange, GroupChange
    from mesh.plan.states import StateChange


#: Of more instances of a group than this, only the first and the last are listed.
_INSTANCES_MAX: Final = 4
#: Of groups that read tables in databases through a cache.
_NOT_REPEATED: Final = (
    "at least once: after a failure, events since the last snapshot may find other rows"
)

_FATES: Final = {
    GroupFate.SAME: "goes on",
    GroupFate.MOVED: "may move",
    GroupFate.SCALED: "is scaled",
    GroupFate.RESTARTED: "restarts",
    GroupFate.STARTED: "starts",
    GroupFate.STOPPED: "stops",
}
_STATES: Final = {
    StateFate.KEPT: "is kept",
    StateFate.LOST: "is lost",
    StateFate.NEW: "starts from nothing",
    StateFate.DROPPED: "is dropped",
}
_CHANNELS: Final = {
    ChannelFate.ADDED: "is made",
    ChannelFate.REMOVED: "is removed, with its events",
    ChannelFate.CHANGED: "changes",
}


def explain(plan: AppPlan) -> str:
    """Groups, instances, channels, subjects and JetStream streams, as text of several lines."""
    spec = plan.spec
    instances = sum(group.parallel for group in spec.groups)
    counts = ", ".join(
        (
            _counted(len(spec.groups), "group"),
            _counted(instances, "instance"),
            _counted(len(spec.channels), "channel"),
        )
    )
    written = app_of_token(spec.name)
    name = spec.name if written == spec.name else f'"{written}", in subjects {spec.name}'
    lines = [f"app {name}: {counts}", f"delivery: {describe_delivery(spec)}"]
    for group in spec.groups:
        lines += ["", *_group_lines(group, spec.bounds.get(group.name))]
    rows = [
        (_channel_name(c), str(c.format), _range(_subjects(c)), _range(c.js_streams))
        for c in spec.channels
    ]
    lines += ["", "channels"]
    lines += _table([("stream", "format", "subject", "JetStream stream"), *rows])
    internal = _internal_streams(plan)
    if internal:
        lines += ["", f"internal streams, never on the wire: {', '.join(internal)}"]
    return "\n".join(lines)


def to_values(plan: AppPlan) -> JsonObject:
    """The explanation as JSON values."""
    return {
        "app": plan.spec.name,
        "delivery": describe_delivery(plan.spec),
        "groups": [_group_values(group) for group in plan.spec.groups],
        "channels": [_channel_values(channel) for channel in plan.spec.channels],
        "internal_streams": list(_internal_streams(plan)),
    }


def _group_lines(group: GroupSpec, bounds: ScaleBounds | None) -> list[str]:
    state = "stateful" if group.stateful else "stateless"
    added = group.kind is not GroupKind.QUERIES
    kind = f"{group.kind}, added by the planner" if added else state
    instances = group.instances
    if len(instances) > _INSTANCES_MAX:
        instances = (f"{instances[0]}..{len(instances)}",)
    lines = [
        f"group {group.name} ({kind}, {_counted(group.parallel, 'instance')})",
        f"  instances  {', '.join(instances)}",
    ]
    for what, names in (
        ("runs on", group.node),
        ("by load", (f"{bounds} instances",) if bounds is not None else ()),
        ("standby", ("another worker for each instance",) if group.standby else ()),
        ("mode", (group.mode,) if group.mode is not GroupMode.REAL_TIME else ()),
        ("sources", group.sources),
        ("sinks", group.sinks),
        ("runs", group.connectors),
        ("delivery", _deliveries(group)),
        ("queries", _queries(group)),
        ("aggregations", _aggregations(group)),
        ("databases", tuple(f"{name} is read there" for name in _lookup_tables(group))),
        ("reads all", tuple(f"{table} in {query}" for table, query in _scans(group))),
        ("cached", _cached(group)),
    ):
        if names:
            lines.append(f"  {what:<9}  {', '.join(names)}")
    if _cached(group):
        lines.append(f"             {_NOT_REPEATED}")
    lines.extend(
        f"  {_channel_name(i.channel)} --{i.strategy}--> {group.name}" for i in group.inputs
    )
    lines.extend(f"  {group.name} --> {_channel_name(c)}" for c in group.outputs)
    return lines


def _deliveries(group: GroupSpec) -> tuple[str, ...]:
    """The guarantee of each connector that it runs."""
    guarantees = map(guarantee_of, group.connectors)
    return tuple(str(one) for one in guarantees if one is not None)


def _queries(group: GroupSpec) -> tuple[str, ...]:
    if group.kind is not GroupKind.QUERIES:
        return ()
    return tuple(query.name for query in bind_group(group).all_queries)


def _aggregations(group: GroupSpec) -> tuple[str, ...]:
    if group.kind is not GroupKind.QUERIES:
        return ()
    return tuple(aggregation.schema.name for aggregation in bind_group(group).aggregations)


def _lookup_tables(group: GroupSpec) -> tuple[str, ...]:
    """Its tables whose rows stay in their database, and aggregations in stores that it joins."""
    if group.kind is not GroupKind.QUERIES:
        return ()
    app = bind_group(group)
    joined = joined_aggregations(app)
    return (
        *(t.schema.name for t in app.tables if is_lookup_table(t)),
        *(
            one.schema.name
            for one in app.aggregations
            if one.schema.name in joined and find(one.annotations, "store") is not None
        ),
    )


def _scans(group: GroupSpec) -> tuple[tuple[str, str], ...]:
    """Tables of which all rows are read in their store for each run, and the queries."""
    return scans(bind_group(group)) if _lookup_tables(group) else ()


def _cached(group: GroupSpec) -> tuple[str, ...]:
    """Those of ``_lookup_tables`` with a cache, whose reads are not repeated."""
    if not _lookup_tables(group):
        return ()
    stores = {t.schema.name: find(t.annotations, "store") for t in bind_group(group).tables}
    return tuple(
        name
        for name in _lookup_tables(group)
        if (store := stores.get(name)) is not None and find(store.annotations, "cache") is not None
    )


def _channel_name(channel: Channel) -> str:
    name = channel.stream.name
    if channel.foreign:
        subjects = f", {channel.reads}" if channel.reads != ">" else ""
        return f"{name} (JetStream stream {channel.foreign}{subjects})"
    return f"{name} by ({channel.key_text})" if channel.is_keyed else name


def _subjects(channel: Channel) -> list[str]:
    return [channel.subject(p) for p in range(channel.partitions)]


def _range(names: Sequence[str]) -> str:
    """Names that differ in a last number, as one: ``mesh.A.S.by.k.0..7``."""
    if len(names) == 1:
        return names[0]
    return f"{names[0]}..{len(names) - 1}"


def _internal_streams(plan: AppPlan) -> tuple[str, ...]:
    on_the_wire = {channel.stream.name for channel in plan.spec.channels}
    bound = plan.bound
    parts = (bound.queries, bound.partitions, bound.aggregations)
    uses = union([uses for part in parts for uses in map(uses_of, part)])
    used = {*uses.reads, *uses.writes}
    return tuple(s.name for s in bound.streams if s.name in used and s.name not in on_the_wire)


def _group_values(group: GroupSpec) -> JsonObject:
    return {
        "name": group.name,
        "kind": str(group.kind),
        "parallel": group.parallel,
        "stateful": group.stateful,
        "instances": list(group.instances),
        "node": list(group.node),
        "standby": group.standby,
        "mode": str(group.mode),
        "sources": list(group.sources),
        "sinks": list(group.sinks),
        "connectors": list(group.connectors),
        "delivery": list(_deliveries(group)),
        "queries": list(_queries(group)),
        "aggregations": list(_aggregations(group)),
        "looked_up": list(_lookup_tables(group)),
        "cached": list(_cached(group)),
        "scanned": [{"table": table, "query": query} for table, query in _scans(group)],
        "reads": [_input_values(i) for i in group.inputs],
        "writes": [
            {"stream": c.stream.name, "key": list(c.key), "computed": c.computed}
            for c in group.outputs
        ],
    }


def _input_values(group_input: GroupInput) -> JsonObject:
    channel = group_input.channel
    by_key = group_input.strategy is Strategy.BY_KEY
    return {
        "stream": channel.stream.name,
        "strategy": str(group_input.strategy),
        "key": list(channel.key) if by_key else [],
        "computed": channel.computed if by_key else "",
        "records_errors": group_input.records_errors,
        **({"js_stream": channel.foreign, "subjects": channel.reads} if channel.foreign else {}),
    }


def _channel_values(channel: Channel) -> JsonObject:
    return {
        "stream": channel.stream.name,
        "attributes": [{"name": a.name, "type": str(a.type)} for a in channel.stream.attributes],
        "key": list(channel.key),
        "computed": channel.computed,
        "partitions": channel.partitions,
        "format": str(channel.format),
        "subjects": _subjects(channel),
        "js_streams": list(channel.js_streams),
    }


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows in columns, two spaces between, without spaces at the end."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        ("  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def scans(app: BoundApp) -> tuple[tuple[str, str], ...]:
    """Tables that stay in such a store, with each query that reads all rows for each run."""
    keys = {t.schema.name: t.primary_key for t in app.tables if is_read_by_key(t)}
    inside = (query for partition in app.partitions for query in partition.queries)
    pairs = (
        (table, query.name)
        for query in (*app.queries, *inside)
        for table, on, step in _conditions(query)
        if table in keys and not set(keys[table]) <= set(_equal(on, step))
    )
    return tuple(dict.fromkeys(pairs))


def _conditions(query: BoundQuery) -> Iterator[tuple[str, BoundExpression | None, int]]:
    """Table, condition, and the step of the table's columns there."""
    if isinstance(query.input, BoundJoin):
        for step, side in enumerate((query.input.left, query.input.right)):
            if side.kind is SourceKind.TABLE:
                yield side.schema.name, query.input.on, step
    if isinstance(query.action, Update | Delete):
        yield query.action.target.name, query.action.on, TABLE_STEP
    for part in (part for root in expressions(query) for part in walk(root)):
        if isinstance(part, TableCheck):
            yield part.table, part.operand, TABLE_STEP


def _equal(on: BoundExpression | None, step: int) -> Iterator[str]:
    """The columns of a table that have to equal something else."""
    for part in conjuncts(on) if on is not None else ():
        if not isinstance(part, BinaryExpression) or part.operator is not BinaryOperator.EQUAL:
            continue
        for column, other in ((part.left, part.right), (part.right, part.left)):
            columns = (one for one in walk(other) if isinstance(one, Column))
            if not isinstance(column, Column) or column.step != step:
                continue
            if not any(one.step == step for one in columns):
                yield column.name


def explain_changes(changes: Changes, obstacles: Sequence[str] = ()) -> str:
    """The changes as text of several lines.

    Args:
        changes: those of the app.
        obstacles: reasons against this change while the app runs, as fragments.
    """
    if changes.is_same:
        return f"app {changes.app}: nothing restarts"
    counts = [(fate, sum(g.fate is fate for g in changes.groups)) for fate in GroupFate]
    counted = ", ".join(f"{count} {_verb(fate, count)}" for fate, count in counts if count)
    of = "1 group" if len(changes.groups) == 1 else f"{len(changes.groups)} groups"
    lines = [f"app {changes.app}: of {of} {counted}"]
    for group in changes.groups:
        lines += ["", *_change_lines(group)]
    if changes.channels:
        lines += ["", "channels"]
        lines += [f"  {_channel_line(change)}" for change in changes.channels]
    if changes.to_reset:
        lines += ["", f"state is lost in: {', '.join(changes.to_reset)}"]
    if obstacles:
        lines += ["", "can't be changed like that while it runs (MESH-C121)"]
        lines += [f"  {obstacle}" for obstacle in obstacles]
    return "\n".join(lines)


def _verb(fate: GroupFate, count: int) -> str:
    several = {GroupFate.SAME: "go on", GroupFate.MOVED: "may move", GroupFate.SCALED: "are scaled"}
    return _FATES[fate] if count == 1 else several.get(fate, _FATES[fate].removesuffix("s"))


def _change_lines(change: GroupChange) -> Iterator[str]:
    yield f"group {change.group} {_FATES[change.fate]}"
    for number, reason in enumerate(change.reasons):
        yield f"  {'because' if number == 0 else '       '}  {reason}"
    for number, state in enumerate(change.states):
        yield f"  {'state  ' if number == 0 else '       '}  {_state(state)}"


def _state(state: StateChange) -> str:
    reason = f": {state.reason}" if state.reason is not None else ""
    was = f", known as {state.was}" if state.was is not None else ""
    return f"{state.kind} {state.name} {_STATES[state.fate]}{was}{reason}"


def _channel_line(change: ChannelChange) -> str:
    channel = change.channel
    by = f" by ({channel.key_text})" if channel.is_keyed else ""
    reason = f": {change.reason}" if change.reason is not None else ""
    return f"{channel.stream.name}{by} {_CHANNELS[change.fate]}{reason}"


def changes_to_values(changes: Changes, obstacles: Sequence[str] = ()) -> JsonObject:
    """The changes as JSON values."""
    return {
        "app": changes.app,
        "same": changes.is_same,
        "groups": [
            {
                "name": group.group,
                "change": str(group.fate),
                "reasons": list(group.reasons),
                "states": [
                    {
                        "kind": state.kind,
                        "name": state.name,
                        "change": str(state.fate),
                        "reason": state.reason,
                        "was": state.was or state.name,
                    }
                    for state in group.states
                ],
            }
            for group in changes.groups
        ],
        "channels": [
            {
                "stream": change.channel.stream.name,
                "key": list(change.channel.key),
                "computed": change.channel.computed,
                "change": str(change.fate),
                "reason": change.reason,
            }
            for change in changes.channels
        ],
        "reset": list(changes.to_reset),
        "obstacles": list(obstacles),
    }
