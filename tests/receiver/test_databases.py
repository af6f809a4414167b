"""Rows into databases with their position, and changes of tables out of them.

The file is longer than 400 lines because both directions use the same databases and helpers.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import json
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from mesh.connect.contract import Context, NodeAccess, Record, UnavailableError
from mesh.errors import MeshError
from mesh.model.stored import Backend
from mesh.receiver.types.cdc_source import CdcSource
from mesh.receiver.types.pg_changes import lsn_of
from mesh.receiver.types.polling import loaded, stored
from mesh.receiver.types.rdbms_sink import RdbmsSink, lengths_of
from mesh.store import sources
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support import databases
from tests.support.connectors import first_position, staged
from tests.support.database_apps import app, database, execute, numbers, sink
from tests.support.databases import PASSWORD, USER

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.databases import DatabaseServer, TestDatabase
    from tests.support.environment import Variables


__all__ = ("database",)

pytestmark = pytest.mark.nats


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {"id": number, "k": f"k{number}", "v": number / 2, "ok": True} | changes


async def test_databases_of_the_settings_are_named(
    nats_server: NatsServer,
    database: TestDatabase,
    tmp_path: Path,
    environment: Variables,
) -> None:
    file = tmp_path / "sources.yaml"
    given = {"username": USER, "password": PASSWORD} if database.database.username else {}
    file.write_text(json.dumps({"SHOP": {"url": database.url, **given}}))
    environment[sources.SOURCES_VARIABLE] = str(file)
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
            return bool(await stage.events("S")) and outbox.status().events_out == 1

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
        await stage.until("4 rows", lambda: first.status().events_out == 4)
        (entry,) = await stage.until("the doubled key", stage.errors)
        assert entry["connector"] == "sink rdbms"
        await stage.until("3 rows", lambda: second.status().events_out == 3)
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


def test_values_of_positions_and_options() -> None:
    for value in (7, "x", None, decimal.Decimal("1.50"), datetime.date(2026, 1, 2),
                  datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC)):  # fmt: skip
        assert loaded(stored(value)) == value
    assert lsn_of((0x16 << 32) + 0xB3748) == "16/B3748"
    assert lengths_of("a:100, b:20") == {"a": 100, "b": 20}
    with pytest.raises(ValueError, match="a:100"):
        lengths_of("a")


async def test_a_check_creates_nothing(postgresql: DatabaseServer, tmp_path: Path) -> None:
    database = databases.new_database(postgresql, tmp_path, f"door{next(numbers)}")
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
        await stage.until("a row", lambda: outbox.status().events_out == 1)
        await outbox.stop()
        execute(database, "update mesh_marker set position = 9000000000000000")
        await stage.publish("T", row(2))
        outbox = stage.start("sink-T")
        await stage.until("its error", lambda: "DATA-LOSS" in str(outbox.status()))
        await outbox.stop()
        execute(database, "update mesh_marker set position = 1")
        outbox = stage.start("sink-T")
        await stage.until("the other", lambda: outbox.status().events_out == 1)
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
