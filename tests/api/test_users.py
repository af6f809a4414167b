"""Users of the file: their passwords, checks of these that nobody waits for, and their lines."""

from __future__ import annotations

import logging
import stat
import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import httpx
import pytest

from mesh.api import auth, users
from mesh.api.auth import Access
from mesh.api.routes import make_app
from mesh.api.users import LoginCredentials, Users
from mesh.errors import MeshError
from mesh.model.access import ALL, Grant, Permission, read_permissions
from mesh.settings import ManagerSettings
from mesh.telemetry.logs import TextFormatter
from tests.support.api import FakeService, served
from tests.support.monitored import Cluster

if TYPE_CHECKING:
    from pathlib import Path

ADA = ("ada", "pass:word")


@pytest.fixture
def known(tmp_path: Path) -> Users:
    """A file with the user ada."""
    users.add(tmp_path / "users", *ADA)
    return Users(tmp_path / "users")


class SlowUsers(Users):
    """Users whose passwords are checked when the test says so."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may_end = threading.Event()

    def check(self, credentials: LoginCredentials) -> bool:
        self.may_end.wait(30.0)
        return super().check(credentials)


@pytest.fixture
def slow(tmp_path: Path) -> SlowUsers:
    """The same users, with slow checks."""
    users.add(tmp_path / "users", *ADA)
    return SlowUsers(tmp_path / "users")


def _client(access: Access, address: str = "192.0.2.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(make_app(FakeService().as_manager, access), client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://api")


async def _until_pending(access: Access, count: int) -> None:
    with anyio.fail_after(30):
        while access.pending.total() < count:
            await anyio.lowlevel.checkpoint()


@pytest.mark.slow
async def test_a_known_user_does_not_wait_for_the_checks_of_others(slow: SlowUsers) -> None:
    access = Access(slow)
    async with _client(access) as client, anyio.create_task_group() as tasks:
        slow.may_end.set()
        assert (await client.get("/siddhi-apps", auth=ADA)).status_code == 200
        slow.may_end.clear()
        for number in range(5):
            tasks.start_soon(_get, client, ("ada", f"wrong {number}"))
        await _until_pending(access, 5)
        with anyio.fail_after(30):
            assert (await client.get("/siddhi-apps", auth=ADA)).status_code == 200
        slow.may_end.set()


async def _get(client: httpx.AsyncClient, credentials: tuple[str, str]) -> int:
    return (await client.get("/siddhi-apps", auth=credentials)).status_code


@pytest.mark.slow
async def test_only_so_many_checks_wait_and_one_address_leaves_room_for_others(
    slow: SlowUsers,
) -> None:
    found: list[Any] = []

    async def get(client: httpx.AsyncClient, credentials: tuple[str, str]) -> None:
        found.append(await _get(client, credentials))

    access = Access(slow)
    one, other = _client(access), _client(access, "192.0.2.2")
    async with one, other, anyio.create_task_group() as tasks:
        most = auth._PENDING_OF_ADDRESS_MAX
        for number in range(most):
            tasks.start_soon(get, one, ("ada", f"wrong {number}"))
        await _until_pending(access, most)
        refused = await one.get("/siddhi-apps", auth=("ada", "one more"))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["code"] == "MESH-A429"
        tasks.start_soon(get, other, ADA)
        await _until_pending(access, most + 1)
        slow.may_end.set()
    assert sorted(found) == [200] + [401] * most
    assert access.pending.total() == 0


async def test_a_failed_login_is_logged_without_its_password(
    known: Users, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="mesh.api.auth"):
        async with _client(Access(known)) as client:
            assert await _get(client, ("x\ny" + "x" * 5000, "secret")) == 401
    (record,) = [one for one in caplog.records if one.name == "mesh.api.auth"]
    assert record.getMessage() == "login failed"
    line = TextFormatter().format(record)
    name = "x\\ny" + "x" * 60
    assert line.endswith(f" mesh.api.auth login failed user={name} address=192.0.2.1")
    assert "secret" not in str(vars(record))


def test_a_password_that_is_replaced_during_its_check_is_not_kept(
    known: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = LoginCredentials(*ADA), LoginCredentials("ada", "another")
    real = type(users._HASHER).verify

    def verify(hasher: Any, *arguments: Any) -> bool:
        monkeypatch.undo()
        assert known.path is not None
        users.add(known.path, new.user, new.password)
        known.refresh()
        return real(hasher, *arguments)

    monkeypatch.setattr(type(users._HASHER), "verify", verify)
    assert known.check(old)
    assert not known.is_verified(old)
    assert not known.check(old)
    assert known.check(new)
    assert known.is_verified(new)


@pytest.mark.slow
def test_a_users_file_holds_no_password_and_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "users"
    assert users.add(path, "ada", "secret")
    assert not users.add(path, "ada", "secret2")
    assert "secret" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file = users.Users(path)
    assert file.check(users.LoginCredentials("ada", "secret2"))
    assert file.check(users.LoginCredentials("ada", "secret2"))
    assert not file.check(users.LoginCredentials("ada", "secret"))
    # A password that was changed no longer fits, though it did a moment ago.
    users.add(path, "ada", "secret3")
    assert not file.check(users.LoginCredentials("ada", "secret2"))
    for name, password in (("a:b", "x"), ("", "x"), ("ada", "")):
        with pytest.raises(MeshError) as error:
            users.add(path, name, password)
        assert error.value.code == "MESH-A101"


@pytest.mark.slow
def test_users_may_do_what_their_line_says(tmp_path: Path) -> None:
    path = tmp_path / "users"
    users.add(path, "ada", "a")
    users.add(path, "bob", "b", read_permissions("view"))
    users.add(path, "eve", "e", read_permissions("monitor, view"))
    # Another password doesn't change their permissions.
    users.add(path, "bob", "b2")
    file = users.Users(path)
    file.refresh()
    (bob,) = file.grants("bob")
    assert file.grants("ada") == (Grant(ALL),)
    assert bob == Grant(frozenset({Permission.APPS_VIEW, Permission.DATA_READ}))
    assert file.grants("eve") == (Grant(bob.may | {Permission.MONITOR}),)
    assert file.grants("nobody") == ()
    assert path.read_text().splitlines()[2].endswith(":apps.view,data.read,monitor")
    with pytest.raises(MeshError) as error:
        read_permissions("view,owner")
    assert error.value.code == "MESH-A101"

    async def run() -> list[int]:
        settings = ManagerSettings(port=0, users_file=str(path))
        async with served(Cluster(), settings) as api, httpx.AsyncClient(base_url=api.url) as http:
            asked = [
                ("GET", "/siddhi-apps", ("bob", "b2")),
                ("GET", "/metrics", ("bob", "b2")),
                ("DELETE", "/siddhi-apps/Shop", ("bob", "b2")),
                ("GET", "/metrics", ("eve", "e")),
                ("DELETE", "/siddhi-apps/Shop", ("eve", "e")),
                ("GET", "/metrics", ("ada", "a")),
            ]
            return [(await http.request(m, p, auth=who)).status_code for m, p, who in asked]

    assert anyio.run(run) == [200, 403, 403, 200, 403, 200]


def test_a_line_with_a_permission_that_does_not_exist_is_told(tmp_path: Path) -> None:
    path = tmp_path / "users"
    users.add(path, "ada", "a")
    path.write_text(path.read_text().strip() + ":viev\n")
    with pytest.raises(MeshError) as error:
        users.Users(path).refresh()
    assert error.value.code == "MESH-A100"
    assert 'permission "viev" does not exist' in (error.value.detail or "")
