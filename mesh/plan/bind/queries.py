"""Binding of one query of an app."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, assert_never

from mesh.errors import MeshError
from mesh.functions.catalogue import STATEFUL_FUNCTIONS
from mesh.language.memo import memoized
from mesh.language.syntax import (
    AnonymousInput,
    BinaryOperator,
    InsertInto,
    JoinInput,
    StateInput,
    StreamInput,
    StreamKind,
)
from mesh.model.types import Attribute
from mesh.plan.bind.inputs import bind_join, bind_stream
from mesh.plan.bind.selection import bind_action, bind_selection
from mesh.plan.bind.states import bind_pattern
from mesh.plan.bound import (
    BinaryExpression,
    BoundQuery,
    BoundRate,
    BoundStream,
    BoundStreamFunction,
    Column,
    FunctionCall,
    UnaryExpression,
    has_aggregate,
)

if TYPE_CHECKING:
    from mesh.language.syntax import OutputRate, Query, QueryInput, StreamReference
    from mesh.plan.bind.names import Answers, AppNames
    from mesh.plan.bound import BoundExpression, BoundJoin, BoundOutput, BoundPattern
    from mesh.plan.diagnostics import Diagnostics
    from mesh.plan.scopes import InputScope

#: Functions with a state: their names by those in a bound expression.
_NAMES: Final = {one.bound_name: one.name for one in STATEFUL_FUNCTIONS.values()}


def bind_query(
    query: Query, name: str, names: AppNames, problems: Diagnostics
) -> BoundQuery | None:
    """A query with every name resolved; None if something in it has an error, which is reported.

    The stream that it creates is known from here on.  If the query has an error, the stream is
    known to exist, and queries that read it are skipped.
    """
    bound = _bound_before(query, name, names)
    is_right = bound is not None
    if bound is None:
        failures = problems.failures
        names.take_answers()
        bound = _bind(query, name, names, problems)
        is_right = bound is not None and problems.failures == failures
        if bound is not None and is_right:
            _bindings(query)[:] = [_Binding(names.take_answers(), bound)]
    if isinstance(query.output, InsertInto):
        names.infer(query.output.stream, bound.target if bound is not None else None)
    return bound if is_right else None


@dataclass(frozen=True, slots=True)
class _Binding:
    """The bound form of a query without an error, for the answers that it got."""

    answers: Answers
    bound: BoundQuery


@memoized
def _bindings(_: Query) -> list[_Binding]:
    """The place of the last binding of a query, empty at first."""
    return []


def _bound_before(query: Query, name: str, names: AppNames) -> BoundQuery | None:
    for binding in list(_bindings(query)):
        if binding.bound.name == name and names.agree_with(binding.answers):
            return binding.bound
    return None


def _bind(query: Query, name: str, names: AppNames, problems: Diagnostics) -> BoundQuery | None:
    bound_input = _input(query.input, names, problems)
    if bound_input is None:
        return None
    source, scope = bound_input
    written = query.output
    output = _output_name(written.stream) if isinstance(written, InsertInto) else ""
    at = written.stream.position if isinstance(written, InsertInto) else written.position
    selection = bind_selection(
        query.selector,
        scope,
        names.vocabulary,
        problems,
        output=output,
        reads_input=not isinstance(source, BoundStream),
        position=at,
    )
    if selection is None:
        return None
    outputs = selection.outputs
    if isinstance(source, BoundStream):
        source, outputs = _lift_stateful(source, outputs)
    produced = selection.schema(output)
    action = problems.attempt(bind_action, written, produced, names)
    if action is None:
        return None
    return BoundQuery(
        name=name,
        input=source,
        outputs=outputs,
        group_by=selection.group_by,
        having=selection.having,
        action=action,
        events=written.events,
        order_by=selection.order_by,
        limit=selection.limit,
        offset=selection.offset,
        rate=_rate(query.rate),
        annotations=query.annotations,
        position=query.position,
    )


def _output_name(stream: StreamReference) -> str:
    """The name that ``having`` uses for the output; output into ``!S`` has that of ``S``."""
    return stream.name if stream.kind is StreamKind.FAULT else str(stream)


def _input(
    written: QueryInput, names: AppNames, problems: Diagnostics
) -> tuple[BoundStream | BoundJoin | BoundPattern, InputScope] | None:
    match written:
        case StreamInput():
            return bind_stream(written, names, problems)
        case JoinInput():
            return bind_join(written, names, problems)
        case StateInput():
            return bind_pattern(written, names, problems)
        case AnonymousInput():
            problems.add(
                MeshError(
                    "MESH-L222",
                    "a query inside a query",
                    detail="The reference engine reads it and then doesn't find it.",
                    hint="Let the inner query insert into a stream, and read that one.",
                    position=written.position,
                )
            )
            return None
        case _:
            assert_never(written)


def _rate(rate: OutputRate | None) -> BoundRate | None:
    if rate is None:
        return None
    assert isinstance(rate.every.value, int), "the parser takes whole numbers and times only"
    return BoundRate(rate.kind, rate.every.value, rate.every.is_time, position=rate.position)


def _lift_stateful(
    source: BoundStream, outputs: tuple[BoundOutput, ...]
) -> tuple[BoundStream, tuple[BoundOutput, ...]]:
    """The input with a handler for each call with a state, and the outputs that read its attribute.

    from S select kf:kalmanFilter(x) as y    is    from S#kf:kalmanFilter(x) select "..#0" as y
    """
    calls: list[BoundStreamFunction] = []
    lifted = tuple(
        replace(output, expression=_lift(output.expression, calls)) for output in outputs
    )
    if not calls:
        return source, outputs
    return replace(source, handlers=(*source.handlers, *calls)), lifted


def _lift(expression: BoundExpression, calls: list[BoundStreamFunction]) -> BoundExpression:
    """``expression`` with columns for its calls; not for one that is not always evaluated."""
    match expression:
        case FunctionCall() if expression.function in _NAMES and not has_aggregate(expression):
            name = _NAMES[expression.function]
            column = Column(f"{name}#{len(calls)}", expression.type, position=expression.position)
            adds = (Attribute(column.name, column.type),)
            calls.append(
                BoundStreamFunction(name, expression.arguments, adds, position=expression.position)
            )
            return column
        case FunctionCall() if expression.function != "ifthenelse":
            # One frame a level: a comprehension's generator would halve the depth of the stack.
            arguments = list(expression.arguments)
            for at, argument in enumerate(arguments):
                arguments[at] = _lift(argument, calls)
            return replace(expression, arguments=tuple(arguments))
        case UnaryExpression():
            return replace(expression, operand=_lift(expression.operand, calls))
        case BinaryExpression() if expression.operator not in (
            BinaryOperator.AND,
            BinaryOperator.OR,
        ):
            left = _lift(expression.left, calls)
            return replace(expression, left=left, right=_lift(expression.right, calls))
        case _:
            return expression
