"""Databases by name in ``stores.sources_file``, and secrets in options of ``@store``."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.jetstream.connection import close, connect
from mesh.jetstream.secret_store import SecretStore
from mesh.language.parser import parse
from mesh.model import secrets
from mesh.model.stored import Backend
from mesh.plan.bind import bind
from mesh.plan.stores import stored_table_of
from mesh.settings import NatsSettings, SecretSettings, Settings, StoreSettings
from mesh.store import sources
from mesh.store.engine import engine_of
from mesh.worker import store_secrets
from tests.support.databases import PASSWORD, USER, new_database

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.model.stored import Database, StoreOptions
    from tests.support.databases import DatabaseServer


def options_of(store: str) -> StoreOptions:
    table = f"define stream S (k string); @store(type='rdbms', {store}) @PrimaryKey('k') "
    app = bind(parse(table + "define table T (k string); from S select k insert into T;"))
    found = stored_table_of(app.tables[0])
    assert found is not None
    return found


def database(store: str) -> Database:
    return sources.database(options_of(store))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "sources.yaml"
    given = sources.variables("", str(path))
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return path


@pytest.mark.parametrize("option", ["datasource", "ref", "jndi.resource"])
def test_a_name_is_a_database_of_the_file(file: Path, option: str) -> None:
    file.write_text(
        "trades: {url: 'jdbc:postgresql://db:5433/trades?sslmode=require', username: ann,"
        " password: 12}\n"
        "local: {url: 'jdbc:sqlite:/tmp/a.db'}\nbroken: {username: ann}\n"
    )
    found = database(f"{option}='trades', jdbc.url='jdbc:mysql://other/d'")
    assert (found.backend, found.host, found.port) == (Backend.POSTGRESQL, "db", 5433)
    assert (found.database, found.username, found.password) == ("trades", "ann", "12")
    assert database(f"{option}='local'").backend is Backend.SQLITE
    for name in ("broken", "none"):
        with pytest.raises(MeshError, match="S145") as error:
            database(f"{option}='{name}'")
        assert "broken, local, trades" in f"{error.value.detail}"


def test_a_file_that_can_not_be_read_shows_none_of_its_lines(file: Path) -> None:
    with pytest.raises(MeshError, match="S145"):
        database("datasource='a'")
    file.write_text("a: {password: 'deep-secret\n")
    sources._sources.cache_clear()
    with pytest.raises(MeshError, match="S145") as error:
        database("datasource='a'")
    assert "deep-secret" not in str(error.value.to_dict())


def test_without_a_file_no_name_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sources.SOURCES_VARIABLE, raising=False)
    with pytest.raises(MeshError, match="S145") as error:
        database("datasource='a'")
    assert error.value.detail == "Known here: none."


@pytest.mark.nats
async def test_secrets_are_read_where_the_instance_runs(
    nats_server: NatsServer,
    postgresql: DatabaseServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = tmp_path / "key"
    key.write_bytes(base64.b64encode(os.urandom(32)))
    listed = tmp_path / "sources.yaml"
    store = new_database(postgresql, tmp_path, "hidden")
    listed.write_text(
        f"hidden: {{url: '{store.url}', username: {USER}, password: '${{secret:db.password}}'}}\n"
    )
    settings = Settings(
        nats=NatsSettings(nats_server.url),
        secrets=SecretSettings(key_file=str(key)),
        stores=StoreSettings(sources_file=str(listed)),
    )
    for name, value in store_secrets.variables(settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(store_secrets, "_known", {})
    monkeypatch.setattr(secrets, "_seen", set())

    written = f"jdbc.url='{store.url}', username='{USER}', password='${{secret:db.password}}'"
    with pytest.raises(MeshError, match="C142"):
        database(written)
    client = await connect(settings.nats, "test")
    try:
        await SecretStore(client.jetstream(), str(key)).put("db.password", PASSWORD)
    finally:
        await close(client)
    # The plan has the reference only.
    options = options_of(written)
    assert options.database is not None
    assert options.database.password == "${secret:db.password}"
    secrets._seen.clear()
    for given in (written, "datasource='hidden'"):
        with engine_of(database(given)).connect() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
    assert secrets.masked(f"login with {PASSWORD}") == "login with ***"
