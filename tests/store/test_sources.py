"""Databases by name in ``stores.sources_file``, and secrets in options of ``@store``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.model.stored import Backend
from mesh.settings import (
    ReceiverSettings,
    SecretSettings,
    Settings,
    StoreSettings,
)
from mesh.store import sources
from tests.support.store_options import database, redis

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.environment import Variables


@pytest.fixture
def file(tmp_path: Path, environment: Variables) -> Path:
    path = tmp_path / "sources.yaml"
    given = sources.variables(Settings(stores=StoreSettings(sources_file=str(path))))
    environment.update(given)
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
    sources.read_sources.cache_clear()
    with pytest.raises(MeshError, match="S145") as error:
        database("datasource='a'")
    assert "deep-secret" not in str(error.value.to_dict())


def test_without_a_file_no_name_is_known(environment: Variables) -> None:
    environment.pop(sources.SOURCES_VARIABLE, None)
    with pytest.raises(MeshError, match="S145") as error:
        database("datasource='a'")
    assert error.value.detail == "Known here: none."


@pytest.fixture
def roots(tmp_path: Path, environment: Variables) -> Path:
    """A node's directory that is open to apps; its keys are in it."""
    (tmp_path / "open").mkdir()
    settings = Settings(
        receiver=ReceiverSettings(
            file_roots=str(tmp_path / "open"), egress="db.example:5432,*.example:3306"
        ),
        secrets=SecretSettings(key_file=str(tmp_path / "open" / "key")),
    )
    environment.update(sources.variables(settings))
    return tmp_path


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:sqlite:{}/private.db",
        "jdbc:sqlite:{}/open/../private.db",
        "jdbc:sqlite:{}/open/link/private.db",
        "sqlite:///{}/private.db",
        "jdbc:sqlite:{}/open/key",
        "jdbc:postgresql://db.example:5433/d",
        "jdbc:postgresql://other/d",
        "jdbc:postgresql:d",
        "postgresql+psycopg://u:p@127.0.0.1/d",
        "jdbc:mysql://localhost/d",
        "jdbc:mariadb://169.254.169.254:3306/d",
        "jdbc:mysql://127.0.0.1,x.example/d",
        "jdbc:postgresql://db.example:5432/d?sslmode=verify-full&sslrootcert=/etc/passwd",
    ],
)
def test_a_store_is_in_files_and_at_servers_that_are_open(roots: Path, url: str) -> None:
    (roots / "open" / "link").symlink_to(roots)
    with pytest.raises(MeshError, match="MESH-C132"):
        database(f"jdbc.url='{url.format(roots)}'")
    assert sorted(one.name for one in roots.iterdir()) == ["open"]


@pytest.mark.parametrize("nodes", ["other:6379@p", "db.example:6379@p", "127.0.0.1", "[::1]:6379"])
def test_a_store_in_redis_is_at_servers_that_are_open(roots: Path, nodes: str) -> None:
    with pytest.raises(MeshError, match="MESH-C132"):
        redis(f"nodes='{nodes}'")
    assert redis("nodes='db.example:5432@p'").password == "p"
    with pytest.raises(MeshError, match="MESH-C132"):
        redis("url='rediss://db.example:5432/1?sslrootcert=/etc/passwd'")


def test_a_data_source_is_of_the_type_of_its_store(file: Path) -> None:
    file.write_text("r: {url: 'redis://u@h:1/2', password: q}\ns: {url: 'jdbc:sqlite:/tmp/a.db'}\n")
    sources.read_sources.cache_clear()
    found = redis("datasource='r'")
    assert (found.host, found.port, found.database, found.username) == ("h", 1, "2", "u")
    assert found.password == "q"
    with pytest.raises(MeshError, match=r"none of @store\(type='rdbms'\)"):
        database("datasource='r'")
    with pytest.raises(MeshError, match=r"none of @store\(type='redis'\)"):
        redis("datasource='s'")


def test_a_store_that_is_open_is_used(roots: Path) -> None:
    assert database(f"jdbc.url='jdbc:sqlite:{roots}/open/a.db'").database == f"{roots}/open/a.db"
    assert database("jdbc.url='jdbc:postgresql://db.example/d'").host == "db.example"


@pytest.mark.parametrize(
    ("apps", "open_to", "closed_to"),
    [
        ("Shop*", ("Shop", "Shop2"), ("Bank", "", "shop")),
        ("'Shop, Bank-*'", ("Shop", "Bank-1"), ("Shop2", "Bank")),
        ("[Shop, Till]", ("Shop", "Till"), ("Bank",)),
        ("'*'", ("Shop", ""), ()),
        ("[]", (), ("Shop", "")),
        ("''", (), ("Shop",)),
        ("'a b'", (), ("Shop",)),
        ("{a: 1}", (), ("Shop",)),
    ],
)
def test_a_database_of_the_file_is_for_apps_that_it_names(
    file: Path, apps: str, open_to: tuple[str, ...], closed_to: tuple[str, ...]
) -> None:
    file.write_text(f"x: {{url: 'jdbc:sqlite:/tmp/a.db', apps: {apps}}}\n")
    sources.read_sources.cache_clear()
    for app in open_to:
        assert database("datasource='x'", app).database == "/tmp/a.db"
    for app in closed_to:
        with pytest.raises(MeshError, match="MESH-S145"):
            database("datasource='x'", app)
