"""Source ``cdc`` with the log of a real PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from mesh.testing.connectors import ConnectorScenario, Stage, conform
from tests.support import databases
from tests.support.connectors import staged
from tests.support.database_apps import app, changes, execute, numbers, source, table

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.databases import DatabaseServer, TestDatabase

pytestmark = pytest.mark.nats


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


async def test_changes_of_a_table_are_read_from_the_log(
    nats_server: NatsServer, postgresql: DatabaseServer, tmp_path: Path
) -> None:
    database = databases.new_database(postgresql, tmp_path, f"door{next(numbers)}")
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
    database = databases.new_database(postgresql, tmp_path, f"door{next(numbers)}")
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
