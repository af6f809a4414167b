"""``mesh login``: tokens of an identity provider for commands, kept, renewed and forgotten."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import re
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import orjson
import pytest
import typer
from typer.testing import CliRunner

from mesh.api import users
from mesh.api.oidc import make_provider
from mesh.api.server import ApiServer, listen
from mesh.cli import signing_in as login
from mesh.cli.commands import app
from mesh.client import Client, context, logins
from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.settings import ManagerSettings, OidcSettings
from tests.support.api import TEXT, FakeService
from tests.support.idp import AUDIENCE, COMMAND_CLIENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.environment import Variables
    from tests.support.idp import IdentityProvider


@contextlib.contextmanager
def _served(directory: Path, settings: OidcSettings) -> Iterator[str]:
    """The REST API of a manager with a provider, in a thread."""
    file = directory / "users"
    users.add(file, "root", "pw")
    manager = ManagerSettings(port=0, users_file=str(file), requests_per_s=0.0)
    listener = listen(manager)
    ended, begun = threading.Event(), concurrent.futures.Future[str]()

    async def serve() -> None:
        provider = make_provider(settings, SystemClock())
        api = ApiServer(
            FakeService({"Shop": TEXT}).as_manager, manager, listener, provider=provider
        )
        task = asyncio.create_task(api.run())
        begun.set_result(api.url)
        await asyncio.to_thread(ended.wait)
        api.stop()
        await task

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield begun.result(30)
    finally:
        ended.set()
        thread.join(30)


@pytest.fixture
def server(idp: IdentityProvider, alone: Path, environment: Variables) -> Iterator[str]:
    settings = OidcSettings(
        issuer=idp.url, audience=AUDIENCE, command_client_id=COMMAND_CLIENT,
        roles="ADMIN=admin, SHOP=developer:Shop*",
    )  # fmt: skip
    with _served(alone, settings) as url:
        environment["MESH_SERVER"] = url
        yield url


class Person:
    """Confirms the code that the command prints, or follows the page that it opens."""

    def __init__(self, idp: IdentityProvider) -> None:
        self.idp, self.page = idp, ""

    def read(self, line: str) -> None:
        if line.startswith("open "):
            self.page = line.removeprefix("open ")
        if found := re.search(r"confirm the code (\S+)", line):
            self.idp.confirm(self.page, found[1], "eve")

    def follow(self, page: str) -> None:
        back = self.idp.sign_in(page, "ada")
        # An answer to another sign-in is not taken.
        threading.Thread(target=self._visit, args=(back,)).start()

    def _visit(self, back: str) -> None:
        forged = re.sub("state=[^&]+", "state=x", back)
        assert httpx.get(forged).status_code == 404
        assert httpx.get(back).status_code == 200


def _shown(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow
def test_a_code_is_confirmed_and_commands_use_the_token_until_logout(
    idp: IdentityProvider, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(typer, "echo", Person(idp).read)
        # The person has confirmed the code before the command asks for the first time.
        changed.setattr("mesh.cli.signing_in.time.sleep", lambda _: None)
        _shown("login")
    path = context.config_path().parent / context.LOGINS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # Another server gets no token, and other credentials count before it.
    assert context.find({"server": "https://other:1"}).login == str(path)
    assert logins.find(path, "https://other:1") is None
    with Client(context.find({"server": server, "user": "root", "password": "pw"})) as client:
        assert client.me()["user"] == "root"
    with Client(context.find({"server": server})) as client:
        me = client.me()
    assert (me["user"], me["grants"][0]["apps"]) == ("oidc:eve", "Shop*")
    assert "signed out" in _shown("logout")
    assert "not signed in" in _shown("logout")
    with Client(context.find({"server": server})) as client, pytest.raises(MeshError, match="A401"):
        client.me()


@pytest.mark.slow
def test_the_browser_of_this_machine_is_sent_there_and_back(
    idp: IdentityProvider, server: str
) -> None:
    with Client(context.find({"server": server})) as client:
        of, endpoints = login.provider_of(client.provider())
    scopes = login.scopes_of({"scopes_supported": ["openid"]}, endpoints)
    made = login.by_browser(of, endpoints["authorization_endpoint"], scopes, Person(idp).follow)
    assert "eyJ" not in repr(made)
    logins.keep(context.config_path().parent / context.LOGINS, server, made)
    with Client(context.find({"server": server})) as client:
        assert client.me()["user"] == "oidc:ada"


@pytest.mark.slow
def test_an_expired_token_is_renewed_and_a_withdrawn_one_says_so(
    idp: IdentityProvider, server: str
) -> None:
    with Client(context.find({"server": server})) as client:
        of, endpoints = login.provider_of(client.provider())
    made = login.by_browser(of, endpoints["authorization_endpoint"], "openid", Person(idp).follow)
    path = context.config_path().parent / context.LOGINS
    for changed in ({"expires_s": 1.0}, {"access_token": "refused"}):
        values = {**_values(made), **changed}
        logins.keep(path, server, logins.Login(**values))
        with Client(context.find({"server": server})) as client:
            assert client.me()["user"] == "oidc:ada"
        known = logins.find(path, server)
        assert known is not None
        assert known.access_token not in (made.access_token, "refused")
        made = known
    idp.revoke(made.refresh_token)
    logins.keep(path, server, logins.Login(**{**_values(made), "expires_s": 1.0}))
    with Client(context.find({"server": server})) as client, pytest.raises(MeshError, match="U114"):
        client.me()


def _values(of: logins.Login) -> dict[str, Any]:
    return {name: getattr(of, name) for name in logins.Login.__slots__}


@pytest.mark.parametrize("text", ["[]", "{", '{"https://a": 5}', '{"https://a": {"x": 1}}'])
def test_a_damaged_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / context.LOGINS).write_text(text)
    with pytest.raises(MeshError, match="U114"):
        logins.find(tmp_path / context.LOGINS, "https://a")


def test_a_manager_without_a_provider_says_so(tmp_path: Path) -> None:
    with (
        _served(tmp_path, OidcSettings()) as url,
        Client(context.ClientContext(server=url)) as client,
        pytest.raises(MeshError, match="A404"),
    ):
        client.provider()


def test_a_context_file_has_no_path_of_tokens(tmp_path: Path) -> None:
    context.write(context.ClientContext(server="https://a", login="/x"), tmp_path / "context.json")
    assert "login" not in orjson.loads((tmp_path / "context.json").read_bytes())
