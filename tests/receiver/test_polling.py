"""Source ``cdc`` that polls: exact, also with rows that are missing, and with equal times."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import orjson
import pytest
import sqlalchemy as sa

from mesh.connect.contract import NodeAccess, UnavailableError
from mesh.receiver.types.polling import Polling
from mesh.store.engine import engine_of
from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support import databases
from tests.support.connectors import first_position, staged
from tests.support.database_apps import app, database, execute, numbers, source

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.databases import DatabaseServer

__all__ = ("database",)

pytestmark = pytest.mark.nats


@pytest.mark.slow
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


def test_an_infinite_position_is_not_the_beginning_again(tmp_path: Path) -> None:
    database = databases.new_database(None, tmp_path, "infinite")
    execute(
        database,
        "create table t (at real, k text)",
        "insert into t values (1.5, 'a'), (9e999, 'b')",
    )
    with engine_of(database.database).connect() as connection:
        options = {"table.name": "t", "polling.column": "at"}
        first = Polling(sa, connection, options)
        position = json.loads(orjson.dumps(first.begin({})))
        later = Polling(sa, connection, options)
        later.begin(position)
        assert later.read() is None


def test_a_value_that_no_position_can_have_is_named_after_the_rows_before_it(
    tmp_path: Path,
) -> None:
    database = databases.new_database(None, tmp_path, "large")
    execute(database, "create table t (at text, n integer)", "insert into t values ('a', 1)")
    options = {"table.name": "t", "polling.column": "at"}
    with engine_of(database.database).connect() as connection:
        polling = Polling(sa, connection, options)
        assert polling.begin({}) == {"last": "a"}
        execute(
            database,
            "insert into t values ('b', 2), ('c', 3), ('c' || hex(zeroblob(300000)), 4), ('d', 5)",
        )
        batch = polling.read()
        assert batch is not None
        assert [json.loads(payload)["n"] for payload in batch.payloads] == [2, 3]
        with pytest.raises(UnavailableError, match='column "at" has a value of 600003 bytes'):
            polling.read()
        execute(database, "delete from t where n = 4")
        batch = polling.read()
        assert batch is not None
        assert [json.loads(payload)["n"] for payload in batch.payloads] == [5]


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
    database = databases.new_database(postgresql, tmp_path, f"door{next(numbers)}")
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
