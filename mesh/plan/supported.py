"""What the language has and the runtime has not: refused here, each with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from mesh.errors import not_supported
from mesh.language.syntax import (
    AggregationDefinition,
    Binary,
    Call,
    EventElement,
    EventReference,
    EveryElement,
    Filter,
    FunctionDefinition,
    InsertInto,
    InTable,
    NextElement,
    Partition,
    StateInput,
    StateKind,
    StreamDefinition,
    StreamFunction,
    StreamInput,
    StreamKind,
    TableDefinition,
    TriggerDefinition,
    Unary,
    Variable,
    WindowDefinition,
)

if TYPE_CHECKING:
    from mesh.language.syntax import (
        App,
        Element,
        Expression,
        Handler,
        Query,
        QueryInput,
        StateElement,
        StreamReference,
    )

#: Those who come after call themselves for each level of an expression.
_LEVELS_MAX = 200

_ELEMENTS = {
    TableDefinition: "tables (define table)",
    WindowDefinition: "named windows (define window)",
    TriggerDefinition: "triggers (define trigger)",
    FunctionDefinition: "functions (define function)",
    AggregationDefinition: "aggregations (define aggregation)",
    Partition: "partitions (partition with)",
}


def check_supported(app: App) -> None:
    """Refuse what of ``app`` does not run yet.

    Raises:
        MeshError: MESH-P900 at the first such part.
    """
    for element in app.elements:
        _check_element(element)


def pattern_steps(source: StateInput) -> tuple[EventElement, ...]:
    """The events of a pattern that runs: ``every A -> B [-> C ..]``."""
    _, *rest = elements = _chain(source.element)
    if not isinstance(elements[0], EveryElement):
        if any(isinstance(element, EveryElement) for element in rest):
            raise not_supported("'every' over other events than the first", source.position)
        raise not_supported(
            "patterns without 'every'", source.position, hint="Write every (..) -> .. ."
        )
    first, *more = _chain(elements[0].element)
    steps = [first, *more, *rest]
    for step in steps:
        if isinstance(step, EveryElement):
            raise not_supported("more than one 'every' in a pattern", step.position)
        if not isinstance(step, EventElement):
            raise not_supported("counts, absence, 'and' and 'or' of events", step.position)
    if more:
        raise not_supported("'every' over other events than the first", source.position)
    if not rest:
        assert isinstance(first, EventElement)
        raise not_supported(
            "patterns of one event",
            source.position,
            hint=f"A plain query does the same: from {first.stream}[..] select .. .",
        )
    return tuple(step for step in steps if isinstance(step, EventElement))


def _chain(element: StateElement) -> tuple[StateElement, ...]:
    return element.elements if isinstance(element, NextElement) else (element,)


def _check_element(element: Element) -> None:
    if isinstance(element, StreamDefinition):
        return
    what = _ELEMENTS.get(type(element))
    if what is not None:
        raise not_supported(what, element.position)
    _check_query(element)  # type: ignore[arg-type]  # the others are in the table


def _check_query(query: Query) -> None:
    _check_input(query.input)
    selector = query.selector
    for attribute in selector.attributes:
        _check_expression(attribute.expression)
    if selector.having is not None:
        _check_expression(selector.having)
    if selector.order_by:
        raise not_supported("order by", selector.order_by[0].position)
    if selector.limit is not None:
        raise not_supported("limit", selector.limit.position)
    if selector.offset is not None:
        raise not_supported("offset", selector.offset.position)
    if query.rate is not None:
        raise not_supported("output rates (output .. every)", query.rate.position)
    if not isinstance(query.output, InsertInto):
        raise not_supported("other outputs than 'insert into'", query.output.position)
    _check_reference(query.output.stream)


def _check_input(source: QueryInput) -> None:
    match source:
        case StreamInput():
            _check_reference(source.stream)
            _check_handlers(source.handlers)
        case StateInput():
            if source.kind is StateKind.SEQUENCE:
                raise not_supported("sequences (A, B)", source.position)
            for step in pattern_steps(source):
                _check_reference(step.stream)
                _check_handlers(step.handlers)
        case _:
            raise not_supported("joins, and queries inside queries", source.position)


def _check_handlers(handlers: tuple[Handler, ...]) -> None:
    for handler in handlers:
        if isinstance(handler, StreamFunction):
            raise not_supported("stream functions (#name(..))", handler.position)
        if isinstance(handler, Filter):
            _check_expression(handler.condition)
        elif handler.takes_all:
            raise not_supported("all attributes as arguments (*)", handler.position)


def _check_reference(stream: StreamReference) -> None:
    if stream.kind is not StreamKind.PLAIN:
        _refuse_kind(stream.kind, stream)


def _refuse_kind(kind: StreamKind, node: StreamReference | Variable) -> NoReturn:
    what = "inner streams (#S)" if kind is StreamKind.INNER else "fault streams (!S)"
    raise not_supported(what, node.position)


def _check_expression(root: Expression) -> None:
    pending = [(root, 1)]
    while pending:
        expression, level = pending.pop()
        if level > _LEVELS_MAX:
            raise not_supported(f"expressions of more than {_LEVELS_MAX} levels", root.position)
        match expression:
            case Unary():
                pending.append((expression.operand, level + 1))
            case Binary():
                pending += ((expression.right, level + 1), (expression.left, level + 1))
            case Call():
                if expression.takes_all:
                    raise not_supported("all attributes as arguments (*)", expression.position)
                pending.extend((argument, level + 1) for argument in reversed(expression.arguments))
            case InTable():
                raise not_supported("'in' a table", expression.position)
            case EventReference():
                raise not_supported("'is null' of an event", expression.position)
            case Variable():
                if expression.kind is not StreamKind.PLAIN:
                    _refuse_kind(expression.kind, expression)
                if expression.function is not None:
                    raise not_supported("attributes of stream functions", expression.position)
            case _:
                pass
