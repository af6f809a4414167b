"""Address and credentials of the cluster for commands: which source they are taken from."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.client import ClientContext, context

if TYPE_CHECKING:
    from tests.support.environment import Variables


HERE = Path(".mesh", "dev", "context.json")
LOCAL = ClientContext(
    server="https://localhost:1", user="dev", password="p", nats="nats://127.0.0.1:1"
)


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
    alone: Path, environment: Variables
) -> None:
    context.write(replace(LOCAL, nats_user="dev", nats_password="n"), context.config_path())
    environment["MESH_NATS_USER"] = "ann"
    environment["MESH_NATS_PASSWORD"] = "secret"
    environment["MESH_NATS_TLS_CA"] = "ca.pem"
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


def test_the_development_stack_of_this_directory_is_found_if_no_dev_cluster_is(alone: Path) -> None:
    stack = ClientContext(server="https://localhost:9543", user="dev", nats="nats://127.0.0.1:4222")
    context.write(stack, Path(".mesh", "stack", "context.json"))
    assert context.find({}) == stack
    dev = ClientContext(server="https://localhost:1", user="dev")
    context.write(dev, Path(".mesh", "dev", "context.json"))
    assert context.find({}) == dev


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
