"""Address and credentials of the cluster for commands: which source they are taken from."""

from __future__ import annotations

import asyncio
import socket
import stat
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
from typer.testing import CliRunner

from mesh.cli import dev_state, local, local_nats
from mesh.cli.client import CommandClient
from mesh.cli.commands import app
from mesh.client import ClientContext, context, wire
from mesh.errors import MeshError
from mesh.jetstream import server
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.jetstream.server import NatsServer

HERE = Path(".mesh", "dev", "context.json")
LOCAL = ClientContext(
    server="https://localhost:1", user="dev", password="p", nats="nats://127.0.0.1:1"
)


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
    assert context.find({"server": "https://other:1"}) == ClientContext(server="https://other:1")
    named = context.find({"server": "https://other:1"}, context.config_path())
    assert named == ClientContext(server="https://other:1", nats=LOCAL.nats)
    # The user may be another user of the same cluster.
    assert context.find({"user": "ann", "password": "q"}) == replace(
        LOCAL, user="ann", password="q"
    )


def test_the_context_of_this_directory_comes_before_the_users(alone: Path) -> None:
    context.write(ClientContext(server="https://user"), context.config_path())
    context.write(LOCAL, HERE)
    assert context.find({}) == LOCAL


@pytest.mark.parametrize(
    "foreign",
    [
        ClientContext(server="https://evil.example:9543", insecure=True),
        ClientContext(server="https://127.0.0.1.evil.example:9543"),
        ClientContext(server="https://10.0.0.1:9543"),
        replace(LOCAL, nats="nats://127.0.0.1:1,nats://evil.example:4222"),
        replace(LOCAL, server="https://localhost@evil.example"),
    ],
    ids=lambda found: f"{found.server} {found.nats}",
)
def test_the_context_of_this_directory_can_not_lead_to_another_machine(
    alone: Path, foreign: ClientContext
) -> None:
    own = ClientContext(server="https://user")
    context.write(own, context.config_path())
    context.write(foreign, HERE)
    assert context.find({}) == own


def test_credentials_that_are_given_do_not_go_to_the_server_of_this_directory(alone: Path) -> None:
    own = ClientContext(server="https://user", user="ann", password="q")
    context.write(own, context.config_path())
    context.write(LOCAL, HERE)
    assert context.find({"user": "ann", "password": "q"}) == own
    context.config_path().unlink()
    assert context.find({"user": "ann", "password": "q"}).server == ""


def test_a_context_of_this_directory_that_others_may_write_does_not_count(alone: Path) -> None:
    context.write(LOCAL, HERE)
    HERE.chmod(0o666)
    assert context.find({}) == ClientContext()


def test_a_context_of_this_directory_that_is_a_link_does_not_count(alone: Path) -> None:
    context.write(LOCAL, alone / "context.json")
    HERE.parent.mkdir(parents=True)
    HERE.symlink_to(alone / "context.json")
    assert context.find({}) == ClientContext()


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
    mine, another = ClientContext(server="https://mine"), ClientContext(server="https://another")
    context.write(another, path)
    context.remove(mine, path)
    assert path.exists()
    context.remove(another, path)
    assert not path.exists()
    context.remove(another, path)


@pytest.mark.nats
def test_nats_of_mesh_dev_takes_its_users_only(tmp_path: Path) -> None:
    keys = local_nats.make(tmp_path / "nats", dev_state.DevState())
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
        for name in (local_nats.PUBLISHER, local_nats.READER):
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


def test_a_request_that_nats_does_not_answer_is_told_of(nats_server: NatsServer) -> None:
    async def ask() -> None:
        async with wire.connected(ClientContext(nats=nats_server.url)) as client:
            # Nothing answers it: the stream's leader is gone.
            silent = await client.subscribe("silent")
            await client.request("silent", timeout=0.05)
            await silent.unsubscribe()

    with pytest.raises(MeshError, match="does not answer"):
        asyncio.run(ask())


def test_a_manager_on_this_machine_that_does_not_listen_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []

    @contextmanager
    def heard(what: str, **_: object) -> Iterator[None]:
        said.append(what)
        yield

    monkeypatch.setattr("mesh.cli.client.working", heard)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        at = ClientContext(server=f"http://127.0.0.1:{bound.getsockname()[1]}")
        with CommandClient(at) as client:
            client.wait_until_up(0.0)
            assert said == [f"the manager at {at.server} starts"]
            bound.listen()
            client.wait_until_up(0.0)
            assert len(said) == 1
    # A wrong address of another machine is an error at once.
    with CommandClient(ClientContext(server="http://192.0.2.1:9543")) as client:
        client.wait_until_up(60.0)
    assert len(said) == 1


def test_the_development_stack_of_this_directory_is_found_if_no_dev_cluster_is(
    alone: Path,
) -> None:
    stack = ClientContext(server="https://localhost:9543", user="dev", nats="nats://127.0.0.1:4222")
    context.write(stack, Path(".mesh", "stack", "context.json"))
    assert context.find({}) == stack
    dev = ClientContext(server="https://localhost:1", user="dev")
    context.write(dev, Path(".mesh", "dev", "context.json"))
    assert context.find({}) == dev


def test_a_first_start_has_the_ports_of_the_readme_and_later_ones_those_of_the_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken: set[int] = set()
    monkeypatch.setattr(dev_state, "is_free", lambda port: port not in taken)
    assert local._port("NATS", None, 0, dev_state.NATS_PORT) == (4222, "")
    assert local._port("NATS", None, 12_345, dev_state.NATS_PORT) == (12_345, "")
    assert local._port("NATS", 0, 12_345, dev_state.NATS_PORT) == (0, "")
    taken |= {4222, 12_345}
    assert local._port("NATS", None, 0, dev_state.NATS_PORT) == (0, "")
    note = "port 12345 of NATS is in use; this start has another one"
    assert local._port("NATS", None, 12_345, dev_state.NATS_PORT) == (0, note)
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"publisher:PASSWORD@127.0.0.1:{dev_state.NATS_PORT} " in readme
    assert f"https://localhost:{dev_state.API_PORT}/siddhi-apps" in readme


def test_what_is_kept_is_its_owners_and_another_file_counts_as_none(tmp_path: Path) -> None:
    mine = dev_state.DevState(1, 2)
    password = mine.password("dev")
    mine.write(tmp_path)
    assert stat.S_IMODE((tmp_path / "kept.json").stat().st_mode) == 0o600
    assert dev_state.read(tmp_path).password("dev") == password
    assert dev_state.read(tmp_path) == mine
    for text in ("", "[1]", '{"other": 1}', '{"nats_port": "x"}'):
        (tmp_path / "kept.json").write_text(text)
        assert dev_state.read(tmp_path) == dev_state.DevState()


def test_a_port_is_free_unless_a_program_listens_on_it() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        one.listen()
        assert not dev_state.is_free(port)
    assert dev_state.is_free(port)


def test_the_context_is_printed_with_its_passwords(alone: Path) -> None:
    run = CliRunner().invoke
    assert "[MESH-U111]" in run(app, ["context", "show"]).stderr
    told = replace(LOCAL, publisher="nats://publisher:pw@127.0.0.1:1", data="/d")
    context.write(told, HERE)
    assert run(app, ["context", "show"]).output.splitlines() == [
        "data and logs  /d",
        "NATS publisher nats://publisher:pw@127.0.0.1:1",
        "REST API       https://localhost:1",
        "user           dev  password p",
    ]
    # Another server gets none of them.
    other = run(app, ["context", "show", "--server", "https://m1:9543", "-o", "json"]).output
    assert orjson.loads(other) == {"server": "https://m1:9543"}
