"""Deploys of apps whose tables have columns of other types: refused, or told when they start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.receiver.checking import bound_app
from mesh.receiver.store_check import store_checks, store_problem
from mesh.store.sources import ACCESS_VARIABLE, SOURCES_VARIABLE
from tests.support import databases
from tests.support.agents import looking

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.agents import Cluster
    from tests.support.databases import DatabaseServer, TestDatabase
    from tests.support.environment import Variables


APP = """@App:name('Stored')
{store} @PrimaryKey('k') define table T (k string, v {type});
define stream S (k string, v {type});
{query}
"""
READ = "from S join T on T.k == S.k select S.k as k, T.v as v insert into Known;"
WRITE = "from S select k, v insert into T;"


@pytest.fixture
def database(postgresql: DatabaseServer, tmp_path: Path) -> TestDatabase:
    return databases.new_database(postgresql, tmp_path, "checked")


def created(database: TestDatabase, declared: str) -> None:
    from mesh.store.engine import engine_of

    with engine_of(database.database).connect() as connection, connection.begin():
        connection.exec_driver_sql('drop table if exists "T"')
        connection.exec_driver_sql(f'create table "T" (k varchar(20) primary key, v {declared})')


@pytest.mark.parametrize(
    ("declared", "attribute", "query", "detail"),
    [
        ("timestamptz", "string", READ + WRITE, None),
        ("bigint", "long", READ + WRITE, None),
        ("bigint", "int", READ, "bigint, and attribute \"v\" int; fitting: string or long or"),
        ("jsonb", "double", READ, "jsonb, and attribute \"v\" double; fitting: string."),
        ("point", "string", READ, None),
        ("point", "string", WRITE, "Only the database can test texts of point."),
        ("int generated always as (5) stored", "int", READ, None),
        ("int generated always as (5) stored", "int", WRITE, "The database computes it"),
    ],
)  # fmt: skip
def test_columns_are_compared_with_attributes(
    database: TestDatabase, declared: str, attribute: str, query: str, detail: str | None
) -> None:
    created(database, declared)
    text = APP.format(store=database.store(kept="false"), type=attribute, query=query)
    found = store_problem(text)
    if detail is None:
        assert found is None
        return
    assert found is not None
    assert found.code == "MESH-S146"
    assert detail in (found.detail or "")


def test_a_table_without_the_key_of_its_rows_is_read_only(database: TestDatabase) -> None:
    from mesh.store.engine import engine_of

    with engine_of(database.database).connect() as connection, connection.begin():
        connection.exec_driver_sql('create table "T" (k varchar(20), v int)')
        connection.exec_driver_sql('create unique index half on "T" (k) where v > 0')
    read, written = (
        APP.format(store=database.store(kept="false"), type="int", query=query)
        for query in (READ, WRITE)
    )
    assert store_problem(read) is None
    found = store_problem(written)
    assert found is not None
    assert found.code == "MESH-S142"
    assert 'table "T"' in found.message
    assert found.message.endswith("has no unique key of k")
    with engine_of(database.database).connect() as connection, connection.begin():
        connection.exec_driver_sql('alter table "T" add unique (k)')
    assert store_problem(written) is None


def test_a_table_that_is_missing_or_away_is_no_problem(database: TestDatabase) -> None:
    text = APP.format(store=database.store(), type="int", query=READ)
    assert store_problem(text) is None
    assert store_problem(text.replace(database.url, "jdbc:postgresql://127.0.0.1:1/x")) is None


@pytest.mark.nats
@pytest.mark.extended
async def test_a_deploy_is_refused_by_what_a_worker_finds(
    cluster: Cluster, database: TestDatabase
) -> None:
    created(database, "jsonb")
    text = APP.format(store=database.store(), type="long", query=READ)
    async with looking(cluster) as eye:
        cluster.worker("w1")
        await eye.until("a worker", lambda: "w1" in set(eye.ready()), 40)
        with pytest.raises(MeshError, match="MESH-S146") as caught:
            await eye.service.deploy(text)
        assert "fitting: string" in (caught.value.detail or "")
        assert not eye.view.snapshot().apps


def test_a_data_source_that_no_settings_name_is_a_problem(environment: Variables) -> None:
    environment.pop(SOURCES_VARIABLE, None)
    text = APP.format(store="@store(type='rdbms', datasource='SHOP')", type="int", query=READ)
    found = store_problem(text)
    assert found is not None
    assert found.code == "MESH-S145"
    assert "stores.sources_file" in (found.hint or "")


def test_each_store_has_a_result(environment: Variables, tmp_path: Path) -> None:
    file = tmp_path / "sources.yaml"
    file.write_text(f"SHOP: {{url: 'jdbc:sqlite:{tmp_path}/shop.db'}}\n")
    environment[SOURCES_VARIABLE] = str(file)
    environment.pop(ACCESS_VARIABLE, None)
    text = """@App:name('Stored')
        define stream S (k string, v int);
        @store(type='rdbms', datasource='SHOP') @PrimaryKey('k') define table T (k string, v int);
        @store(type='rdbms', datasource='shop') @PrimaryKey('k') define table U (k string, v int);
        define table Plain (k string, v int);
        @store(type='rdbms', datasource='SHOP')
        define aggregation A from S select k, sum(v) as t group by k aggregate every min, hour;
        from S insert into T;
        """
    found = store_checks(bound_app(text), first=4)
    assert [(one.number, one.stream, one.name) for one in found] == [
        (4, "T", "store rdbms"),
        (5, "U", "store rdbms"),
        (6, "A", "store rdbms"),
    ]
    assert [bool(one.problem) for one in found] == [False, True, False]
    assert 'there is no data source "shop"' in found[1].problem
    assert "Known here: SHOP" in found[1].problem
    assert found[0].endpoint == f"sqlite:{tmp_path}/shop.db"


@pytest.mark.slow
@pytest.mark.nats
async def test_a_deploy_with_an_unknown_data_source_is_refused(cluster: Cluster) -> None:
    text = APP.format(store="@store(type='rdbms', datasource='SHOP')", type="int", query=WRITE)
    async with looking(cluster) as eye:
        cluster.worker("w1")
        await eye.until("a worker", lambda: "w1" in set(eye.ready()), 40)
        with pytest.raises(MeshError, match="MESH-S145"):
            await eye.service.deploy(text)
        assert not eye.view.snapshot().apps
