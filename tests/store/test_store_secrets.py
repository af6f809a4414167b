"""What a worker's processes know of databases."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.jetstream.connection import close, connect
from mesh.jetstream.secret_store import SecretStore
from mesh.model import secrets
from mesh.settings import NatsSettings, ReceiverSettings, SecretSettings, Settings, StoreSettings
from mesh.store.engine import engine_of
from mesh.worker import store_secrets
from tests.support.databases import PASSWORD, USER, new_database
from tests.support.store_options import database, options_of

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.databases import DatabaseServer
    from tests.support.environment import Variables


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
        receiver=ReceiverSettings(egress="127.0.0.1:1-65535"),
    )
    for name, value in store_secrets.variables(settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(store_secrets, "_cache", {})
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


def test_a_node_without_settings_opens_no_file_and_nothing_of_its_own(
    environment: Variables, tmp_path: Path
) -> None:
    environment.update(store_secrets.variables(Settings()))
    for url in (f"jdbc:sqlite:{tmp_path}/a.db", "jdbc:mysql://127.0.0.1/d"):
        with pytest.raises(MeshError, match="MESH-C132"):
            database(f"jdbc.url='{url}'")
    assert database("jdbc.url='jdbc:mysql://192.0.2.7/d'").host == "192.0.2.7"
