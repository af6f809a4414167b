"""A cluster on this machine: its directory and its ports.

NATS of ``mesh dev``: its users.
"""

from __future__ import annotations

import asyncio
import socket
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mesh.cli import local
from mesh.client import ClientContext, wire
from mesh.connect.access import access_of, check_listen
from mesh.errors import MeshError
from mesh.jetstream import server
from mesh.settings import ReceiverSettings, Settings
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_two_clusters_do_not_share_a_directory(tmp_path: Path) -> None:
    held = local.lock_directory(tmp_path)
    assert local.in_use(tmp_path)
    with pytest.raises(MeshError, match="in use"):
        local.start(local.LocalPlan(tmp_path, 1, Settings()))
    held.close()
    assert not local.in_use(tmp_path)


def test_a_first_start_has_the_ports_of_the_readme_and_later_ones_those_of_the_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken: set[int] = set()
    monkeypatch.setattr(local, "is_free", lambda port: port not in taken)
    assert local.choose_port("NATS", None, 0, local.NATS_PORT) == (4222, "")
    assert local.choose_port("NATS", None, 12_345, local.NATS_PORT) == (12_345, "")
    assert local.choose_port("NATS", 0, 12_345, local.NATS_PORT) == (0, "")
    taken |= {4222, 12_345}
    assert local.choose_port("NATS", None, 0, local.NATS_PORT) == (0, "")
    note = "port 12345 of NATS is in use; this start has another one"
    assert local.choose_port("NATS", None, 12_345, local.NATS_PORT) == (0, note)
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"publisher:PASSWORD@127.0.0.1:{local.NATS_PORT} " in readme
    assert f"https://localhost:{local.API_PORT}/siddhi-apps" in readme


def test_sources_listen_where_the_apps_of_this_user_say(tmp_path: Path) -> None:
    def listen(settings: Settings, host: str) -> None:
        plan = local.LocalPlan(tmp_path, 1, settings)
        access = access_of(local.settings_of(plan, "nats://127.0.0.1", tmp_path, 1024))
        check_listen(access, host, 8006)

    listen(Settings(), "0.0.0.0")
    given = Settings(receiver=ReceiverSettings(listen="127.0.0.1:8006"))
    listen(given, "localhost")
    with pytest.raises(MeshError, match="not open") as closed:
        listen(given, "0.0.0.0")
    assert closed.value.one_line().endswith("Add it to the setting receiver.listen.")


@pytest.mark.nats
def test_nats_of_mesh_dev_takes_its_users_only(tmp_path: Path) -> None:
    keys = local.make(tmp_path / "nats", local.DevState())
    nats = server.start(tmp_path / "nats", arguments=["-c", str(keys.configuration)])
    for path in (keys.configuration, *keys.seeds.values()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    passwords = keys.passwords
    right = ClientContext(
        nats=nats.url,
        nats_user="operator",
        nats_password=passwords["operator"],
        nats_inbox_prefix="_INBOX.operator",
    )

    async def connect(at: ClientContext) -> None:
        async with wire.connected(at) as client:
            await client.flush()

    try:
        # Other users of the machine see the arguments.
        assert not any(password in str(nats.process.args) for password in passwords.values())
        asyncio.run(connect(right))
        # The URLs that it prints are enough for any client.
        for name in (local.PUBLISHER, local.READER):
            asyncio.run(connect(ClientContext(nats=keys.url(name, nats.url))))
        for wrong in (replace(right, nats_user=""), replace(right, nats_password="x")):
            detail = ""
            # The server closes the connection, and that may overtake what it says before.
            while "reset" in detail or not detail:
                with pytest.raises(MeshError, match="N110") as error:
                    asyncio.run(connect(wrong))
                detail = str(error.value.detail)
            assert "Authorization" in detail
    finally:
        nats.stop()


def test_what_is_kept_is_its_owners_and_another_file_counts_as_none(tmp_path: Path) -> None:
    mine = local.DevState(1, 2)
    password = mine.password("dev")
    mine.write(tmp_path)
    assert stat.S_IMODE((tmp_path / "kept.json").stat().st_mode) == 0o600
    assert local.read(tmp_path).password("dev") == password
    assert local.read(tmp_path) == mine
    for text in ("", "[1]", '{"other": 1}', '{"nats_port": "x"}'):
        (tmp_path / "kept.json").write_text(text)
        assert local.read(tmp_path) == local.DevState()


def test_a_port_is_free_unless_a_program_listens_on_it() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        one.listen()
        assert not local.is_free(port)
    assert local.is_free(port)
