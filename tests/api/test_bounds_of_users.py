"""One user, or nobody, takes nothing from the others: sessions, checks, names of apps."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from mesh.api import users
from mesh.api.auth import Access
from mesh.api.page_access import PageAccess
from mesh.api.routes import make_app
from mesh.api.users import LoginCredentials, Users
from mesh.errors import MeshError
from mesh.jetstream import sessions as sessions_module
from mesh.jetstream.connection import close, connect
from mesh.jetstream.sessions import OF_USER_MAX, UserSessions
from mesh.manager.desired_state import DesiredState
from mesh.model.access import Grant, Identity, Permission, current
from mesh.settings import NatsSettings
from tests.support.api import TEXT, FakeService
from tests.support.api_users import FakeDirectory, access_of, client_of
from tests.support.clocks import MovedClock

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

VIEW: Final = frozenset({Permission.APPS_VIEW})
LONG: Final = "correct horse battery"


@pytest.mark.nats
async def test_sign_ins_of_one_user_end_no_session_of_another(nats_server: NatsServer) -> None:
    client = await connect(NatsSettings(nats_server.url), "test")
    try:
        clock = MovedClock()
        kept = UserSessions(client.jetstream(), clock)
        admins = await kept.begin("admin")
        for _ in range(2 * OF_USER_MAX):
            clock.wait(1)
            last = await kept.begin("eve")
        own = [one for one in await kept.listed() if one.user == "eve"]
        assert len(own) == OF_USER_MAX
        assert await kept.find(admins) is not None
        assert await kept.find(last) is not None
    finally:
        await close(client)


@pytest.mark.slow
def test_a_change_of_one_user_keeps_the_passwords_that_were_verified(tmp_path: Path) -> None:
    path = tmp_path / "users"
    users.add(path, "ada", "pw")
    users.add(path, "eve", "pw")
    directory: Any = FakeDirectory()
    known = Users(path, directory)
    ada, eve = LoginCredentials("ada", "pw"), LoginCredentials("eve", "pw")
    assert known.check(ada)
    assert known.check(eve)
    directory.version += 1
    assert known.is_verified(ada)
    users.add(path, "eve", "another")
    assert known.is_verified(ada)
    assert not known.is_verified(eve)
    path.write_text(
        "".join(
            line
            for line in path.read_text().splitlines(keepends=True)
            if not line.startswith("ada")
        )
    )
    assert not known.is_verified(ada)


def test_a_session_ends_with_the_password_of_the_users_file(tmp_path: Path) -> None:
    path = tmp_path / "users"
    users.add(path, "ada", "pw")
    access = PageAccess(Access(Users(path)))
    began = sessions_module.UserSession("ada", "", mark=access.mark("ada"))
    stored = sessions_module._decode(sessions_module._encode(began), "id")
    assert stored is not None
    assert access.identity(stored) is not None
    users.add(path, "bob", "pw")
    assert access.identity(stored) is not None
    users.add(path, "ada", "another")
    assert access.identity(stored) is None
    assert access.identity(replace(stored, mark="")) is not None


@pytest.mark.slow
@pytest.mark.nats
async def test_a_login_ends_with_the_password_of_the_users_file(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    path = tmp_path / "users"
    users.add(path, "ada", "pw")
    client = await connect(NatsSettings(nats_server.url), "test")
    try:
        access = Access(Users(path), sessions=UserSessions(client.jetstream(), MovedClock()))
        form = {"grantType": "password", "username": "ada", "password": "pw"}
        async with client_of(access) as http:
            for _ in range(2):
                token = (await http.post("/login/monitoring", data=form)).json()["pID"]
                headers = {"Authorization": f"Bearer {token}"}
                assert (await http.get("/me", headers=headers)).status_code == 200
                form["password"] += "2"
                users.add(path, "ada", form["password"])
                assert (await http.get("/me", headers=headers)).status_code == 401
    finally:
        await close(client)


@pytest.mark.slow
async def test_guesses_of_one_user_are_delayed_and_the_others_are_not(tmp_path: Path) -> None:
    path = tmp_path / "users"
    users.add(path, "ada", "pw")
    users.add(path, "eve", "pw")
    clock = MovedClock()
    access = Access(Users(path), clock=clock)
    guessed: list[Any] = [await access.sign_in("ada", f"guess {n}", "192.0.2.1") for n in range(15)]
    assert guessed == [False] * 10 + [None] * 5
    # The right one has to wait there as well; from elsewhere it does not, nor do other users.
    assert await access.sign_in("ada", "pw", "192.0.2.1") is None
    assert await access.sign_in("eve", "pw", "192.0.2.1") is True
    assert await access.sign_in("ada", "pw", "192.0.2.2") is True
    assert await access.sign_in("ada", "pw", "192.0.2.1") is True
    clock.wait(10)
    assert await access.sign_in("ada", "guess", "192.0.2.1") is False
    assert await access.sign_in("ada", "guess", "192.0.2.1") is None


def test_a_provisioned_name_is_checked_like_an_unknown_one(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []

    class Hasher:
        def verify(self, known: str, given: str) -> None:
            checked.append(known)

    monkeypatch.setattr(users, "_HASHER", Hasher())
    directory: Any = FakeDirectory(provisioned=(Grant(VIEW),))
    known = Users(None, directory)
    assert not known.check(LoginCredentials("provisioned", "x"))
    assert not known.check(LoginCredentials("nobody", "x"))
    assert checked == [users._NOBODY] * 2


async def test_lists_hold_the_apps_of_the_grants_with_the_permission_of_the_route() -> None:
    grants = (Grant(VIEW, "Shop*"), Grant(frozenset({Permission.DATA_WRITE}), "Bank"))
    access, _ = access_of(eve=grants)
    app: Any = make_app(FakeService({"Shop": TEXT, "Bank": TEXT}).as_manager, access)
    transport = httpx.ASGITransport(app, client=("192.0.2.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        listed = (await client.get("/siddhi-apps", auth=("eve", "x"))).json()
        count = (await client.get("/siddhi-apps/count", auth=("eve", "x"))).json()
    assert (listed, count) == (["Shop"], 1)


def test_an_app_that_is_not_deployed_shows_those_that_the_user_may_see() -> None:
    names = ("Bank", "Shop", "ShopTwo")
    apps = [SimpleNamespace(value=SimpleNamespace(spec=SimpleNamespace(name=n))) for n in names]
    snapshot = SimpleNamespace(apps=apps, app=lambda _: None)
    client: Any = SimpleNamespace(jetstream=lambda: None)
    view: Any = SimpleNamespace(snapshot=lambda: snapshot, unreadable={})
    desired = DesiredState(client, view, MovedClock())

    def detail(*grants: Grant) -> str:
        token = current.set(Identity("eve", grants))
        try:
            with pytest.raises(MeshError, match="not deployed") as refused:
                desired.get("Other")
        finally:
            current.reset(token)
        return refused.value.detail or ""

    assert detail(Grant(VIEW, "Shop*")) == "Deployed are: Shop, ShopTwo."
    assert detail(Grant(frozenset({Permission.DATA_WRITE}), "Bank")) == "Deployed are: none."
    assert detail(Grant(VIEW)) == "Deployed are: Bank, Shop, ShopTwo."
