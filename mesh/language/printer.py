"""Printer from syntax trees to text; the text parses to an equal tree.

Brackets occur only where the grammar needs them, and backquotes only around names that are
keywords.  ``layout`` alone decides about lines.
"""

from __future__ import annotations

import re
from typing import Final, assert_never

from mesh.language.layout import format_app, format_parts
from mesh.language.memo import memoized
from mesh.language.print_expressions import (
    print_expression,
    print_function,
    print_literal,
    print_name,
    print_reference,
    print_string,
    print_variable,
)
from mesh.language.syntax import (
    AbsentElement,
    AggregationDefinition,
    Annotation,
    AnonymousInput,
    App,
    AttributeDefinition,
    CountElement,
    DeleteFrom,
    Direction,
    Element,
    EventElement,
    EventKind,
    EveryElement,
    Filter,
    FunctionDefinition,
    Handler,
    InsertInto,
    JoinInput,
    JoinSide,
    LogicalElement,
    NextElement,
    OnDemandQuery,
    Partition,
    PartitionKey,
    Query,
    QueryInput,
    QueryOutput,
    ReturnEvents,
    SelectClause,
    SetAssignment,
    StateElement,
    StateInput,
    StateKind,
    StoreInput,
    StreamDefinition,
    StreamFunction,
    StreamInput,
    TableDefinition,
    TriggerDefinition,
    UpdateTable,
    ValuePartition,
    WindowDefinition,
    WindowHandler,
    WithinRange,
)
from mesh.language.tokens import RESERVED

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*([.:-][A-Za-z_][A-Za-z_0-9]*)*\Z")
#: Notation of counts in sequences.
_COUNT_SIGNS: Final = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def print_app(app: App) -> str:
    """An app as canonical SiddhiQL text that parses to an equal tree.

    Raises:
        MeshErrors: no text parses to this tree; never raised for a parsed app.
    """
    parts = []
    if app.annotations:
        parts.append("\n".join(print_annotation(a, of_app=True) for a in app.annotations))
    base = len(parts)
    parts.extend(f"{print_element(element)};" for element in app.elements)
    are_queries = [isinstance(element, Query | Partition) for element in app.elements]
    # Another order, or no definition, is for the parser to refuse.
    is_ordered = are_queries[:1] == [False] and are_queries == sorted(are_queries)
    return format_parts(parts, base) if is_ordered else format_app("\n\n".join(parts) + "\n")


def print_annotation(annotation: Annotation, *, of_app: bool = False) -> str:
    """``@dist(execGroup='g')``; ``of_app`` for ``@App:name('A')``."""
    name = print_name(annotation.name)
    if of_app:
        prefix, _, rest = annotation.name.partition(":")
        name = f"{prefix}:{print_name(rest)}"
    inside = [
        print_string(text) if key is None else f"{_key(key)}={print_string(text)}"
        for key, text in annotation.elements
    ]
    inside.extend(print_annotation(nested) for nested in annotation.annotations)
    return f"@{name}({', '.join(inside)})" if inside else f"@{name}"


def _key(key: str) -> str:
    words = re.split("[.:-]", key.lower())
    is_plain = _PLAIN_KEY.match(key) and RESERVED.isdisjoint(words)
    return key if is_plain else print_string(key)


def _annotated(annotations: tuple[Annotation, ...], *lines: str) -> str:
    return "\n".join([*(print_annotation(a) for a in annotations), *lines])


# Definitions


def print_element(element: Element) -> str:
    """A definition, query or partition, its annotations before it, without a semicolon."""
    match element:
        case Query():
            return print_query(element)
        case Partition():
            return _partition(element)
        case StreamDefinition() | TableDefinition():
            kind = "stream" if isinstance(element, StreamDefinition) else "table"
            text = f"define {kind} {print_name(element.name)} {_attributes(element.attributes)}"
        case WindowDefinition():
            window = element.window
            events = f" output {element.events} events" if element.events else ""
            text = (
                f"define window {print_name(element.name)} {_attributes(element.attributes)} "
                f"{_call(window)}{events}"
            )
        case TriggerDefinition():
            every = "every " if element.schedule.is_time else ""
            schedule = print_literal(element.schedule)
            return f"define trigger {print_name(element.name)} at {every}{schedule}"
        case FunctionDefinition():
            return (
                f"define function {print_name(element.name)}[{print_name(element.language)}] "
                f"return {element.return_type} {{{element.body}}}"
            )
        case AggregationDefinition():
            return _aggregation(element)
        case _:
            assert_never(element)
    return _annotated(element.annotations, text)


def _attributes(attributes: tuple[AttributeDefinition, ...]) -> str:
    return f"({', '.join(f'{print_name(a.name)} {a.type}' for a in attributes)})"


def _aggregation(aggregation: AggregationDefinition) -> str:
    by = ""
    if aggregation.aggregate_by is not None:
        by = f"by {print_variable(aggregation.aggregate_by)} "
    every = aggregation.every
    units = (" ... " if every.is_range else ", ").join(every.units)
    return _annotated(
        aggregation.annotations,
        f"define aggregation {print_name(aggregation.name)}",
        f"from {_stream(aggregation.input)}",
        *_selector(aggregation.selector),
        f"aggregate {by}every {units}",
    )


# Queries


@memoized
def print_query(query: Query) -> str:
    """A query, a clause a line, its annotations before it."""
    return _annotated(
        query.annotations,
        f"from {_input(query.input)}",
        *_selector(query.selector),
        *_rate(query),
        _output(query.output),
    )


def print_on_demand_query(query: OnDemandQuery) -> str:
    """An on-demand query, a clause a line."""
    lines = [] if query.input is None else [f"from {_store(query.input)}"]
    output = query.output
    is_bare = isinstance(output, DeleteFrom) or (
        isinstance(output, UpdateTable) and not output.inserts
    )
    if query.input is not None or not is_bare or query.selector != SelectClause():
        lines.extend(_selector(query.selector))
    if output != ReturnEvents():
        lines.append(_output(output))
    return "\n".join(lines)


def _store(source: StoreInput) -> str:
    text = print_reference(source.store)
    if source.alias is not None:
        text += f" as {print_name(source.alias)}"
    if source.on is not None:
        text += f" on {print_expression(source.on)}"
    return text + _time_range(source.within, source)


def _time_range(within: WithinRange | None, source: StoreInput | JoinInput) -> str:
    text = ""
    if within is not None:
        text += f" within {print_expression(within.start)}"
        if within.end is not None:
            text += f", {print_expression(within.end)}"
    if source.per is not None:
        text += f" per {print_expression(source.per)}"
    return text


def _input(source: QueryInput) -> str:
    match source:
        case StreamInput():
            return _stream(source)
        case JoinInput():
            return _join(source)
        case StateInput():
            return _state(source)
        case AnonymousInput():
            return _anonymous(source)
        case _:
            assert_never(source)


def _stream(source: StreamInput) -> str:
    alias = f" as {print_name(source.alias)}" if source.alias is not None else ""
    return print_reference(source.stream) + "".join(_handler(h) for h in source.handlers) + alias


def _handler(handler: Handler) -> str:
    match handler:
        case Filter():
            return f"[{print_expression(handler.condition)}]"
        case WindowHandler():
            return f"#window.{_call(handler)}"
        case StreamFunction():
            return f"#{_call(handler)}"
        case _:
            assert_never(handler)


def _call(call: WindowHandler | StreamFunction) -> str:
    inside = "*" if call.takes_all else ", ".join(print_expression(a) for a in call.arguments)
    return f"{print_function(call.name, call.namespace)}({inside})"


def _join(join: JoinInput) -> str:
    left = " unidirectional" if join.trigger is JoinSide.LEFT else ""
    right = " unidirectional" if join.trigger is JoinSide.RIGHT else ""
    on = f" on {print_expression(join.on)}" if join.on is not None else ""
    sides = f"{_stream(join.left)}{left} {join.kind} {_stream(join.right)}{right}"
    return f"{sides}{on}{_time_range(join.within, join)}"


def _state(source: StateInput) -> str:
    text = _state_element(source.element, source.kind)
    if isinstance(source.element, EventElement) and source.element.reference is None:
        # Without brackets this would be a plain stream.
        text = f"({text})"
    return text if source.within is None else f"{text} within {print_literal(source.within)}"


def _state_element(element: StateElement, kind: StateKind) -> str:
    match element:
        case EventElement():
            return _event(element)
        case CountElement():
            return _event(element.event) + _count(element, kind)
        case AbsentElement():
            waiting = f" for {print_literal(element.waiting)}" if element.waiting else ""
            return f"not {_event(element.event)}{waiting}"
        case LogicalElement():
            left, right = (_state_element(e, kind) for e in (element.left, element.right))
            return f"{left} {element.operator} {right}"
        case EveryElement():
            return _every(element, kind)
        case NextElement():
            between = ", " if kind is StateKind.SEQUENCE else " -> "
            return between.join(_state_element(e, kind) for e in element.elements)
        case _:
            assert_never(element)


def _event(event: EventElement) -> str:
    reference = f"{print_name(event.reference)}=" if event.reference is not None else ""
    handlers = "".join(_handler(h) for h in event.handlers)
    return reference + print_reference(event.stream) + handlers


def _count(element: CountElement, kind: StateKind) -> str:
    least, most = element.least, element.most
    sign = _COUNT_SIGNS.get((least, most))
    if sign is not None and kind is StateKind.SEQUENCE:
        return sign
    if least == most:
        return f"<{least}>"
    return f"<{least}:{'' if most is None else most}>"


def _every(every: EveryElement, kind: StateKind) -> str:
    inner = _state_element(every.element, kind)
    return f"every ({inner})" if isinstance(every.element, NextElement) else f"every {inner}"


def _anonymous(source: AnonymousInput) -> str:
    # Iterative, as inner queries may be nested as deep as the text is long; most are not nested.
    parts = [f"from {_input(source.input)}", *_selector(source.selector), *_rate(source)]
    return f"({' '.join([*parts, _output(source.output)])})"


def _selector(selector: SelectClause) -> list[str]:
    columns = [
        print_expression(a.expression) + (f" as {print_name(a.alias)}" if a.alias else "")
        for a in selector.attributes
    ]
    lines = [f"select {', '.join(columns) or '*'}"]
    if selector.group_by:
        lines.append(f"group by {', '.join(print_variable(v) for v in selector.group_by)}")
    if selector.having is not None:
        lines.append(f"having {print_expression(selector.having)}")
    if selector.order_by:
        orders = [
            print_variable(o.attribute) + (" desc" if o.direction is Direction.DESCENDING else "")
            for o in selector.order_by
        ]
        lines.append(f"order by {', '.join(orders)}")
    if selector.limit is not None:
        lines.append(f"limit {print_expression(selector.limit)}")
    if selector.offset is not None:
        lines.append(f"offset {print_expression(selector.offset)}")
    return lines


def _rate(query: Query | AnonymousInput) -> list[str]:
    rate = query.rate
    if rate is None:
        return []
    unit = "" if rate.every.is_time else " events"
    return [f"output {rate.kind} every {print_literal(rate.every)}{unit}"]


def _output(output: QueryOutput) -> str:
    events = "" if output.events is EventKind.CURRENT else f" {output.events} events"
    match output:
        case InsertInto():
            return f"insert{events} into {print_reference(output.stream)}"
        case ReturnEvents():
            return f"return{events}"
        case DeleteFrom() | UpdateTable():
            return _table_output(output, f" for{events}" if events else "")
        case _:
            assert_never(output)


def _table_output(output: DeleteFrom | UpdateTable, events: str) -> str:
    verb, assignments = "delete", ""
    if isinstance(output, UpdateTable):
        verb = "update or insert into" if output.inserts else "update"
        assignments = _set(output.assignments)
    return (
        f"{verb} {print_reference(output.table)}{events}{assignments} "
        f"on {print_expression(output.on)}"
    )


def _set(assignments: tuple[SetAssignment, ...]) -> str:
    if not assignments:
        return ""
    shown = (f"{print_variable(a.attribute)} = {print_expression(a.value)}" for a in assignments)
    return f" set {', '.join(shown)}"


def _partition(partition: Partition) -> str:
    keys = ", ".join(_partition_key(key) for key in partition.keys)
    queries = "\n".join(f"{print_query(query)};" for query in partition.queries)
    return _annotated(partition.annotations, f"partition with ({keys})", "begin", queries, "end")


def _partition_key(key: PartitionKey) -> str:
    of = f"of {print_reference(key.stream)}"
    if isinstance(key, ValuePartition):
        return f"{print_expression(key.expression)} {of}"
    ranges = " or ".join(
        f"{print_expression(r.condition)} as {print_string(r.label)}" for r in key.ranges
    )
    return f"{ranges} {of}"
