"""Statements of apps: ``rdbms:query`` and ``rdbms:cud`` in real databases, and what is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
import yaml

from mesh.connect.contract import NodeAccess
from mesh.model.stored import Backend
from mesh.model.types import Attribute, AttributeType
from mesh.receiver.checking import bound_app, check_app
from mesh.receiver.types.rdbms_call import value_as
from mesh.store import sources
from mesh.store.engine import engine_of
from mesh.testing.connectors import ConnectorScenario, conform, staged
from tests.support import databases
from tests.support.databases import PASSWORD, USER

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage
    from tests.support.databases import TestDatabase
    from tests.support.environment import Variables


pytestmark = pytest.mark.nats

QUERY = '''@App:name('{app}')
define stream S (country string, least int);
@info(name='cards')
from S[least >= 0]#rdbms:query('CARDS', 'name string, amount double, number long, paid bool',
    """select name, amount, number, paid from cards -- 'paid'?
       where country = ? and number >= ? order by number""", country, least + 1)
select country, name, amount, number, paid insert into Out;
'''
CUD = """@App:name('{app}')
define stream S (country string, more long);
@info(name='add')
from S#rdbms:cud('CARDS', 'update cards set number = number + ? where country = ?', more, country)
select country, numRecords insert into Out;
"""
_CARDS = (
    """create table cards (name varchar(20), country varchar(20), amount numeric(10, 2),
    number bigint primary key, paid boolean)""",
    """insert into cards values ('50% off?', 'LK', 12.5, 1, true), ('b', 'LK', null, 2, false),
    ('c', 'UK', 3, 3, true)""",
)
_numbers = itertools.count(1)
CHANGING = NodeAccess(changes_databases=True)


@pytest.fixture(
    params=[
        Backend.SQLITE,
        Backend.POSTGRESQL,
        pytest.param(Backend.MYSQL, marks=pytest.mark.extended),
    ]
)
def database(
    request: pytest.FixtureRequest, tmp_path: Path, environment: Variables
) -> TestDatabase:
    """A database with cards, which the settings name."""
    servers = {Backend.POSTGRESQL: "postgresql", Backend.MYSQL: "mariadb"}
    name = servers.get(request.param)
    running = None if name is None else request.getfixturevalue(name)
    found = databases.new_database(running, tmp_path, f"calls{next(_numbers)}")
    file = tmp_path / "sources.yaml"
    login = {"username": USER, "password": PASSWORD} if found.database.username else {}
    file.write_text(yaml.safe_dump({"CARDS": {"url": found.url, **login}}))
    environment[sources.SOURCES_VARIABLE] = str(file)
    with engine_of(found.database).begin() as connection:
        for statement in _CARDS:
            connection.execute(sa.text(statement))
    return found


async def play(stage: Stage, call: str, *events: dict[str, Any]) -> None:
    """Start the source and the sink of a call, and send it what its query would."""
    await stage.until_running(stage.start(f"receiver-{call}_rows"))
    stage.start(f"sink-{call}_call")
    await stage.publish(f"{call}_call", *events)


async def found(stage: Stage, stream: str, count: int) -> list[dict[str, Any]]:
    async def enough() -> bool:
        return len(await stage.events(stream)) >= count

    await stage.until(f"{count} rows", enough)
    return await stage.events(stream)


async def entries(stage: Stage, count: int) -> list[str]:
    async def enough() -> bool:
        return len(await stage.errors()) >= count

    await stage.until(f"{count} entries", enough)
    return [one["reason"] for one in await stage.errors()]


def asked(country: str, least: int) -> dict[str, Any]:
    return {"country": country, "least": least, "parameter_4": least + 1}


async def test_a_query_gives_an_event_for_each_row_of_its_statement(
    nats_server: NatsServer, database: TestDatabase
) -> None:
    async with staged(nats_server.url, QUERY.replace("{app}", "Cards")) as stage:
        await play(stage, "cards", asked("LK", 0), asked("none", 0), asked("LK", 1))
        rows = await found(stage, "cards_rows", 3)
        first = {"country": "LK", "least": 0, "name": "50% off?", "amount": 12.5, "number": 1}
        second = {"country": "LK", "name": "b", "amount": None, "number": 2, "paid": False}
        assert rows == [first | {"paid": True}, second | {"least": 0}, second | {"least": 1}]


async def test_a_query_changes_nothing(nats_server: NatsServer, database: TestDatabase) -> None:
    if database.database.backend is not Backend.POSTGRESQL:
        pytest.skip("others have no query that changes rows")
    sly = """@App:name('Sly') define stream S (n int);
    @info(name='sly') from S#rdbms:query('CARDS', 'name string',
    'with gone as (delete from cards returning name) select name from gone')
    select name insert into Out;"""
    async with staged(nats_server.url, sly, CHANGING) as stage:
        await play(stage, "sly", {"n": 1})
        await stage.until("the refusal", lambda: _said(stage, "read-only transaction"))
    assert database.rows("select count(*) from cards") == [(3,)]


def _said(stage: Stage, word: str) -> bool:
    return any(word in (d.error or "") for r in stage.reports for d in r.connectors)


async def test_cud_changes_rows_and_tells_their_number(
    nats_server: NatsServer, database: TestDatabase
) -> None:
    async with staged(nats_server.url, CUD.replace("{app}", "Add"), CHANGING) as stage:
        events = [{"country": one, "more": 10} for one in ("LK", "none", "UK")]
        await play(stage, "add", *events)
        rows = await found(stage, "add_rows", 3)
        assert [(one["country"], one["numRecords"]) for one in rows] == [
            ("LK", 2), ("none", 0), ("UK", 1),
        ]  # fmt: skip
        # An event that the database refuses is recorded, and the next one is executed.
        await stage.publish(
            "add_call", {"country": "LK", "more": 9223372036854775807}, {"country": "UK", "more": 1}
        )
        assert len(await entries(stage, 1)) == 1
        assert (await found(stage, "add_rows", 4))[-1]["numRecords"] == 1
    assert database.rows("select number from cards order by number") == [(11,), (12,), (14,)]


async def test_cud_is_off_by_default(nats_server: NatsServer, database: TestDatabase) -> None:
    async with staged(nats_server.url, CUD.replace("{app}", "Off")) as stage:
        stage.start("sink-add_call")
        await stage.until(
            "the reason",
            lambda: (
                any("may change a database" in str(r.error) for r in stage.reports)
                or _said(stage, "may change a database")
            ),
        )
    assert database.rows("select number from cards order by number") == [(1,), (2,), (3,)]


async def test_a_check_logs_in_to_the_database_of_a_statement(
    nats_server: NatsServer, database: TestDatabase
) -> None:
    text = CUD.replace("{app}", "Checked")
    async with staged(nats_server.url, text, CHANGING) as stage:
        changing = await check_app(bound_app(text), stage.environment)
        reading = await check_app(
            bound_app(text.replace("'CARDS'", "'OTHER'")),
            replace(stage.environment, access=NodeAccess(changes_databases=True)),
        )
        off = await check_app(bound_app(text), replace(stage.environment, access=NodeAccess()))
    assert [one.name for one in changing] == ["sink rdbms-call", "source rdbms-call-response"]
    assert [one.problem for one in changing] == ["", ""]
    assert 'there is no data source "OTHER"' in reading[0].problem
    assert "may change a database" in off[0].problem


@pytest.mark.slow
async def test_a_large_answer_comes_in_several_messages(
    nats_server: NatsServer, database: TestDatabase
) -> None:
    text = """@App:name('Large') define stream S (n int);
    @info(name='all') from S#rdbms:query('CARDS', 'c string, n1 int, n2 int',
    'select a.country, a.number, b.number from many a, many b', true) select * insert into Out;"""
    with engine_of(database.database).begin() as connection:
        connection.execute(sa.text("create table many (country varchar(80), number int)"))
        values = ", ".join(f"('{'x' * 80}', {n})" for n in range(150))
        connection.execute(sa.text(f"insert into many values {values}"))
    async with staged(nats_server.url, text) as stage:
        await play(stage, "all", {"n": 1})
        rows = await found(stage, "all_rows", 150 * 150)
        assert {(one["n1"], one["n2"]) for one in rows} == set(
            itertools.product(range(150), repeat=2)
        )
        assert len(rows) == 150 * 150
        with engine_of(database.database).begin() as connection:
            connection.execute(sa.text("delete from many"))
        # As it was asked for with "true".
        await stage.publish("all_call", {"n": 2})
        rows = await found(stage, "all_rows", 150 * 150 + 1)
        assert rows[-1] == {"n": 2, "c": None, "n1": None, "n2": None}


@pytest.mark.thorough
async def test_a_call_is_whole_whenever_its_host_ends(
    nats_server: NatsServer, database: TestDatabase, tmp_path: Path
) -> None:
    """Rows are stored once; a statement that changes rows is executed at least once."""

    async def drive(stage: Stage) -> None:
        stage.environment, own = stage.calm, stage.environment
        stage.start("receiver-cards_rows")
        stage.environment = own
        await stage.publish("cards_call", asked("LK", 0), asked("UK", 1), asked("LK", 1))

    async def outcome(stage: Stage) -> list[Any]:
        return [(one["least"], one["number"]) for one in await stage.events("cards_rows")]

    scenario = ConnectorScenario(
        QUERY, "sink-cards_call", drive, outcome, lambda rows: len(rows) >= 4
    )
    moments = await conform(nats_server.url, scenario, tmp_path)
    assert {"before write", "after write", "after store a position"} <= set(moments)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("string", Decimal("1.50"), "1.50"),
        ("string", True, "true"),
        ("int", Decimal(5), 5),
        ("int", 2**31, None),
        ("long", 2.5, None),
        ("long", float("nan"), None),
        ("double", Decimal("0.1"), 0.1),
        ("bool", 1, True),
        ("bool", 2, None),
        ("string", b"x", None),
        ("int", "5", None),
    ],
)
def test_values_have_the_types_of_the_columns(kind: str, value: Any, expected: Any) -> None:
    column = Attribute("a", AttributeType(kind))
    if expected is None:
        with pytest.raises(ValueError, match='column "a"'):
            value_as(column, value)
    else:
        assert value_as(column, value) == expected
