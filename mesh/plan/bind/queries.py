"""Binding of one query of an app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from mesh.errors import MeshError
from mesh.language.syntax import (
    AnonymousInput,
    InsertInto,
    JoinInput,
    StateInput,
    StreamInput,
    StreamKind,
)
from mesh.plan.bind.inputs import bind_join, bind_stream
from mesh.plan.bind.outputs import bind_action
from mesh.plan.bind.selection import bind_selection
from mesh.plan.bind.stateful import lift_stateful
from mesh.plan.bind.states import bind_pattern
from mesh.plan.bound import BoundQuery, BoundRate, BoundStream
from mesh.remembered import remembered

if TYPE_CHECKING:
    from mesh.language.syntax import OutputRate, Query, QueryInput, StreamReference
    from mesh.plan.bind.names import Answers, AppNames
    from mesh.plan.bound import BoundJoin, BoundPattern
    from mesh.plan.diagnostics import Diagnostics
    from mesh.plan.scopes import InputScope


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
    """What a query without an error was bound to, by the answers that it got."""

    answers: Answers
    bound: BoundQuery


@remembered
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
        source, outputs = lift_stateful(source, outputs)
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
