"""Address and credentials of the cluster for commands: which source they are taken from."""

from __future__ import annotations

import asyncio
import socket
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh.cli import local_nats
from mesh.client import Context, context, wire
from mesh.errors import MeshError
from mesh.jetstream import server

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

HERE = Path(".mesh", "dev", "context.json")
LOCAL = Context(server="https://localhost:1", user="dev", password="p", nats="nats://127.0.0.1:1")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory and an environment without a cluster's context."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("SERVER", "USER", "PASSWORD", "CA", "NATS_URL", "CONTEXT"):
        monkeypatch.delenv(f"MESH_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_context_file_is_found_and_is_its_owners(alone: Path) -> None:
    context.write(LOCAL, context.config_path())
    assert stat.S_IMODE(context.config_path().stat().st_mode) == 0o600
    assert context.find({}) == LOCAL
    assert context.find({"nats": "nats://y:2", "server": None}).nats == "nats://y:2"
    # Another server gets neither the user nor the password of this one.
    assert context.find({"server": "https://other:1"}) == Context(server="https://other:1")
    named = context.find({"server": "https://other:1"}, context.config_path())
    assert named == Context(server="https://other:1", nats=LOCAL.nats)
    # The user may be another user of the same cluster.
    assert context.find({"user": "ann", "password": "q"}) == replace(
        LOCAL, user="ann", password="q"
    )


def test_the_context_of_this_directory_comes_before_the_users(alone: Path) -> None:
    context.write(Context(server="https://user"), context.config_path())
    context.write(LOCAL, HERE)
    assert context.find({}) == LOCAL


@pytest.mark.parametrize(
    "foreign",
    [
        Context(server="https://evil.example:9543", insecure=True),
        Context(server="https://127.0.0.1.evil.example:9543"),
        Context(server="https://10.0.0.1:9543"),
        replace(LOCAL, nats="nats://127.0.0.1:1,nats://evil.example:4222"),
        replace(LOCAL, server="https://localhost@evil.example"),
    ],
    ids=lambda found: f"{found.server} {found.nats}",
)
def test_the_context_of_this_directory_can_not_lead_to_another_machine(
    alone: Path, foreign: Context
) -> None:
    own = Context(server="https://user")
    context.write(own, context.config_path())
    context.write(foreign, HERE)
    assert context.find({}) == own


def test_credentials_that_are_given_do_not_go_to_the_server_of_this_directory(alone: Path) -> None:
    own = Context(server="https://user", user="ann", password="q")
    context.write(own, context.config_path())
    context.write(LOCAL, HERE)
    assert context.find({"user": "ann", "password": "q"}) == own
    context.config_path().unlink()
    assert context.find({"user": "ann", "password": "q"}).server == ""


def test_a_context_of_this_directory_that_others_may_write_does_not_count(alone: Path) -> None:
    context.write(LOCAL, HERE)
    HERE.chmod(0o666)
    assert context.find({}) == Context()


def test_a_context_of_this_directory_that_is_a_link_does_not_count(alone: Path) -> None:
    context.write(LOCAL, alone / "context.json")
    HERE.parent.mkdir(parents=True)
    HERE.symlink_to(alone / "context.json")
    assert context.find({}) == Context()


def test_a_server_of_nats_gets_the_login_of_its_own_source(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.write(replace(LOCAL, nats_user="dev", nats_password="n"), context.config_path())
    monkeypatch.setenv("MESH_NATS_USER", "ann")
    monkeypatch.setenv("MESH_NATS_PASSWORD", "secret")
    monkeypatch.setenv("MESH_NATS_TLS_CA", "ca.pem")
    assert context.find({}).nats_settings.user == "dev"
    found = context.find({"nats": "tls://n1:4222"}).nats_settings
    assert (found.user, found.password, found.tls_ca) == ("ann", "secret", "ca.pem")


def test_a_context_file_is_removed_only_by_who_wrote_it(alone: Path) -> None:
    path = alone / "context.json"
    mine, another = Context(server="https://mine"), Context(server="https://another")
    context.write(another, path)
    context.remove(mine, path)
    assert path.exists()
    context.remove(another, path)
    assert not path.exists()
    context.remove(another, path)


@pytest.mark.nats
def test_nats_of_mesh_dev_takes_its_users_only(tmp_path: Path) -> None:
    keys = local_nats.make(tmp_path / "nats")
    nats = server.start(tmp_path / "nats", arguments=["-c", str(keys.configuration)])
    for path in (keys.configuration, *keys.seeds.values()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    passwords = keys.passwords
    right = Context(
        nats=nats.url,
        nats_user="operator",
        nats_password=passwords["operator"],
        nats_inbox_prefix="_INBOX.operator",
    )

    async def connect(at: Context) -> None:
        async with wire.connected(at) as client:
            await client.flush()

    try:
        # Other users of the machine see the arguments.
        assert not any(password in str(nats.process.args) for password in passwords.values())
        asyncio.run(connect(right))
        # The URLs that it prints are enough for any client.
        for name in (local_nats.PUBLISHER, local_nats.READER):
            asyncio.run(connect(Context(nats=keys.url(name, nats.url))))
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


def test_a_request_that_nats_does_not_answer_is_told_of(nats_server: NatsServer) -> None:
    async def ask() -> None:
        async with wire.connected(Context(nats=nats_server.url)) as client:
            # Nothing answers it: the stream's leader is gone.
            silent = await client.subscribe("silent")
            await client.request("silent", timeout=0.05)
            await silent.unsubscribe()

    with pytest.raises(MeshError, match="does not answer"):
        asyncio.run(ask())


def test_a_manager_on_this_machine_that_does_not_listen_yet_is_waited_for_with_a_line() -> None:
    from mesh.client import Client

    said: list[str] = []
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        at = Context(server=f"http://127.0.0.1:{bound.getsockname()[1]}")
        with Client(at) as client:
            client.wait_until_up(0.0, said.append)
            assert said == [f"waiting for the manager at {at.server}, which is starting ..."]
            bound.listen()
            client.wait_until_up(0.0, said.append)
            assert len(said) == 1
    # A wrong address of another machine is an error at once.
    with Client(Context(server="http://192.0.2.1:9543")) as client:
        client.wait_until_up(60.0, said.append)
    assert len(said) == 1


def test_the_development_stack_of_this_directory_is_found_if_no_dev_cluster_is(
    alone: Path,
) -> None:
    stack = Context(server="https://localhost:9543", user="dev", nats="nats://127.0.0.1:4222")
    context.write(stack, Path(".mesh", "stack", "context.json"))
    assert context.find({}) == stack
    dev = Context(server="https://localhost:1", user="dev")
    context.write(dev, Path(".mesh", "dev", "context.json"))
    assert context.find({}) == dev
