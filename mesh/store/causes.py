"""Causes of errors of databases: whether the server has answered, and remedies.

Drivers raise the same class for a server that is away and for one that refuses a statement; the
numbers and states of the servers differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mesh.store.sql import sa

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Of PostgreSQL: no connection, no login, no such database, a rollback, a lack of resources, a
#: lock, an operator's intervention, a fault of the system.
_AWAY_STATES: Final = ("08", "28", "3D", "40", "53", "55P03", "57", "58")
#: Of MySQL and MariaDB: connections and logins, shutdown, locks, time limits, read-only servers.
_AWAY_NUMBERS: Final = (
    1040, 1042, 1043, 1044, 1045, 1047, 1049, 1053, 1129, 1130, 1152, 1158, 1159, 1160, 1161, 1180,
    1184, 1203, 1205, 1206, 1213, 1226, 1290, 1317, 1792, 1836, 1927, 1969, 3024, 3032, 4031,
)  # fmt: skip
#: Numbers of clients of MySQL; servers have those around them.
_CLIENT_NUMBERS: Final = range(2000, 3000)
#: Primary codes of SQLite: a statement that is wrong, a file that may not be written, a full disk.
_SQLITE_ANSWERS: Final = (1, 8, 13)
_NO_NULL: Final = (
    "Give the column a default, let it be null, or give the definition an attribute of its name "
    "with a value in each event."
)
_NO_VIEW: Final = (
    "Name a table by table.name, or make the view one that takes rows, as by a trigger "
    "INSTEAD OF INSERT."
)
_NO_RIGHT: Final = "Grant the rights to the login; a file of SQLite is writable, and its directory."
#: Numbers of MySQL and MariaDB, words of SQLite and PostgreSQL: a view that takes no rows.
_VIEWS: Final = (
    1288, 1347, 1348, 1394, 1471, "because it is a view", "cannot insert into view",
    "cannot update view", "cannot delete from view", "cannot change materialized view",
)  # fmt: skip
#: By numbers of MySQL and MariaDB, states of PostgreSQL, and codes or texts of SQLite.
_REMEDIES: Final[tuple[tuple[Sequence[int | str], str], ...]] = (
    ((1048, 1364, "23502", "NOT NULL constraint failed"), _NO_NULL),
    (_VIEWS, _NO_VIEW),
    ((1142, 1143, "42501", "attempt to write a readonly database"), _NO_RIGHT),
)


def is_answer(error: sa.exc.DBAPIError) -> bool:
    """Whether a server refuses a statement; else it is away, or the statement may be repeated."""
    if error.connection_invalidated:
        return False
    if not isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError):
        return True
    origin = error.orig
    code = getattr(origin, "sqlite_errorcode", None)
    if code is not None:
        return (code & 0xFF) in _SQLITE_ANSWERS
    number = _number(origin)
    if number is not None:
        is_client = number < 1000 or number in _CLIENT_NUMBERS
        return not is_client and number not in _AWAY_NUMBERS
    state = getattr(origin, "sqlstate", None)
    return isinstance(state, str) and not state.startswith(_AWAY_STATES)


def remedy(error: sa.exc.DBAPIError) -> str | None:
    """The change by which a database takes the statement, a sentence; None if it is not known."""
    origin = error.orig
    found = {_number(origin), getattr(origin, "sqlstate", None)}
    text = str(origin)
    for signs, sentence in _REMEDIES:
        is_in_text = any(isinstance(one, str) and " " in one and one in text for one in signs)
        if is_in_text or not found.isdisjoint(signs):
            return sentence
    return None


def reason_of(error: Any) -> str:
    """The first line of a driver's message, without a full stop."""
    origin = getattr(error, "orig", None) or error
    number = _number(origin)
    # The number of the system, of an OSError, is not one of a server.
    is_pair = number is not None and number >= 1000 and len(origin.args) > 1
    text = f"{origin.args[1]} ({number})" if is_pair else str(origin)
    lines = text.strip().splitlines() or [type(origin).__name__]
    return lines[0].strip().rstrip(".")


def _number(origin: Any) -> int | None:
    """The number of MySQL or MariaDB."""
    number = origin.args[0] if getattr(origin, "args", ()) else None
    return number if isinstance(number, int) else None
