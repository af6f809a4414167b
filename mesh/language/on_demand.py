"""On-demand queries: read or change a table, window or aggregation once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.expressions import parse_expression
from mesh.language.hints import clause_hint
from mesh.language.inputs import parse_time_range
from mesh.language.outputs import parse_output
from mesh.language.queries import parse_selector
from mesh.language.syntax import (
    DeleteFrom,
    EventKind,
    InsertInto,
    OnDemandQuery,
    QueryOutput,
    ReturnEvents,
    SelectClause,
    StoreInput,
    StreamKind,
    StreamReference,
    UpdateTable,
)

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor

_CHANGES: Final = ("insert", "delete", "update")
_STARTS: Final = ("from", "select", "delete", "update")


def parse_store_query(cursor: Cursor) -> OnDemandQuery:
    """The on-demand query that starts here."""
    position = cursor.position
    cursor.start_line()
    if cursor.accept_word("from"):
        return _find(cursor)
    if cursor.sees("@"):
        cursor.fail(*(f"'{word}'" for word in _STARTS), hint="It has no annotations.")
    selector = parse_selector(cursor)
    if not cursor.sees_word(*_CHANGES):
        words = _CHANGES if selector.position.line else _STARTS
        is_sql = bool(selector.position.line) and cursor.sees_word("from")
        hint = "A query starts with 'from': from T select a." if is_sql else None
        cursor.fail(*(f"'{word}'" for word in words), words=words, hint=hint)
    output = parse_output(cursor)
    _check_change(output, selector)
    return OnDemandQuery(None, selector, output, position=position)


def _find(cursor: Cursor) -> OnDemandQuery:
    position = cursor.position
    if cursor.sees("#") or cursor.sees("!"):
        cursor.fail("the name of a table, window or aggregation")
    name = cursor.expect_name("the name of a table, window or aggregation")
    store = StreamReference(name, position=position)
    if cursor.sees("[") or cursor.sees("#"):
        cursor.fail("'on'", "'select'", hint="The condition follows 'on': from T on a > 1.")
    alias = cursor.expect_name("an alias") if cursor.accept_word("as") else None
    on = parse_expression(cursor) if cursor.accept_word("on") else None
    within, per = parse_time_range(cursor)
    source = StoreInput(store, alias, on, within, per, position=position)
    selector = parse_selector(cursor)
    if cursor.sees_word(*_CHANGES):
        cursor.fail(
            "the end of the text",
            hint="One that changes a table has no 'from': select 1 as a insert into T.",
        )
    if not cursor.is_at_end and not cursor.sees(";"):
        hint = clause_hint(cursor)
        if cursor.sees_word("where"):
            hint = "The condition follows 'on': from T on a > 1."
        elif cursor.sees_word("return", "output"):
            hint = "An on-demand query ends with what it selects."
        cursor.fail(
            "'select'" if not selector.position.line else "the end of the text",
            words=("on", "within", "select"),
            hint=hint,
        )
    return OnDemandQuery(source, selector, ReturnEvents(), position=position)


def _check_change(output: QueryOutput, selector: SelectClause) -> None:
    """Refuse output clauses that are valid in an app's queries but not in on-demand queries."""
    if output.events is not EventKind.CURRENT:
        raise MeshError(
            "MESH-L104",
            "'events' mean nothing in an on-demand query",
            hint="Leave it out.",
            position=output.position,
        )
    has_select = bool(selector.position.line)
    is_bare = isinstance(output, DeleteFrom) or (
        isinstance(output, UpdateTable) and not output.inserts
    )
    if not has_select and not is_bare:
        raise MeshError(
            "MESH-L104",
            "nothing is selected to be inserted",
            hint="Write 'select 1 as a insert into T'.",
            position=output.position,
        )
    if isinstance(output, InsertInto) and output.stream.kind is not StreamKind.PLAIN:
        raise MeshError(
            "MESH-L109",
            f"'insert into' takes a table here, not '{output.stream}'",
            position=output.stream.position,
        )
