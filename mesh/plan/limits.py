"""Limits: parts of an app that have no useful meaning, or that can't run yet, refused at planning.

These are parts that operators run and a cluster can't, parts of incremental aggregations that
operators can't run, and patterns and sequences that would never match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, not_supported
from mesh.language.syntax import find
from mesh.model.types import AttributeType
from mesh.plan.annotations import playback_times
from mesh.plan.bound import (
    AggregateCall,
    BothEvents,
    BoundFilter,
    Column,
    Every,
    Insert,
    Next,
    NoEvent,
    SomeEvents,
    SourceKind,
    has_aggregate,
    operands,
)
from mesh.plan.stores import stored_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mesh.language.syntax import Annotation
    from mesh.model.app import Channel
    from mesh.plan.bound import (
        BoundAggregation,
        BoundApp,
        BoundElement,
        BoundExpression,
        BoundPattern,
    )
    from mesh.plan.groups import Group


#: Longest name of a JetStream stream.
_NAME_MAX: Final = 255
#: Annotation of aggregations with rows in a database that means nothing without ``@store``.
_SHARED_ROWS: Final = "partitionbyid"


def check_deployable(
    app: BoundApp, groups: Sequence[Group], channels: Iterable[Channel] = ()
) -> None:
    """Refuse parts that a cluster can't run, in an app that is otherwise correct.

    Raises:
        MeshError: MESH-P214 at the first stream whose channel has too long a name; MESH-P900 at the
            first part of another kind.
    """
    for channel in channels:
        _check_length(channel, app)
    playback = find(app.annotations, "app:playback")
    if playback is not None:
        if playback_times(playback) is not None:
            _check_idle_time(playback, groups)
        for trigger in app.triggers:
            raise not_supported(
                "a trigger in playback in a cluster",
                trigger.position,
                hint="A trigger goes by the clock on the wall, and the app by its events.",
            )
    _check_objects(app, groups)
    for group in groups:
        _check_faults(group)
        _check_fault_inserts(group, groups)


def _check_length(channel: Channel, app: BoundApp) -> None:
    """Refuse a stream whose JetStream stream has a longer name than the server stores."""
    name = channel.js_stream(channel.partitions - 1)
    if len(name) > _NAME_MAX and not channel.foreign:
        stream = channel.stream.name
        shown = stream if len(stream) < 40 else f"{stream[:40]}.."
        by = f" by {channel.key_text[:40]}.." if channel.is_keyed else ""
        raise MeshError(
            "MESH-P214",
            f'the name of stream "{shown}"{by} is too long',
            detail=f"Its JetStream stream {name[:40]}.. would have a name of {len(name)} "
            f"characters; {_NAME_MAX} are possible.",
            hint="Give it, or an attribute of its key, a shorter name."
            if channel.is_keyed
            else "Give it a shorter name.",
            position=dict(app.stream_positions).get(stream),
        )


def _check_idle_time(playback: Annotation, groups: Sequence[Group]) -> None:
    """Refuse idle time of a group with several inputs: its events wait for each other."""
    for group in groups:
        if len(group.reads) > 1:
            raise not_supported(
                f'@App:playback with idle.time and increment in group "{group.name}", which reads '
                f"{len(group.reads)} streams",
                playback.position,
                hint="Insert the events of all of them into one stream in another group, and "
                "read that; or write @App:playback.",
            )


def _check_objects(app: BoundApp, groups: Sequence[Group]) -> None:
    """Refuse objects in input from outside that nothing makes of texts (``outside_objects``)."""
    written = {name for group in groups for name in group.uses.writes}
    read = {name for group in groups for name in group.uses.reads} - written
    positions = dict(app.stream_positions)
    for stream in app.streams:
        is_external = stream.name in read and not stream.name.startswith("!")
        if is_external and any(a.type is AttributeType.OBJECT for a in stream.attributes):
            raise not_supported(
                "attributes of type object in a stream from outside",
                positions.get(stream.name),
                hint="Take a string, and make an object of it: json:toObject(a); or give the "
                "stream a source with a mapper, such as json.",
            )


def _check_faults(group: Group) -> None:
    """Refuse fault streams of several instances: failures aren't divided as readers need it."""
    if group.faults and group.is_shared:
        fault = group.faults[0]
        raise not_supported(
            f'reading fault stream "{fault}" of what fails in group "{group.name}" {group.width}',
            group.elements[0].tree.position,
            hint=f"{group.to_unshare}; or read no "
            f"'{fault}': failed events go to the app's error stream then.",
        )


def _check_fault_inserts(group: Group, groups: Sequence[Group]) -> None:
    """Refuse inserts into a fault stream that other groups use: the events stay in their group."""
    for tree, query in group.queries:
        action = query.action
        if not isinstance(action, Insert) or action.kind is not SourceKind.FAULT:
            continue
        fault = f"!{action.target.name.removeprefix('!')}"
        others = [g for g in groups if g is not group and fault in (*g.reads, *g.faults)]
        if others:
            raise not_supported(
                f'inserting into fault stream "{fault}" in group "{group.name}", which group '
                f'"{others[0].name}" has a part in',
                tree.output.position,
                hint=f'Put all queries that have to do with "{fault}" into one group.',
            )


def check_aggregation(aggregation: BoundAggregation) -> None:
    """Refuse what can't be kept in a database, and outputs that have no value of a bucket.

    Raises:
        MeshError: MESH-P900 at the first such part; MESH-P240 for a wrong option of a store.
    """
    store = stored_in(aggregation)
    for annotation in aggregation.annotations:
        is_off = (annotation.get("enable") or "").lower() == "false"
        if annotation.name.lower() == _SHARED_ROWS and store is None and not is_off:
            raise not_supported(
                f"an aggregation with @{annotation.name} and without @store",
                annotation.position,
                hint="Without it the values are kept in the state of the group.",
            )
    if store is not None:
        _check_stored(aggregation)
    if any(column.type is AttributeType.OBJECT for column in aggregation.group_by):
        raise not_supported("group by an object", aggregation.position)
    keys = {column.name for column in aggregation.group_by}
    for output in aggregation.outputs:
        if isinstance(output.expression, AggregateCall) or not has_aggregate(output.expression):
            continue
        for part in _beside_aggregates(output.expression):
            if part.name not in keys:
                raise not_supported(
                    f'attribute "{part.name}" beside an aggregator',
                    part.position,
                    hint="An attribute that is not grouped by has no value of a bucket: "
                    "select it on its own, then it is that of the latest event.",
                )


def _check_stored(aggregation: BoundAggregation) -> None:
    """Refuse values that a table of base values does not have."""
    keys = {column.name for column in aggregation.group_by}
    seen = {name.lower() for name in keys}
    for output in aggregation.outputs:
        expression = output.expression
        if has_aggregate(expression):
            continue
        if expression.type is AttributeType.OBJECT:
            raise not_supported("an object of an aggregation in a store", expression.position)
        if isinstance(expression, Column) and expression.name in keys:
            continue
        if output.name.lower() in seen:
            raise not_supported(
                f'two columns "{output.name}" of an aggregation in a store',
                expression.position,
                hint="Give the attribute another name with 'as'.",
            )
        seen.add(output.name.lower())


def _beside_aggregates(expression: BoundExpression) -> Iterator[Column]:
    """The columns of ``expression`` outside of its aggregators."""
    if isinstance(expression, Column):
        yield expression
    elif not isinstance(expression, AggregateCall):
        for part in operands(expression):
            yield from _beside_aggregates(part)


def check_pattern(source: BoundPattern) -> None:
    """Refuse the parts of a pattern that don't run.

    Raises:
        MeshError: MESH-P900 at the first such part.
    """
    for step in source.steps:
        if not all(isinstance(handler, BoundFilter) for handler in step.handlers):
            raise not_supported("stream functions (#name(..)) in a pattern", step.position)
    _check_absence(source.element)


def _check_absence(element: BoundElement) -> bool:
    """Refuse absence for a time after events that are optional.

    Returns whether all of ``element`` may be skipped without an event.
    """
    match element:
        case Every(inner):
            return _check_absence(inner)
        case Next(elements):
            is_passed = True
            for number, inner in enumerate(elements):
                if number and is_passed and _is_timed(inner):
                    raise not_supported(
                        "absence for a time after events that are optional",
                        inner.position,
                        hint="The reference engine counts its time from 1970 then. Ask for one "
                        "event at least: <1:..> or +.",
                    )
                is_passed = _check_absence(inner) and is_passed
            return is_passed
        case SomeEvents(_, least, _):
            return least == 0
        case _:
            return False


def _is_timed(element: BoundElement) -> bool:
    """Whether it begins with an event that is absent for a time."""
    match element:
        case NoEvent(_, waiting_ms):
            return waiting_ms is not None
        case BothEvents(_, left, right):
            return _is_timed(left) or _is_timed(right)
        case Every(inner):
            return _is_timed(inner)
        case Next(elements):
            return _is_timed(elements[0])
        case _:
            return False
