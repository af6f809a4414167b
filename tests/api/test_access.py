"""Who may reach which route: every route with every role, grants for some apps, tokens, audit."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import httpx
import pytest
from starlette.routing import Route

from mesh.api import permissions, users
from mesh.api.auth import Access
from mesh.api.permissions import OPEN_PATHS, ROUTES, SIGN_IN
from mesh.api.rates import RateLimits
from mesh.api.users import Users
from mesh.errors import MeshError
from mesh.jetstream import directory as directory_module
from mesh.jetstream.connection import close, connect
from mesh.jetstream.directory import ApiToken, Directory, DirectoryUser
from mesh.model.access import ALL, ROLES, Grant, Permission, permissions_of, within
from mesh.model.operation import ANY_USER
from mesh.settings import NatsSettings
from tests.support.api import TEXT, FakeService
from tests.support.api_users import access_of, app_of, client_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mesh.jetstream.server import NatsServer

#: Values for the parameters of paths.
PARAMETERS: Final = {
    "app": "Shop", "id": "1", "revision": "r1", "node": "w1", "order": "drain", "user": "ada",
    "token": "t", "secret": "db", "stream": "Orders", "sequence": "1",
    "other": "Shop", "feed": "Idle", "file": "events.csv",
    "kind": "User", "urn": "urn:x", "resource": "r", "unknown": "x",
    "product": "MON", "permission": "d4525791-56cb-3379-9307-0e799eed1c85", "role": "admin",
}  # fmt: skip
#: A hash that is quick to check.
HASH: Final = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$mZbVHJtcPJ7vv7gOZCpbFg"


def _routes() -> list[str]:
    found = []
    for one in app_of(Access(None)).routes:
        assert isinstance(one, Route), f"{one} is no route with a permission"
        if one.path_format not in OPEN_PATHS:
            found += [f"{m} {one.path_format}" for m in sorted((one.methods or set()) - {"HEAD"})]
    return found


def test_every_route_has_a_permission() -> None:
    missing = set(_routes()) - set(ROUTES)
    assert not missing, f"give these a permission in mesh/model/operations.py: {missing}"


def test_a_route_without_a_permission_is_reached_by_no_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = [one for one in permissions._PATTERNS if one[0] != "GET /nodes"]
    monkeypatch.setattr(permissions, "_PATTERNS", others)

    async def run() -> int:
        async with client_of(Access(None), base="http://localhost") as client:
            return (await client.get("/nodes")).status_code

    assert anyio.run(run) == 404


def test_every_route_with_every_role() -> None:
    """A role reaches a route exactly if it has the permission of the table."""
    who: dict[str, tuple[Grant, ...]] = {role: (Grant(may),) for role, may in ROLES.items()}
    who |= {one.replace(".", "-"): (Grant(frozenset({one})),) for one in Permission}
    access, _ = access_of(**who)

    async def run() -> list[str]:
        wrong = []
        async with client_of(access) as client:
            for route in set(_routes()) - {SIGN_IN}:
                method, _, path = route.partition(" ")
                filled = path.format(**PARAMETERS)
                permission = ROUTES[route]
                for name, grants in who.items():
                    answer = await client.request(method, filled, auth=(name, "x"))
                    may = permission is ANY_USER or permission in grants[0].may
                    if (answer.status_code != 403) != may:
                        wrong.append(f"{name} {route}: {answer.status_code}")
                anonymous = await client.request(method, filled)
                if anonymous.status_code != 401:
                    wrong.append(f"nobody {route}: {anonymous.status_code}")
        return wrong

    assert anyio.run(run) == []


def test_a_grant_for_some_apps_reaches_those_apps_only() -> None:
    access, _ = access_of(eve=(Grant(ALL, "Shop*"),), bob=(Grant(ALL, "Other"),))
    single = {"siddhiAppName": "Shop", "streamName": "Orders", "data": ["a", 1]}
    query = {"appName": "Shop", "query": "from T select *"}
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/simulation/single", {"json": single}),
        ("POST", "/stores/query", {"json": query}),
        *(("POST", path, {"content": TEXT, "headers": {"Content-Type": "text/plain"}})
          for path in ("/siddhi-apps", "/siddhi-apps/plan")),
        ("PUT", "/siddhi-apps", {"content": TEXT, "headers": {"Content-Type": "text/plain"}}),
        *((route.split(" ")[0], route.split(" ")[1].format(**PARAMETERS), {})
          for route in ROUTES if "{app}" in route and "restore" not in route),
    ]  # fmt: skip
    cluster = ("/nodes", "/metrics", "/overview", "/users", "/audit")

    async def run() -> None:
        async with client_of(access) as client:
            for method, path, more in requests:
                allowed = await client.request(method, path, auth=("eve", "x"), **more)
                refused = await client.request(method, path, auth=("bob", "x"), **more)
                assert allowed.status_code != 403, (method, path)
                assert refused.status_code == 403, (method, path)
            for path in cluster:
                assert (await client.get(path, auth=("eve", "x"))).status_code == 403, path
            as_other = "/siddhi-apps/Shop/restore?as=Else"
            assert (await client.post(as_other, auth=("eve", "x"))).status_code == 403

    anyio.run(run)


def test_lists_hold_the_apps_of_the_grants() -> None:
    access, _ = access_of(eve=(Grant(ALL, "Shop*"),), bob=(Grant(ALL, "Other"),))

    async def run() -> dict[str, list[list[Any]]]:
        found = {}
        async with client_of(access) as client:
            for path in ("/siddhi-apps?details=true", "/error-handler"):
                found[path] = [
                    [one["app"] for one in (await client.get(path, auth=(name, "x"))).json()]
                    for name in ("eve", "bob")
                ]
        return found

    assert list(anyio.run(run).values()) == [[["Shop"], []], [["Shop"], []]]


async def test_refusals_changes_and_payloads_are_audited_and_nothing_secret_is() -> None:
    access, noted = access_of(ada=(Grant(ALL),), eve=(Grant(ROLES["operator"]),))

    async with client_of(access) as client:
        await client.get("/siddhi-apps", auth=("ada", "hunter2"))
        await client.get("/siddhi-apps/Shop/errors", auth=("ada", "hunter2"))
        await client.delete("/siddhi-apps/Shop", auth=("ada", "hunter2"))
        await client.delete("/siddhi-apps/Shop", auth=("eve", "hunter2"))
        await client.get("/nodes", auth=("mallory", "hunter2"))
        await client.get("/nodes", headers={"Authorization": "Bearer mesh_hunter2"})
    assert [(one.user, one.method, one.status, one.app, one.permission) for one in noted] == [
        ("ada", "GET", 200, "Shop", "data.read"),
        ("ada", "DELETE", 200, "Shop", "apps.manage"),
        ("eve", "DELETE", 403, "Shop", "apps.manage"),
        ("mallory", "GET", 401, "", "monitor"),
        ("", "GET", 401, "", "monitor"),
    ]
    assert {one.source for one in noted} == {"192.0.2.1"}
    assert "hunter2" not in str(noted)


def test_a_change_that_fails_by_a_fault_is_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    access, noted = access_of(ada=(Grant(ALL),))

    async def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(FakeService, "undeploy", fail)

    async def run() -> int:
        async with client_of(access) as client:
            answer = await client.delete("/siddhi-apps/Shop", auth=("ada", "x"))
            assert answer.headers["x-content-type-options"] == "nosniff"
            return answer.status_code

    assert anyio.run(run) == 500
    assert [(one.user, one.method, one.status, one.app) for one in noted] == [
        ("ada", "DELETE", 500, "Shop")
    ]


def test_answers_have_security_headers() -> None:
    async def run() -> list[httpx.Response]:
        async with client_of(Access(None), base="https://localhost") as client:
            return [await client.get(path) for path in ("/health", "/nodes", "/nothing")]

    for answer in anyio.run(run):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "max-age" in answer.headers["strict-transport-security"]


def test_rates_are_of_each_name_and_fill_with_time() -> None:
    limits = RateLimits(rate=2.0, burst=3.0)
    assert [limits.admit("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert limits.admit("b", 0.0)
    assert not limits.admit("a", 0.4)
    assert limits.admit("a", 0.6)
    for number in range(10_000):
        limits.admit(str(number), 1.0)
    assert len(limits._left) <= 4096


def test_an_address_that_asks_too_often_is_refused() -> None:
    access, _ = access_of(ada=(Grant(ALL),))
    slow = Access(access.users, limits=RateLimits(rate=0.001, burst=6.0))

    async def run() -> list[int]:
        async with client_of(slow) as client:
            return [
                (await client.get("/siddhi-apps", auth=("ada", "x"))).status_code for _ in range(8)
            ]

    assert anyio.run(run) == [200] * 6 + [429] * 2


def test_a_user_that_asks_too_often_is_refused_wherever_it_asks() -> None:
    access, _ = access_of(ada=(Grant(ALL),), eve=(Grant(ALL),))
    slow = Access(access.users, limits=RateLimits(rate=0.001, burst=6.0))

    async def status(user: str, address: str) -> int:
        async with client_of(slow, address=address) as client:
            return (await client.get("/siddhi-apps", auth=(user, "x"))).status_code

    async def run() -> list[int]:
        return [await status("ada", f"192.0.2.{number}") for number in range(8)]

    assert anyio.run(run) == [200] * 6 + [429] * 2
    assert anyio.run(status, "eve", "192.0.2.8") == 200


@pytest.mark.parametrize(
    ("words", "may"),
    [
        (["view"], {"apps.view", "data.read"}),
        (["manage"], {"apps.manage", "data.write", "nodes.manage"}),
        (["SAPP.siddhiApp.manage"], {"apps.view", "apps.manage"}),
        (["SIM.simulator.manage", "monitor"], {"apps.view", "data.write", "monitor"}),
        (["operator"], {"apps.view", "monitor", "nodes.manage"}),
        (["SAPP.siddhiApp.view"], {"apps.view"}),
        (["SIM.simulator.view"], {"apps.view"}),
        (["BRM.businessrules.viewer"], {"apps.view"}),
        (["BRM.businessrules.manager"], {"apps.view", "apps.manage"}),
        (["MON.viewer"], {"apps.view", "monitor"}),
        (["MON.metrics.manager"], {"monitor"}),
        (
            ["MON.manager"],
            {"apps.view", "monitor", "apps.manage", "data.write", "nodes.manage"},
        ),
    ],
)
def test_words_of_before_stand_for_permissions(words: list[str], may: set[str]) -> None:
    assert permissions_of(words) == may


def test_a_limit_leaves_what_both_sides_give() -> None:
    view = frozenset({Permission.APPS_VIEW})
    assert within([Grant(ALL)], Grant(view, "Shop*")) == (Grant(view, "Shop*"),)
    assert within([Grant(view, "Shop*")], Grant(ALL)) == (Grant(view, "Shop*"),)
    assert within([Grant(view, "Shop*")], Grant(ALL, "ShopA")) == (Grant(view, "ShopA"),)
    assert within([Grant(view, "Other")], Grant(ALL, "Shop*")) == ()
    # The letter that a wildcard might be taken for.
    assert within([Grant(ALL)], Grant(view, "x*")) == (Grant(view, "x*"),)
    assert within([Grant(ALL, "Sh*")], Grant(view, "Shx*")) == (Grant(view, "Shx*"),)
    assert within([Grant(view, "Sh*")], Grant(ALL, "*op")) == ()
    assert within([Grant(view, "S*")], Grant(ALL, "S*op")) == (Grant(view, "S*op"),)
    assert within([Grant(view)], Grant(frozenset({Permission.ADMIN}))) == ()


# ---- the directory in NATS


@asynccontextmanager
async def directories(nats_server: NatsServer, count: int) -> AsyncIterator[list[Directory]]:
    """Directories of several managers."""
    client = await connect(NatsSettings(nats_server.url), "test")
    made = [Directory(client.jetstream()) for _ in range(count)]
    try:
        async with anyio.create_task_group() as tasks:
            for one in made:
                await one.start()
                tasks.start_soon(one.follow)
                await one.ready()
            yield made
            tasks.cancel_scope.cancel()
    finally:
        await close(client)


@pytest.mark.nats
async def test_the_first_user_is_made_with_the_logged_token_and_known_to_every_manager(
    nats_server: NatsServer,
) -> None:
    async with directories(nats_server, 2) as (one, other):
        token = await one.offer_setup()
        assert token is not None
        access, elsewhere = Access(Users(None, one)), Access(Users(None, other))
        setup = {"Authorization": f"Bearer {token}"}
        ada = {"name": "ada", "password": "twelve letters", "may": ["admin"]}
        async with client_of(access) as client, client_of(elsewhere) as second:
            with anyio.fail_after(20):
                while (await client.get("/me", headers=setup)).status_code == 401:
                    await anyio.lowlevel.checkpoint()
            assert (await client.get("/siddhi-apps", headers=setup)).status_code == 403
            assert (await client.post("/users", json=ada, headers=setup)).status_code == 201
            assert (
                await client.get("/siddhi-apps", auth=("ada", "twelve letters"))
            ).status_code == 200
            # The token was for the first user only.
            answer = await client.post("/users", json=ada, headers=setup)
            assert answer.status_code == 401
            with anyio.fail_after(20):
                while "ada" not in other.users:
                    await anyio.lowlevel.checkpoint()
            assert (
                await second.get("/siddhi-apps", auth=("ada", "twelve letters"))
            ).status_code == 200
            assert await other.offer_setup() is None
            listed = await client.get("/users", auth=("ada", "twelve letters"))
            assert "argon2" not in listed.text
            assert [user["name"] for user in listed.json()] == ["ada"]


@pytest.mark.nats
async def test_managers_that_start_together_log_tokens_that_are_all_valid(
    nats_server: NatsServer,
) -> None:
    async with directories(nats_server, 2) as (one, other):
        offered = await asyncio.gather(*(each.offer_setup() for each in (one, other) * 3))
        tokens = [token for token in offered if token is not None]
        assert len(set(tokens)) == 6
        with anyio.fail_after(20):
            while not all(each.is_setup(token) for each in (one, other) for token in tokens):
                await anyio.lowlevel.checkpoint()
        assert not one.is_setup(f"{tokens[0]}x")
        # Of a manager that starts over and over, the last ones are.
        for _ in range(16):
            last = await one.offer_setup()
        assert last is not None
        assert one.is_setup(last)
        assert not any(map(one.is_setup, tokens))


@pytest.mark.nats
async def test_a_token_is_shown_once_has_no_more_than_its_owners_rights_and_ends(
    nats_server: NatsServer,
) -> None:
    async with directories(nats_server, 1) as (directory,):
        hashed = users.hash_of("eve", "pw")
        developer = (Grant(ROLES["developer"], "Shop*"),)
        await directory.put_user(DirectoryUser("eve", hashed, developer))
        access = Access(Users(None, directory))
        wanted = {"name": "deploys", "days": 1, "may": ["admin"], "apps": "*"}
        async with client_of(access) as client:
            made = await client.post("/tokens", json=wanted, auth=("eve", "pw"))
            assert made.status_code == 201
            token = {"Authorization": f"Bearer {made.json()['token']}"}
            listed = await client.get("/tokens", auth=("eve", "pw"))
            assert made.json()["token"] not in listed.text
            assert (await client.get("/siddhi-apps/Shop", headers=token)).status_code == 200
            assert (await client.get("/siddhi-apps/Other", headers=token)).status_code == 403
            assert (await client.get("/users", headers=token)).status_code == 403
            # A token makes no tokens.
            again = await client.post("/tokens", json=wanted, headers=token)
            assert again.status_code == 403
            # Tokens end with their owner's rights, with their time, and when revoked.
            await directory.put_user(DirectoryUser("eve", hashed, ()))
            assert (await client.get("/siddhi-apps/Shop", headers=token)).status_code == 403
            await directory.put_user(DirectoryUser("eve", hashed, developer))
            (known,) = directory.tokens.values()
            assert known.is_valid(known.expires_ms - 1)
            assert not known.is_valid(known.expires_ms)
            gone = await client.delete(f"/tokens/{known.id}", auth=("eve", "pw"))
            assert gone.status_code == 200
            assert (await client.get("/siddhi-apps/Shop", headers=token)).status_code == 401


@pytest.mark.nats
async def test_a_user_has_a_bounded_number_of_tokens_and_expired_ones_go(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_module, "TOKENS_OF_USER_MAX", 3)
    async with directories(nats_server, 1) as (directory,):

        async def make(user: str, now_ms: int) -> ApiToken:
            return (await directory.make_token(user, "t", Grant(ALL), now_ms + 10, now_ms))[1]

        found = await asyncio.gather(*(make("eve", 0) for _ in range(9)), return_exceptions=True)
        refused = [one for one in found if isinstance(one, MeshError)]
        assert len(refused) == 6
        assert {one.code for one in refused} == {"MESH-A409"}
        # Any spelling is the same user; others have tokens of their own.
        with pytest.raises(MeshError, match="has 3 tokens"):
            await make("Eve", 9)
        await make("ada", 9)
        last = await make("eve", 10)
        assert {one.id for one in directory.tokens.values() if one.user == "eve"} == {last.id}


def test_no_handler_lists_apps_without_the_filter_of_grants() -> None:
    api = Path(permissions.__file__).parent
    found = {path.name for path in api.glob("*.py") if "service.apps()" in path.read_text("utf-8")}
    assert found == {"visible.py"}
