"""``mesh nats-config``: its files work, and another call adds to them."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.jetstream import connection, server
from mesh.settings import NatsSettings

if TYPE_CHECKING:
    from nats.aio.client import Client

pytestmark = pytest.mark.nats


def call(*arguments: object, fails: bool = False) -> str:
    result = CliRunner().invoke(app, ["nats-config", *map(str, arguments)])
    assert (result.exit_code == 1) == fails, result.output
    return result.stdout + result.stderr


def settings_of(folder: Path, name: str, url: str) -> NatsSettings:
    """What the file for a user says, with the server of the test."""
    found = yaml.safe_load((folder / f"{name}.yaml").read_text())["nats"]
    return NatsSettings(**{**found, "url": url})


@pytest.mark.slow
def test_users_connect_with_their_keys_and_an_old_key_holds_until_it_is_retired(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "made"
    said = call(folder, "--publisher", "till=Shop.Orders", "--reader", "board=Shop.DearOrders")
    assert "6 users and 0 servers" in said
    for path in folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) in (0o600, 0o700), path

    async def connect(name: str, seed: Path | None = None) -> Client:
        settings = settings_of(folder, name, made.url)
        if seed is not None:
            settings = NatsSettings(made.url, nkey_seed_file=str(seed))
        client = await connection.connect(settings, name)
        await client.flush()
        return client

    async def all_connect() -> None:
        for name in ("manager", "worker", "receiver", "connector", "till", "board"):
            await connection.close(await connect(name))

    old = tmp_path / "old.nk"
    old.write_text((folder / "keys" / "till.nk").read_text())
    arguments = ["-c", str(folder / "accounts.conf")]
    made = server.start(tmp_path / "nats", arguments=arguments)
    try:
        asyncio.run(all_connect())
        call(folder, "--rotate", "till", "--publisher", "till=Shop.Returns")
        assert old.read_text() != (folder / "keys" / "till.nk").read_text()
    finally:
        made.stop()
    for retired in (False, True):
        if retired:
            call(folder, "--retire", "till")
        made = server.start(tmp_path / f"nats{retired}", arguments=arguments)
        try:
            asyncio.run(all_connect())
            if retired:
                with pytest.raises(Exception, match="N110"):
                    asyncio.run(connect("till", old))
            else:
                asyncio.run(_closed(connect("till", old)))
        finally:
            made.stop()
    assert "mesh.Shop.Returns" in (folder / "accounts.conf").read_text()
    call(folder, "--remove", "till")
    assert "Returns" not in (folder / "accounts.conf").read_text()
    assert not (folder / "keys" / "till.nk").exists()


async def _closed(client: object) -> None:
    await connection.close(await client)  # type: ignore[misc]  # an awaitable of a client


def test_files_of_a_cluster_are_valid_and_name_each_other(tmp_path: Path) -> None:
    for name in ("cert", "key", "ca"):
        (tmp_path / name).write_text("")
    tls = [part for name in ("cert", "key", "ca") for part in (f"--tls-{name}", tmp_path / name)]
    servers = [part for n in (1, 2, 3) for part in ("--server", f"n{n}=10.0.0.{n}")]
    call(tmp_path / "made", *servers, *tls)
    text = (tmp_path / "made" / "n1.conf").read_text()
    assert "@10.0.0.2:6222" in text
    assert "@10.0.0.1:6222" not in text
    assert text.count("verify: true") == 2
    # A later call without options of TLS keeps them.
    call(tmp_path / "made", "--publisher", "till=Shop.*")
    assert (tmp_path / "made" / "n1.conf").read_text() == text
    worker = yaml.safe_load((tmp_path / "made" / "worker.yaml").read_text())["nats"]
    assert worker["url"] == ",".join(f"tls://10.0.0.{n}:4222" for n in (1, 2, 3))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--publisher", "till"),
        ("--publisher", "manager=Shop.Orders"),
        ("--publisher", "till=Shop.>"),
        ("--publisher", "till=Shop Orders"),
        ("--asker", "desk=a.b"),
        ("--reader", 'x" }=Shop.Orders'),
        ("--rotate", "nobody"),
        ("--tls-cert", "x"),
    ],
    ids=" ".join,
)
def test_what_is_no_name_is_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert "MESH-U170" in call(tmp_path / "made", *arguments, fails=True)


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "roles.json").write_text("{")
    assert "MESH-U171" in call(tmp_path, fails=True)


def test_connectors_get_a_key_of_their_own_also_in_a_folder_of_an_earlier_version(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "made"
    call(folder)
    state = folder / "roles.json"
    values = json.loads(state.read_text())
    del values["users"]["connector"]
    state.write_text(json.dumps(values))
    (folder / "keys" / "connector.nk").unlink()
    assert "new key of connector" in call(folder)
    for role in ("worker", "receiver"):
        found = yaml.safe_load((folder / f"{role}.yaml").read_text())["receiver"]
        assert found == {"nkey_seed_file": str(folder / "keys" / "connector.nk")}
    assert "receiver" not in yaml.safe_load((folder / "manager.yaml").read_text())
