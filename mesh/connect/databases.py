"""Declarations of databases: the sink ``rdbms`` and the source ``cdc``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.connect.parts import SINK, SOURCE, ignored, required, secret
from mesh.connect.spec import Guarantee, Kind, Option, Role, Spec
from mesh.model.stored import name_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

_DOC: Final = "jdbc:postgresql://host/name, jdbc:mysql://host/name or jdbc:sqlite:file."
#: Databases whose log is read.
_LOGGED: Final = ("jdbc:postgresql:", "jdbc:mysql:", "jdbc:mariadb:")
_LOGIN: Final = (Option("username", doc="User of the login."), secret("password", "Password."))


def _sink_objection(given: Mapping[str, str]) -> str | None:
    return name_problem(given.get("table.name", ""))


def _cdc_objection(given: Mapping[str, str]) -> str | None:
    is_polling = given.get("mode", "listening").lower() == "polling"
    if is_polling and not given.get("polling.column"):
        return "mode='polling' needs polling.column"
    url = given.get("url", "")
    if not url and "datasource.name" in given:
        return (
            "the address of datasource.name is not known here: write url, or ref='..', a reference "
            "with url, username and password"
        )
    if not is_polling and url.startswith("jdbc:") and not url.startswith(_LOGGED):
        return (
            "mode='listening' is for PostgreSQL, MySQL and MariaDB; "
            "write mode='polling' and polling.column"
        )
    table = given.get("table.name", "")
    return name_problem(table.rpartition(".")[2])


SPECS: Final = (
    Spec(
        "rdbms",
        Role.SINK,
        "Inserts each event into a table; the position is in the transaction of the rows.",
        (
            Option("jdbc.url", is_required=True, is_secret=True, doc=_DOC),
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
            Option("url", is_required=True, is_secret=True, doc=_DOC),
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
                "jdbc.driver.name", "datasource.name", "pool.properties", "connector.properties",
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
