"""Rows into databases with their position, and changes of tables out of them.

The file is longer than 400 lines because both directions use the same databases and helpers.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from mesh.connect.contract import Context, NodeAccess, Record, UnavailableError
from mesh.errors import MeshError
from mesh.model.stored import Backend
from mesh.receiver.types.cdc_source import CdcSource
from mesh.receiver.types.pg_changes import lsn_of
from mesh.receiver.types.polling import Polling, loaded, stored
from mesh.receiver.types.rdbms_sink import RdbmsSink, lengths_of
from mesh.store import sources
from mesh.store.engine import engine_of
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support import databases
from tests.support.connectors import first_position, staged
from tests.support.databases import PASSWORD, USER

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.databases import DatabaseServer, TestDatabase

pytestmark = pytest.mark.nats

APP = """@App:name('{app}')
SOURCE define stream S (id long, k string);
SINK define stream T (id long, k string, v double, ok bool);
from S select id, k, 0.5 as v, true as ok insert into T;
"""
_numbers = itertools.count(1)


@pytest.fixture(
    params=[
        Backend.SQLITE,
        Backend.POSTGRESQL,
        pytest.param(Backend.MYSQL, marks=pytest.mark.extended),
    ]
)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> TestDatabase:
    """A new database of each kind."""
    servers = {Backend.POSTGRESQL: "postgresql", Backend.MYSQL: "mariadb"}
    name = servers.get(request.param)
    running = None if name is None else request.getfixturevalue(name)
    return databases.new_database(running, tmp_path, f"door{next(_numbers)}")


def sink(database: TestDatabase, table: str = "Rows") -> str:
    given = f"jdbc.url='{database.url}', table.name='{table}'" + login(database)
    return f"@sink(type='rdbms', {given}, field.length='k:20', @map(type='keyvalue'))"


def source(database: TestDatabase, table: str, more: str) -> str:
    given = f"url='{database.url}', table.name='{table}', polling.interval='20 ms'" + login(
        database
    )
    return f"@source(type='cdc', {given}, {more}, @map(type='keyvalue'))"


def login(database: TestDatabase) -> str:
    return f", username='{USER}', password='{PASSWORD}'" if database.database.username else ""


def app(name: str, *, source: str = "", sink: str = "") -> str:
    found = APP.replace("SOURCE", source).replace("SINK", sink)
    return found.replace("{app}", name) if name else found


def execute(database: TestDatabase, *statements: str) -> None:
    with engine_of(database.database).begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {"id": number, "k": f"k{number}", "v": number / 2, "ok": True} | changes


async def test_databases_of_the_settings_are_named(
    nats_server: NatsServer,
    database: TestDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "sources.yaml"
    given = {"username": USER, "password": PASSWORD} if database.database.username else {}
    file.write_text(json.dumps({"SHOP": {"url": database.url, **given}}))
    monkeypatch.setenv(sources.SOURCES_VARIABLE, str(file))
    execute(database, "create table changes (id bigint primary key, k varchar(20))")
    text = app(
        "Named",
        source="""@source(type='cdc', datasource.name='SHOP', table.name='changes',
        mode='polling', polling.column='id', polling.interval='20 ms', @map(type='keyvalue'))""",
        sink="@sink(type='rdbms', datasource='SHOP', table.name='made', @map(type='keyvalue'))",
    )
    async with staged(nats_server, text) as stage:
        stage.start("receiver-S")
        await first_position(stage, b"last")
        execute(database, "insert into changes values (1, 'x')")
        outbox = stage.start("sink-T")
        await stage.publish("T", row(2))

        async def both() -> bool:
            return bool(await stage.events("S")) and outbox._counts()["events_out"] == 1

        await stage.until("both", both)
        assert await stage.events("S") == [{"id": 1, "k": "x"}]
    assert len(database.rows("select * from made")) == 1


async def test_rows_are_inserted_and_those_that_a_table_refuses_recorded(
    nats_server: NatsServer, database: TestDatabase, tmp_path: Path
) -> None:
    quote = "`" if database.database.backend is Backend.MYSQL else '"'
    execute(
        database,
        'create table "Keyed" (id bigint primary key, k varchar(20))'.replace('"', quote),
    )
    text = app("Rows", sink=sink(database) + sink(database, "Keyed"))
    text = text.replace("keyvalue'))@sink", "keyvalue'))\n@sink")
    keyed = text.rpartition("@map(type='keyvalue')")
    text = keyed[0] + "@map(type='keyvalue', @payload(id='id', k='k'))" + keyed[2]

    async with staged(nats_server, text, NodeAccess((str(tmp_path),))) as stage:
        await stage.publish("T", row(1), row(2, v=None, ok=None), row(1, k="again"), row(3))
        first, second = stage.start("sink-T"), stage.start("sink-T-2")
        await stage.until("4 rows", lambda: first._counts()["events_out"] == 4)
        (entry,) = await stage.until("the doubled key", stage.errors)
        assert entry["connector"] == "sink rdbms"
        await stage.until("3 rows", lambda: second._counts()["events_out"] == 3)
    query = 'select id, k, v, ok from "Rows" order by id, k'.replace('"', quote)
    found = [(i, k, v, ok if ok is None else bool(ok)) for i, k, v, ok in database.rows(query)]
    assert found == [
        (1, "again", 0.5, True), (1, "k1", 0.5, True), (2, "k2", None, None), (3, "k3", 1.5, True),
    ]  # fmt: skip
    query = 'select id, k from "Keyed" order by id'.replace('"', quote)
    assert database.rows(query) == [(1, "k1"), (2, "k2"), (3, "k3")]
    assert {number for (number,) in database.rows("select position from mesh_marker")} == {4}


def test_rows_are_inserted_exactly_once(nats_server: NatsServer, tmp_path: Path) -> None:
    database = databases.new_database(None, tmp_path, "exact")
    text = app("", sink=sink(database, "{app}"))

    async def send(stage: Stage) -> None:
        await stage.publish("T", row(1), row(2))
        await stage.publish("T", row(3))

    async def written(stage: Stage) -> list[int]:
        def read() -> list[int]:
            try:
                return [n for (n,) in database.rows(f'select id from "{stage.spec.name}"')]
            except sa.exc.OperationalError:
                return []

        return await asyncio.to_thread(read)

    use = ConnectorScenario(
        text, "sink-T", send, written, lambda found: len(found) >= 3,
        access=lambda _: NodeAccess((str(tmp_path),)),
    )  # fmt: skip
    moments = asyncio.run(conform(nats_server.url, use, tmp_path))
    assert {"before write", "after write", "after store a position"} <= set(moments)


async def test_a_replayed_event_leaves_the_position_and_an_earlier_epoch_writes_nothing(
    tmp_path: Path,
) -> None:
    options = {"jdbc.url": f"jdbc:sqlite:{tmp_path}/replay.db", "table.name": "T"}
    context = Context(
        "a", "T", options, NodeAccess((str(tmp_path),)), producer="p",
        attributes=(("id", "long"),), epoch=2,
    )  # fmt: skip

    sink, other = RdbmsSink(), RdbmsSink()
    try:
        await sink.open(context, None)
        await sink.write([Record("k", b'{"id":1}', sequence=5)])
        await sink.write([Record("k", b'{"id":2}')])
        assert sink.position == 5
        with pytest.raises(UnavailableError, match="epoch 2"):
            await other.open(dataclasses.replace(context, epoch=1), None)
        await other.open(dataclasses.replace(context, epoch=3), None)
        assert other.position == 5
        with pytest.raises(ConnectionResetError, match="later epoch"):
            await sink.write([Record("k", b'{"id":3}', sequence=6)])
    finally:
        await sink.close()
        await other.close()


def test_rows_of_a_table_are_polled_exactly_once(nats_server: NatsServer, tmp_path: Path) -> None:
    database = databases.new_database(None, tmp_path, "polled")
    for number in range(40):
        execute(
            database,
            f'create table "Run{number}" (id integer primary key, k text)',
            f"insert into \"Run{number}\" values (1, 'old')",
        )
    text = app("", source=source(database, "{app}", "mode='polling', polling.column='id'"))

    async def insert(stage: Stage) -> None:
        # After its first position: earlier rows are not its own.
        name = stage.spec.name
        await first_position(stage, b'"last":1')
        values = ", ".join(f"({n}, 'k{n}')" for n in range(2, 6))
        await asyncio.to_thread(execute, database, f'insert into "{name}" values {values}')

    async def read(stage: Stage) -> list[int]:
        return [event["id"] for event in await stage.events("S")]

    use = ConnectorScenario(
        text, "receiver-S", insert, read, lambda found: len(found) >= 4,
        access=lambda _: NodeAccess((str(tmp_path),)),
    )  # fmt: skip
    moments = asyncio.run(conform(nats_server.url, use, tmp_path))
    assert {"after read", "after store a position", "after committed"} <= set(moments)


@pytest.mark.parametrize("limit_s", [-1, 0])
def test_rows_that_are_missing_are_waited_for(tmp_path: Path, limit_s: int) -> None:
    database = databases.new_database(None, tmp_path, "gaps")
    execute(database, 'create table "Rows" (id integer, k text)')

    def insert(*ids: int) -> None:
        execute(database, f'insert into "Rows" values {", ".join(f"({n}, 0)" for n in ids)}')

    options = {"table.name": "Rows", "polling.column": "id", "wait.on.missed.record": True}
    insert(7)
    engine = engine_of(database.database)
    with engine.connect() as connection:
        own = {**options, "missed.record.waiting.timeout": limit_s}
        polling = Polling(sa, connection, own)
        assert polling.begin({}) == {"last": 7}

        def read() -> list[int]:
            found = []
            while (batch := polling.read()) is not None:
                found += [json.loads(payload)["id"] for payload in batch.payloads]
            return found

        insert(8, 8, 10, 11, 13)
        if limit_s == 0:
            assert read() == [8, 8, 10, 11, 13]
            return
        assert read() == [8, 8]
        insert(12, 9)
        assert read() == [9, 10, 11, 12, 13]
        with pytest.raises(ValueError, match="whole numbers"):
            Polling(sa, connection, {**options, "polling.column": "k"})


async def test_more_rows_than_a_read_has_with_equal_times(
    nats_server: NatsServer, postgresql: DatabaseServer, tmp_path: Path
) -> None:
    database = databases.new_database(postgresql, tmp_path, f"door{next(_numbers)}")
    execute(database, 'create table "Many" (id bigint, k varchar(9), at timestamp)')
    text = app("Many", source=source(database, "Many", "mode='polling', polling.column='at'"))

    async with staged(nats_server, text) as stage:
        instance = stage.start("receiver-S")
        await stage.until_running(instance)
        values = ", ".join(f"({n}, 'x', '2026-01-01 00:00:0{n // 1500}')" for n in range(4500))
        await asyncio.to_thread(execute, database, f'insert into "Many" values {values}')

        async def all_there() -> bool:
            return len(await stage.events("S")) >= 4500

        await stage.until("all rows", all_there)
        assert sorted(e["id"] for e in await stage.events("S")) == list(range(4500))


def listening(database: TestDatabase) -> str:
    text = app("", source=source(database, "{app}", "operation='insert,update,delete'"))
    text = text.replace("S (id long, k string)", "S (id long, k string, what string, old string)")
    return text.replace(
        "@map(type='keyvalue')",
        "@map(type='json', fail.on.missing.attribute='false', @attributes(id='id', k='k',"
        " what='trp:operation', old='before_k'))",
    )


STEPS = (
    "insert into \"{app}\" values (1, 'a', 1.5, true), (2, 'b', null, null)",
    "update \"{app}\" set k = 'c' where id = 1",
    'delete from "{app}" where id = 2',
    "insert into other values (7)",
    "insert into \"{app}\" values (3, 'd', 2, false)",
)
CHANGES = [
    (1, "a", "insert", None), (2, "b", "insert", None), (1, "c", "update", "a"),
    (None, None, "delete", "b"), (3, "d", "insert", None),
]  # fmt: skip


async def changes(stage: Stage) -> list[tuple[Any, ...]]:
    found = await stage.events("S")
    return [tuple(event[name] for name in ("id", "k", "what", "old")) for event in found]


async def change(database: TestDatabase, stage: Stage) -> None:
    """Wait for the slot, and change the table."""

    async def has_slot() -> bool:
        like = f"mesh_{stage.spec.name.lower()}_s_%"
        # The slot is there before its start is found.
        where = f"slot_name like '{like}' and confirmed_flush_lsn is not null"
        query = f"select 1 from pg_replication_slots where {where}"
        return bool(await asyncio.to_thread(database.rows, query))

    await stage.until("its slot", has_slot)
    for step in STEPS:
        await asyncio.to_thread(execute, database, step.replace("{app}", stage.spec.name))


def table(name: str) -> tuple[str, str]:
    return (
        f'create table "{name}" (id bigint primary key, k text, v numeric, ok boolean)',
        f'alter table "{name}" replica identity full',
    )


async def test_changes_of_a_table_are_read_from_the_log(
    nats_server: NatsServer, postgresql: DatabaseServer, tmp_path: Path
) -> None:
    database = databases.new_database(postgresql, tmp_path, f"door{next(_numbers)}")
    execute(database, "create table other (id bigint)", *table("Log"))

    async with staged(nats_server, listening(database).replace("{app}", "Log")) as stage:
        stage.start("receiver-S")
        await change(database, stage)

        async def complete() -> bool:
            return len(await changes(stage)) >= 5

        await stage.until("all changes", complete)
        assert await changes(stage) == CHANGES

        # The server writes to its log on its own, too.
        ((end,),) = database.rows("select pg_current_wal_lsn()::text")

        def is_confirmed() -> bool:
            where = f"where confirmed_flush_lsn >= '{end}'::pg_lsn - 2000"
            return bool(database.rows(f"select 1 from pg_replication_slots {where}"))

        await stage.until("the slot is moved", is_confirmed)


@pytest.mark.extended
def test_changes_from_the_log_are_exact(
    nats_server: NatsServer, postgresql: DatabaseServer, tmp_path: Path
) -> None:
    database = databases.new_database(postgresql, tmp_path, f"door{next(_numbers)}")
    execute(database, "create table other (id bigint)")
    for number in range(100):
        execute(database, *table(f"Run{number}"))

    async def drive(stage: Stage) -> None:
        await change(database, stage)

    async def outcome(stage: Stage) -> list[tuple[Any, ...]]:
        found = await changes(stage)
        if len(found) >= len(CHANGES):
            # The server has ten of them.
            drop = (
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots"
                f" where not active and slot_name not like 'mesh_{stage.spec.name.lower()}_s_%'"
            )
            await asyncio.to_thread(database.rows, drop)
        return found

    use = ConnectorScenario(
        listening(database), "receiver-S", drive, outcome, lambda found: len(found) >= len(CHANGES)
    )
    moments = asyncio.run(conform(nats_server.url, use, tmp_path))
    assert {"before committed", "after committed", "after store a position"} <= set(moments)


def test_values_of_positions_and_options() -> None:
    for value in (7, "x", None, decimal.Decimal("1.50"), datetime.date(2026, 1, 2),
                  datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC)):  # fmt: skip
        assert loaded(stored(value)) == value
    assert lsn_of((0x16 << 32) + 0xB3748) == "16/B3748"
    assert lengths_of("a:100, b:20") == {"a": 100, "b": 20}
    with pytest.raises(ValueError, match="a:100"):
        lengths_of("a")


async def test_a_check_creates_nothing(postgresql: DatabaseServer, tmp_path: Path) -> None:
    database = databases.new_database(postgresql, tmp_path, f"door{next(_numbers)}")
    given = {"username": USER, "password": PASSWORD, "table.name": "Missing"}
    inside = Context("a", "S", given | {"jdbc.url": database.url, "url": database.url})

    await RdbmsSink().check(inside)
    with pytest.raises(UnavailableError, match="Missing"):
        await CdcSource().check(inside)
    closed = dataclasses.replace(inside, access=NodeAccess(egress=("h:1",)))
    with pytest.raises(MeshError, match="may not connect"):
        await RdbmsSink().check(closed)
    assert database.rows("select tablename from pg_tables where schemaname = 'public'") == []


async def test_a_marker_ahead_of_its_input_is_data_loss(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    database = databases.new_database(None, tmp_path, "ahead")
    text = app("Ahead", sink=sink(database))
    async with staged(nats_server, text, NodeAccess((str(tmp_path),))) as stage:
        await stage.publish("T", row(1))
        outbox = stage.start("sink-T")
        await stage.until("a row", lambda: outbox._counts()["events_out"] == 1)
        await outbox.stop()
        execute(database, "update mesh_marker set position = 9000000000000000")
        await stage.publish("T", row(2))
        outbox = stage.start("sink-T")
        await stage.until("its error", lambda: "DATA-LOSS" in str(outbox.status()))
        await outbox.stop()
        execute(database, "update mesh_marker set position = 1")
        outbox = stage.start("sink-T")
        await stage.until("the other", lambda: outbox._counts()["events_out"] == 1)
    assert database.rows('select id from "Rows" order by id') == [(1,), (2,)]


async def test_a_stream_gives_its_sink_no_reserved_table(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    database = databases.new_database(None, tmp_path, "reserved")
    written = sink(database).replace(", table.name='Rows'", "")
    text = app("Reserved", sink=written).replace("stream T ", "stream MESH_Marker ")
    text = text.replace("insert into T", "insert into MESH_Marker")
    async with staged(nats_server, text, NodeAccess((str(tmp_path),))) as stage:
        await stage.publish("MESH_Marker", row(1))
        outbox = stage.start("sink-MESH_Marker")
        await stage.until("its error", lambda: "own tables" in str(outbox.status()))
