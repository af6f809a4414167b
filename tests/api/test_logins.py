"""Logins as the system before had them: golden requests, limits, the audit, and their ends."""

from __future__ import annotations

import asyncio
import itertools
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
import yaml

from mesh.api import users
from mesh.api.auth import LOGIN_PREFIX, Access, RateLimits
from mesh.api.page_access import PageAccess
from mesh.api.routes import make_app
from mesh.api.users import Users
from mesh.dashboard.server import is_for_page
from mesh.jetstream.connection import close, connect
from mesh.jetstream.directory import DirectoryUser
from mesh.jetstream.sessions import UserSessions
from mesh.model.access import ROLES, Grant
from mesh.settings import NatsSettings
from tests.api.test_originals import fits
from tests.support.api import TEXT, FakeService
from tests.support.api_users import FakeDirectory
from tests.support.clocks import MovedClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mesh.jetstream.audit import AuditEntry
    from mesh.jetstream.server import NatsServer

pytestmark = pytest.mark.nats

CASES: Final = yaml.safe_load(
    (Path(__file__).parents[1] / "cases" / "rest_login.yml").read_text("utf-8")
)
FORM: Final = {"grantType": "password", "username": "ada", "password": "pw"}
LOGIN: Final = "/login/monitoring"


@dataclass
class Cluster:
    """Managers of one cluster, by name."""

    clock: MovedClock
    directory: Any
    access: dict[str, Access]
    clients: dict[str, httpx.AsyncClient]
    noted: list[AuditEntry] = field(default_factory=list)

    async def token(self, at: str = "one") -> dict[str, str]:
        """The headers of a new login."""
        answer = await self.clients[at].post(LOGIN, data=FORM)
        return {"Authorization": f"Bearer {answer.json()['pID']}"}

    async def status(self, headers: dict[str, str], at: str = "one") -> int:
        """Of a request with a token."""
        return (await self.clients[at].get("/siddhi-apps", headers=headers)).status_code


@asynccontextmanager
async def cluster(
    nats_server: NatsServer, limits: RateLimits | None = None
) -> AsyncIterator[Cluster]:
    client = await connect(NatsSettings(nats_server.url), "test")
    directory: Any = FakeDirectory()
    directory.users["ada"] = DirectoryUser(
        "ada", users.hash_of("ada", "pw"), (Grant(ROLES["admin"]),)
    )
    made = Cluster(MovedClock(), directory, {}, {})
    try:
        for name in ("one", "other"):
            access = Access(
                Users(None, directory), sessions=UserSessions(client.jetstream(), made.clock),
                note=made.noted.append, clock=made.clock, limits=limits or RateLimits(),
            )  # fmt: skip
            app = make_app(FakeService({"Shop": TEXT}).as_manager, access)
            transport = httpx.ASGITransport(app, client=("192.0.2.1", 1))
            made.access[name] = access
            made.clients[name] = httpx.AsyncClient(transport=transport, base_url="http://api")
        yield made
    finally:
        for one in made.clients.values():
            await one.aclose()
        await close(client)


def test_each_request_has_the_answer_of_the_original(nats_server: NatsServer) -> None:
    async def run() -> list[str]:
        wrong: list[str] = []
        kept: dict[str, str] = {}
        async with cluster(nats_server) as managers:
            for number, case in enumerate(CASES):
                managers.clock.ms += int(case.get("wait", 0) * 1000)
                more: dict[str, Any] = {"headers": {}}
                if "token" in case:
                    more["headers"] = {"Authorization": f"Bearer {kept[case['token']]}"}
                more |= {"data": case["form"]} if "form" in case else {}
                more |= {"json": case["body"]} if "body" in case else {}
                more |= {"auth": tuple(case["auth"])} if "auth" in case else {}
                client = managers.clients[case.get("at", "one")]
                got = await client.request(case["method"], case["path"], **more)
                if "keep" in case:
                    kept[case["keep"]] = got.json()["pID"]
                if got.status_code != case.get("status", 200) or not fits(
                    case["answer"], got.json()
                ):
                    wrong.append(f"{number} {case['path']}: {got.status_code} {got.text}")
                assert "set-cookie" not in got.headers
        return wrong

    assert "\n".join(asyncio.run(run())) == ""


async def test_a_login_ends_with_its_user_and_with_a_sign_out_everywhere(
    nats_server: NatsServer,
) -> None:
    async with cluster(nats_server) as managers:
        token = await managers.token()
        ada = managers.directory.users.pop("ada")
        managers.directory.version += 1
        assert await managers.status(token) == 401
        managers.directory.users["ada"] = ada
        managers.directory.version += 1
        assert await managers.status(token) == 200
        ended = await managers.clients["other"].delete("/users/ada/sessions", auth=("ada", "pw"))
        assert ended.json()["sessions"] == 1
        managers.clock.ms += 2000
        assert [await managers.status(token, at) for at in ("one", "other")] == [401, 401]


async def test_a_login_ends_after_twelve_hours_however_it_is_renewed(
    nats_server: NatsServer,
) -> None:
    # Every 25 minutes; the last one is for what is left of the 12 hours.
    found = []
    async with cluster(nats_server) as managers:
        token = await managers.token()
        for _ in range(30):
            managers.clock.ms += 1_500_000
            renewed = await managers.clients["one"].post(
                LOGIN, data={"grantType": "refresh_token"}, headers=token
            )
            if renewed.status_code != 200:
                break
            found.append(renewed.json()["validityPeriod"])
            token = {"Authorization": f"Bearer {renewed.json()['pID']}"}
    assert found == [1800] * 27 + [1200]


async def test_tokens_of_logins_and_cookies_of_pages_are_not_interchangeable(
    nats_server: NatsServer,
) -> None:
    async with cluster(nats_server) as managers:
        kept = managers.access["one"].sessions
        assert kept is not None
        access = PageAccess(managers.access["one"])
        page = await kept.begin("ada")
        login = (await managers.token())["Authorization"].removeprefix(f"Bearer {LOGIN_PREFIX}")
        assert await access.session(page) is not None
        assert await access.session(login) is None
        for name in (page, f"{LOGIN_PREFIX}{page}", login):
            assert await managers.status({"Authorization": f"Bearer {name}"}) == 401


def test_sign_ins_are_limited_audited_and_logged_without_passwords(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> list[int]:
        async with cluster(nats_server, RateLimits(0.001, 4.0)) as managers:
            found = []
            for password in itertools.islice(itertools.cycle(("hunter2", "pw")), 5):
                form = FORM | {"password": password}
                found.append((await managers.clients["one"].post(LOGIN, data=form)).status_code)
            noted = [(one.user, one.method, one.path, one.status) for one in managers.noted]
            assert noted == [
                ("ada", "POST", LOGIN, 401), ("ada", "POST", LOGIN, 200),
                ("ada", "POST", LOGIN, 401), ("ada", "POST", LOGIN, 200),
                ("", "POST", LOGIN, 429),
            ]  # fmt: skip
            assert "hunter2" not in str(managers.noted)
            return found

    with caplog.at_level(logging.WARNING, logger="mesh.api.auth"):
        assert asyncio.run(run()) == [401, 200, 401, 200, 429]
    logged = [one for one in caplog.records if one.name == "mesh.api.auth"]
    # One line of an address each minute.
    assert [one.getMessage() for one in logged] == ["login failed"]
    assert "hunter2" not in str([vars(one) for one in logged])


@pytest.mark.parametrize(
    ("path", "is_page"),
    [
        ("/login", True), ("/logout", True), ("/login/oidc/callback", True),
        ("/login/monitoring", False), ("/logout/monitoring", False),
    ],
)  # fmt: skip
def test_pages_leave_the_routes_of_products_to_the_api(path: str, is_page: bool) -> None:
    assert is_for_page({"type": "http", "method": "POST", "path": path, "headers": []}) is is_page


def test_a_login_for_another_sites_page_is_refused(nats_server: NatsServer) -> None:
    async def run() -> int:
        async with cluster(nats_server) as managers:
            origin = {"Origin": "https://evil.example"}
            answer = await managers.clients["one"].post(LOGIN, data=FORM, headers=origin)
            return answer.status_code

    assert asyncio.run(run()) == 403
