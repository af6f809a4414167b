"""Apps with sources and sinks of databases."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from mesh.model.stored import Backend
from mesh.store.engine import engine_of
from tests.support import databases
from tests.support.databases import PASSWORD, USER

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.testing.connectors import Stage
    from tests.support.databases import TestDatabase

APP = """@App:name('{app}')
SOURCE define stream S (id long, k string);
SINK define stream T (id long, k string, v double, ok bool);
from S select id, k, 0.5 as v, true as ok insert into T;
"""
numbers = itertools.count(1)


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
    return databases.new_database(running, tmp_path, f"door{next(numbers)}")


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


async def changes(stage: Stage) -> list[tuple[Any, ...]]:
    found = await stage.events("S")
    return [tuple(event[name] for name in ("id", "k", "what", "old")) for event in found]


def table(name: str) -> tuple[str, str]:
    return (
        f'create table "{name}" (id bigint primary key, k text, v numeric, ok boolean)',
        f'alter table "{name}" replica identity full',
    )
