"""Source ``cdc`` with the binary log of a real MariaDB."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from mesh.connect.contract import Context, UnavailableError
from mesh.errors import MeshError
from mesh.mapping.row_source import EVERY, REFUSED
from mesh.plan.build import plan
from mesh.receiver.types.cdc_source import CdcSource
from mesh.store.engine import engine_of
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support import databases
from tests.support.connectors import first_position
from tests.support.databases import PASSWORD, USER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.databases import DatabaseServer, TestDatabase

APP = f"""@App:name('{{app}}')
@source(type='cdc', url='URL', username='{USER}', password='{PASSWORD}', table.name='{{app}}',
        operation='insert,update,delete', polling.interval='20 ms',
        @map(type='json', fail.on.missing.attribute='false',
             @attributes(id='id', k='k', what='trp:operation', old='before_k')))
define stream S (id long, k string, what string, old string);
define stream T (id long);
from S select id insert into T;
"""
_numbers = itertools.count(1)


@pytest.fixture
def database(mariadb: DatabaseServer, tmp_path: Path) -> TestDatabase:
    pytest.importorskip("pymysqlreplication")
    return databases.new_database(mariadb, tmp_path, f"log{next(_numbers)}")


def execute(database: TestDatabase, *statements: str) -> None:
    """Execute statements in one transaction."""
    with engine_of(database.database).begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def context(database: TestDatabase, operations: str = "insert,update,delete") -> Context:
    given = {
        "url": database.url, "username": USER, "password": PASSWORD, "table.name": "Items",
        "operation": operations, "mode": "listening",
    }  # fmt: skip
    return Context("a", "S", given, instance="a-1")


class Reader:
    """A source that a test opens, reads and closes."""

    def __init__(self, given: Context) -> None:
        self.given = given
        self.position: Mapping[str, Any] | None = None

    def changes(self) -> list[tuple[str, dict[str, Any]]]:
        """The changes that a new source reads after the last position: none for the first one."""

        async def read() -> list[tuple[str, dict[str, Any]]]:
            source, found = CdcSource(), list[tuple[str, dict[str, Any]]]()
            try:
                await source.open(self.given, self.position)
                while (batch := await source.read()) is not None:
                    self.position = json.loads(json.dumps(batch.position))
                    operations = [str(p["operation"]) for p in batch.properties or ()]
                    events = map(json.loads, batch.payloads)
                    found += list(zip(operations, events, strict=True))
                return found
            finally:
                await source.close()

        return asyncio.run(read())


@pytest.mark.slow
def test_changes_have_the_values_of_the_table(database: TestDatabase) -> None:
    execute(
        database,
        "create table Items (id bigint unsigned, n tinyint unsigned, v decimal(9, 3), k varchar(9),"
        " l varchar(9) character set latin1, b varbinary(4), e enum('x', 'y''z'), s set('p', 'q'),"
        " d date, t time, ok bool)",
        "create table Other (id int)",
    )
    reader = Reader(context(database))
    execute(database, "insert into Items (id) values (0)")
    assert reader.changes() == [], "it begins at the present end"
    values = "18446744073709551615, 200, 1.5, 'aé', 'é', x'ff00', 'y''z', 'p,q', '2026-01-02'"
    execute(
        database,
        f"insert into Items values ({values}, '-01:02:03', true)",
        "insert into Other values (1)",
    )
    row = {
        "id": 18446744073709551615, "n": 200, "v": 1.5, "k": "aé", "l": "é", "b": "ff00",
        "e": "y'z", "s": "p,q", "d": "2026-01-02", "t": "-01:02:03", "ok": 1,
    }  # fmt: skip
    assert reader.changes() == [("insert", row)]
    execute(database, "update Items set k = 'b' where n = 200")
    execute(database, "delete from Items where n = 200")
    before = {f"before_{name}": value for name, value in row.items()}
    after = row | {"k": "b"}
    assert reader.changes() == [
        ("update", before | after),
        ("delete", {f"before_{name}": value for name, value in after.items()}),
    ]
    assert reader.changes() == []


@pytest.mark.slow
def test_what_a_transaction_has_undone_is_no_change(database: TestDatabase) -> None:
    execute(
        database,
        "create table Items (id int primary key, k int)",
        "create table Kept (id int) engine=myisam",
        "insert into Kept values (1)",
    )
    reader = Reader(context(database))
    assert reader.changes() == []
    # The log has all of it, since a table without transactions is in it.
    undone = "update Items, Kept set Items.k = 9, Kept.id = Kept.id + 1 where Items.id = 1"
    execute(
        database,
        "insert into Items values (1, 0)", "savepoint a", "insert into Items values (2, 0)",
        "savepoint `b c`", undone, "rollback to `b c`", "insert into Items values (3, 0)",
    )  # fmt: skip
    with engine_of(database.database).connect() as connection:
        connection.execute(sa.text("insert into Items values (4, 0)"))
        connection.execute(sa.text(undone))
        connection.rollback()
    assert database.rows("select id, k from Items order by id") == [(1, 0), (2, 0), (3, 0)]
    changes = [("insert", {"id": n, "k": 0}) for n in (1, 2, 3)]
    assert reader.changes() == changes


@pytest.mark.slow
def test_a_table_without_transactions_keeps_what_is_undone(database: TestDatabase) -> None:
    execute(
        database,
        "create table Items (id int primary key) engine=myisam", "create table Other (id int)",
        "insert into Items values (1)", "insert into Other values (1)",
    )  # fmt: skip
    reader = Reader(context(database))
    assert reader.changes() == []
    with engine_of(database.database).connect() as connection:
        connection.execute(sa.text("update Items, Other set Items.id = 2, Other.id = 2"))
        connection.rollback()
    assert reader.changes() == [("update", {"before_id": 1, "id": 2})]


@pytest.mark.slow
def test_a_position_outlives_new_files_new_columns_and_many_rows(database: TestDatabase) -> None:
    execute(database, "create table Items (id int) engine = myisam")
    execute(database, "create table Other (id int)")
    reader = Reader(context(database, "insert"))
    assert reader.changes() == []
    first = reader.position
    execute(database, "insert into Other values (1)")
    execute(database, "flush binary logs")
    assert reader.changes() == []
    assert reader.position != first, "the server may remove the log that it has read"
    execute(database, "insert into Items values (1)", "insert into Items values (2)")
    execute(database, "alter table Items add column k int")
    execute(database, "insert into Items values (3, 4)")
    execute(database, "update Items set k = 5")
    execute(database, "insert into Items select seq, 0 from seq_10_to_5009")
    found = [event for _, event in reader.changes()]
    assert [event["id"] for event in found] == [1, 2, 3, *range(10, 5010)]
    assert found[2] == {"id": 3, "k": 4}


@pytest.mark.slow
def test_a_source_that_was_away_refuses_changes_without_names(database: TestDatabase) -> None:
    execute(database, "create table Items (gone int, id int, v text)")
    reader = Reader(context(database, "insert"))
    assert reader.changes() == []
    execute(
        database,
        "insert into Items values (9, 1, 'a'), (9, 2, 'b')",
        "alter table Items drop column gone",
        "insert into Items values (3, 'c')",
    )
    found = [event for _, event in reader.changes()]
    assert [list(event.get(REFUSED, {}).values()) for event in found] == [[[EVERY]], [[EVERY]], []]
    assert found[2] == {"id": 3, "v": "c"}


@pytest.mark.slow
def test_a_log_that_can_not_be_read_on_is_named(database: TestDatabase) -> None:
    execute(database, "create table Items (id int)")
    reader = Reader(context(database))
    reader.changes()
    assert reader.position is not None
    good = reader.position
    for changed, reason in (
        ({"file": "log.999999"}, "the log can't be read"),
        ({"server": "another"}, "another server answers"),
    ):
        reader.position = {**good, **changed}
        with pytest.raises(UnavailableError, match=reason):
            reader.changes()
    execute(database, "set global binlog_format = 'MIXED'")
    try:
        reader.position = None
        with pytest.raises(UnavailableError, match="it needs binlog_format=ROW"):
            reader.changes()
    finally:
        execute(database, "set global binlog_format = 'ROW'")
    execute(database, "drop table Items")
    with pytest.raises(UnavailableError, match='no table "Items"'):
        reader.changes()


CHANGES = [
    (1, "a", "insert", None), (2, "b", "insert", None), (1, "c", "update", "a"),
    (None, None, "delete", "b"), (3, "d", "insert", None),
]  # fmt: skip


@pytest.mark.nats
@pytest.mark.thorough
def test_changes_from_the_binary_log_are_exact(
    nats_server: NatsServer, database: TestDatabase, tmp_path: Path
) -> None:
    execute(database, "create table other (id int)")
    for number in range(100):
        execute(database, f"create table Run{number} (id bigint primary key, k varchar(9))")

    async def drive(stage: Stage) -> None:
        name = stage.spec.name
        await first_position(stage, b'"file"')
        for step in (
            "insert into {} values (1, 'a'), (2, 'b')", "update {} set k = 'c' where id = 1",
            "delete from {} where id = 2", "insert into other values (7)",
            "insert into {} values (3, 'd')",
        ):  # fmt: skip
            await asyncio.to_thread(execute, database, step.format(name))

    async def outcome(stage: Stage) -> list[tuple[Any, ...]]:
        found = await stage.events("S")
        return [tuple(event[name] for name in ("id", "k", "what", "old")) for event in found]

    text = APP.replace("URL", database.url)
    use = ConnectorScenario(
        text, "receiver-S", drive, outcome, lambda found: len(found) >= len(CHANGES)
    )
    moments = asyncio.run(conform(nats_server.url, use, tmp_path))
    assert {"after read", "after store a position", "after committed"} <= set(moments)


def test_other_databases_have_no_log() -> None:
    text = APP.replace("{app}", "A")
    plan(text.replace("URL", "jdbc:mariadb://h/d"))
    with pytest.raises(MeshError, match="is for PostgreSQL, MySQL and MariaDB"):
        plan(text.replace("URL", "jdbc:sqlite:file"))
