"""Sources of type ``cdc`` that tests open, and the events that they read."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

from mesh.connect.contract import Context, NodeAccess
from mesh.language.parser import parse_app
from mesh.plan.bind import bind
from mesh.plan.connectors import connector_of, make_mapper
from mesh.receiver.types.cdc_source import CdcSource
from mesh.store.engine import engine_of
from tests.support import databases
from tests.support.databases import PASSWORD, USER

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import DatabaseServer, TestDatabase

_numbers = itertools.count(1)
MODES = ("listening", "polling")
ACCESS = NodeAccess(("/",))


def execute(database: TestDatabase, *statements: str) -> None:
    """Execute statements, each in a transaction."""
    with engine_of(database.database).connect() as connection:
        for statement in statements:
            with connection.begin():
                connection.exec_driver_sql(statement.replace("%", "%%"))


class Case:
    """A table of a database, and sources that read it."""

    def __init__(self, database: TestDatabase) -> None:
        self.database = database

    def events(
        self, attributes: str, *changes: str, mapping: str = "type='keyvalue'", **options: str
    ) -> list[Any]:
        """The events of a new source after some changes; the reason of each that is refused."""
        given = {"table.name": "t", "polling.column": "id", "mode": "listening", **options}
        given = {name.replace("_", "."): value for name, value in given.items()}
        listed = ", ".join(f"{name}='{value}'" for name, value in given.items())
        text = (
            f"@App:name('A')\n@source(type='cdc', url='{self.database.url}', {listed},"
            f" @map({mapping}))\ndefine stream S ({attributes});\nfrom S select * insert into O;"
        )
        bound = bind(parse_app(text))
        ((name, annotation),) = bound.stream_annotations
        connector = connector_of(annotation)
        mapper = make_mapper(connector, bound.stream(name))
        login = {"url": self.database.url, "username": USER, "password": PASSWORD}
        values = {**given, **login, "polling.interval": 10}

        async def read() -> list[Any]:
            source, found = CdcSource(), list[Any]()
            context = Context("A", "S", values, ACCESS, instance="A-1")
            try:
                await source.open(context, None)
                assert await source.read() is not None, "its first position"
                execute(self.database, *changes)
                while (batch := await source.read()) is not None:
                    json.dumps(batch.position)
                    result = mapper.decode(list(batch.payloads), list(batch.properties or ()))
                    rows = zip(result.message.tolist(), result.rows.to_pylist(), strict=True)
                    every = {**dict(rows), **{at: reason for at, _, reason in result.errors}}
                    found += [every[at] for at in sorted(every)]
                    await source.committed(batch.position)
                return found
            finally:
                await source.close()
                await source.remove(context)

        return asyncio.run(read())


def new(running: DatabaseServer | None, directory: Path, settings: str = "") -> Case:
    """A new database, made with ``settings``."""
    name = f"values{next(_numbers)}"
    return Case(databases.new_database(running, directory, name, settings))
