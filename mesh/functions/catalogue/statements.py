"""Stream functions that execute a statement in a database: ``#rdbms:query``, ``#rdbms:cud``.

From the public documentation of siddhi-store-rdbms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from mesh.functions.catalogue.model import NameKind, Objection, Reason
from mesh.functions.catalogue.notation import signatures
from mesh.model.statements import columns_in, first_word, places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.functions.catalogue.model import Argument
    from mesh.model.types import Attribute

_QUERY: Final = "rdbms:query"
_CUD: Final = "rdbms:cud"
_FORMS: Final = """
# An event for each row that the statement finds in the database.
rdbms:query(datasource.name string constant, attribute.definition.list string constant,
    query string constant, parameter scalar ..)
# Add the number of rows that the statement changes in the database.
rdbms:cud(datasource.name string constant, query string constant,
    parameter scalar ..) -> numRecords int
"""
#: Commands that ``cud`` refuses, as the original does.
_REFUSED: Final = ("ALTER", "DROP")
#: Commands that give no rows.
_CHANGES: Final = (
    *_REFUSED,
    "CREATE",
    "DELETE",
    "INSERT",
    "MERGE",
    "REPLACE",
    "TRUNCATE",
    "UPDATE",
)


@dataclass(frozen=True, slots=True)
class StatementCall:
    """The arguments of a call by their meaning."""

    source: str
    statement: str
    #: Attributes and types of the rows, as written; empty for ``cud``.
    columns: str
    #: The first argument that is a parameter, and the one after the last.
    parameters: tuple[int, int]
    #: Whether a statement without rows gives one event, with nulls.
    acknowledges: bool


def parts_of(name: str, values: Sequence[Any]) -> StatementCall:
    """The parts of a call that its rule accepts; ``values``: of constants, else None."""
    source, *columns, statement = values[: 3 if name == _QUERY else 2]
    first = 1 + len(columns) + 1
    end = first + places(statement)
    return StatementCall(
        source, statement, columns[0] if columns else "", (first, end), values[end:] == (True,)
    )


def _is_query(arguments: tuple[Argument, ...]) -> Objection | None:
    try:
        columns_in(str(arguments[1].value))
    except ValueError as error:
        return Objection(Reason.VALUE, f"can't have these attributes: {error}", 1)
    command = first_word(str(arguments[2].value))
    if command in _CHANGES:
        return Objection(Reason.VALUE, f"takes no {command}", 2, "rdbms:cud changes a database.")
    *_, last = arguments
    extra = len(arguments) - 3 - places(str(arguments[2].value))
    if extra == 1 and isinstance(last.value, bool):
        return None
    return _of_count(extra, 2, "A constant true after them gives an event without rows, too.")


def _is_cud(arguments: tuple[Argument, ...]) -> Objection | None:
    statement = str(arguments[1].value)
    if first_word(statement) in _REFUSED:
        return Objection(Reason.VALUE, f"takes no {first_word(statement)}", 1)
    extra = len(arguments) - 2 - places(statement)
    if extra == 1 or first_word(statement) in ("COMMIT", "ROLLBACK"):
        return Objection(
            Reason.VALUE,
            "has no transactions over several calls",
            len(arguments) - 1,
            "Each statement is a transaction: write one statement, such as a function of the "
            "database, or tables with @store, whose changes are exactly once.",
        )
    return _of_count(extra, 1, None)


def _of_count(extra: int, place: int, hint: str | None) -> Objection | None:
    if not extra:
        return None
    what = f"has {abs(extra)} {'more' if extra > 0 else 'fewer'} parameters than places '?'"
    return Objection(Reason.COUNT, what, place, hint)


def _columns(arguments: tuple[Argument, ...]) -> tuple[Attribute, ...]:
    return columns_in(str(arguments[1].value))


def _with_columns(name: str, overload: Any) -> Any:
    return replace(overload, adds_for=_columns) if name == _QUERY else overload


#: By name.
STATEMENTS: Final = {
    name: replace(one, overloads=tuple(_with_columns(name, form) for form in one.overloads))
    for name, one in signatures(
        _FORMS,
        NameKind.STREAM_PROCESSOR,
        runs=True,
        rules={_QUERY: _is_query, _CUD: _is_cud},
    ).items()
}
