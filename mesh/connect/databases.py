"""Declarations of databases: the sink ``rdbms`` and the source ``cdc``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.connect.parts import SINK, SOURCE, ignored, required, secret
from mesh.connect.spec import Guarantee, Kind, Option, Role, Spec
from mesh.model.column_types import backend_of
from mesh.model.statements import columns_in, places
from mesh.model.stored import name_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

_DOC: Final = "jdbc:postgresql://host/name, jdbc:mysql://host/name or jdbc:sqlite:file."
#: Databases whose log is read.
_LOGGED: Final = ("jdbc:postgresql:", "jdbc:mysql:", "jdbc:mariadb:")
#: Of the source ``cdc``.
_OPERATIONS: Final = {"insert", "update", "delete"}
_NAMED: Final = Option("datasource", doc="Instead: name of a database in stores.sources_file.")
_NEEDS: Final = "it needs jdbc.url, or datasource"
_LOGIN: Final = (Option("username", doc="User of the login."), secret("password", "Password."))


def without_driver(url: str) -> str | None:
    """The kind of the database of an address, if it has no driver here."""
    # A secret is known to the worker only.
    if not url or url.startswith("${") or backend_of(url) is not None:
        return None
    return url.removeprefix("jdbc:").partition(":")[0]


def _driver_objection(url: str) -> str | None:
    kind = without_driver(url)
    if kind is None:
        return None
    return f'a database of kind "{kind}" has no driver here; use PostgreSQL, MySQL, MariaDB, SQLite'


def _sink_objection(options: Mapping[str, str]) -> str | None:
    if not options.get("datasource") and not options.get("jdbc.url"):
        return _NEEDS
    objection = _driver_objection(options.get("jdbc.url", ""))
    return objection or name_problem(options.get("table.name", ""))


def _cdc_objection(options: Mapping[str, str]) -> str | None:
    words = [one.strip().lower() for one in options.get("operation", "insert").split(",")]
    if not set(words) <= _OPERATIONS:
        return "operation is a list of insert, update and delete"
    is_polling = options.get("mode", "listening").lower() == "polling"
    if is_polling and not options.get("polling.column"):
        return "mode='polling' needs polling.column"
    url = options.get("url", "")
    if not url and not options.get("datasource.name"):
        return "it needs url, or datasource.name"
    if (objection := _driver_objection(url)) is not None:
        return objection
    if not is_polling and url.startswith("jdbc:") and not url.startswith(_LOGGED):
        return (
            "mode='listening' is for PostgreSQL, MySQL and MariaDB; "
            "write mode='polling' and polling.column"
        )
    table = options.get("table.name", "")
    return name_problem(table.rpartition(".")[2])


def _call_objection(options: Mapping[str, str]) -> str | None:
    if not options.get("datasource") and not options.get("jdbc.url"):
        return _NEEDS
    if (objection := _driver_objection(options.get("jdbc.url", ""))) is not None:
        return objection
    named = [one for one in options.get("parameters", "").split(",") if one.strip()]
    place_count = places(options.get("statement", ""))
    if len(named) != place_count:
        return f"the statement has {place_count} places '?', and parameters names {len(named)}"
    try:
        columns_in(options["columns"]) if options.get("columns") else None
    except ValueError as error:
        return f"columns: {error}"
    return None


_CALL_ID: Final = required("sink.id", "Name that joins sink and source.")

SPECS: Final = (
    Spec(
        "rdbms-call",
        Role.SINK,
        "Executes a statement for each event; the source rdbms-call-response gets the rows. "
        "#rdbms:query and #rdbms:cud are planned as both.",
        (
            _CALL_ID,
            Option("jdbc.url", is_secret=True, doc=_DOC),
            _NAMED,
            *_LOGIN,
            required("statement", "SQL with ? for values."),
            Option("parameters", doc="Attributes that are the values: a,b."),
            Option("columns", doc="Rows of a query: a string,b int, by position. Without: a "
                   "statement that changes the database, and numRecords is the number of rows."),
            Option("empty", default="none", choices=("none", "row"),
                   doc="Of a query that finds nothing: no event, or one with nulls."),
            *SINK,
        ),
        "mesh.receiver.types.rdbms_call:RdbmsCall",
        Guarantee.AT_LEAST_ONCE,
        "One that changes the database needs stores.cud_operations. It is executed again after a "
        "failure between it and its answer.",
        objection=_call_objection,
        extra="rdbms",
        library="sqlalchemy",
    ),
    Spec(
        "rdbms-call-response",
        Role.SOURCE,
        "Attributes of the event of a sink rdbms-call, with those of each row of its answer.",
        (_CALL_ID, *SOURCE),
        "mesh.receiver.types.calls:CallResponse",
        Guarantee.AT_LEAST_ONCE_WITH_KEY,
        "An answer is stored once within the channel's duplicate window.",
        ("*",),
    ),
    Spec(
        "rdbms",
        Role.SINK,
        "Inserts each event into a table; the position is in the transaction of the rows.",
        (
            Option("jdbc.url", is_secret=True, doc=_DOC),
            _NAMED,
            *_LOGIN,
            Option("table.name", doc="The table, without schema; by default the stream's name."),
            Option("field.length", doc="Characters of texts in a new table: a:100,b:20."),
            *ignored("jdbc.driver.name", "pool.properties", "use.collation"),
            *SINK,
        ),
        "mesh.receiver.types.rdbms_sink:RdbmsSink",
        Guarantee.EXACTLY_ONCE,
        "The table mesh_marker has the position. The mapper is keyvalue or none.",
        objection=_sink_objection,
        extra="rdbms",
        library="sqlalchemy",
    ),
    Spec(
        "cdc",
        Role.SOURCE,
        "Reads the changes of a table.",
        (
            Option("url", is_secret=True, doc=_DOC),
            Option("datasource.name", doc="Instead: name of a database in stores.sources_file."),
            *_LOGIN,
            required("table.name", "The table."),
            Option("operation", doc="insert, update and delete, comma-separated; for listening."),
            Option(
                "mode",
                default="listening",
                choices=("listening", "polling"),
                doc="listening: logical replication of PostgreSQL, or the binary log of MySQL and "
                "MariaDB. polling: any database.",
            ),
            Option("polling.column", doc="Column whose values grow, for polling."),
            Option("polling.interval", Kind.SECONDS, "1", doc="Interval of a look."),
            Option("cron.expression", doc="Times of looks instead, in UTC, for polling."),
            Option("wait.on.missed.record", Kind.SWITCH, "false",
                   doc="Whole numbers of polling.column have no gaps: wait for those that are "
                   "missing."),
            Option("missed.record.waiting.timeout", Kind.NUMBER, "-1",
                   doc="Seconds of the longest wait for one; -1: without an end."),
            Option("database.server.id", Kind.NUMBER,
                   doc="Number as a replica of MySQL; one of the instance by default."),
            *ignored(
                "jdbc.driver.name", "pool.properties", "connector.properties",
                "database.server.name", "plugin.name",
            ),
            *SOURCE,
        ),
        "mesh.receiver.types.cdc_source:CdcSource",
        Guarantee.EXACTLY_ONCE,
        "MySQL and MariaDB need binlog_format=ROW. Polling misses deletes, and without "
        "wait.on.missed.record rows that become visible after one with a larger value.",
        ("operation",),
        reads_rows=True,
        objection=_cdc_objection,
        extra="rdbms",
        library="sqlalchemy",
    ),
)  # fmt: skip
