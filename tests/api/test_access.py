"""Who may reach which route: every route with every role, grants for some apps, tokens, audit."""

from __future__ import annotations

from typing import Any, Final

import anyio
import httpx
import pytest

from mesh.api.auth import ROUTES, SIGN_IN, Access
from mesh.model.access import ALL, ROLES, Grant, Permission
from mesh.model.operation import ANY_USER
from tests.support.accessed import routes
from tests.support.api import TEXT, FakeService
from tests.support.api_users import access_of, client_of

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


@pytest.mark.slow
def test_every_route_with_every_role() -> None:
    """A role reaches a route exactly if it has the permission of the table."""
    who: dict[str, tuple[Grant, ...]] = {role: (Grant(may),) for role, may in ROLES.items()}
    who |= {one.replace(".", "-"): (Grant(frozenset({one})),) for one in Permission}
    access, _ = access_of(**who)

    async def run() -> list[str]:
        wrong = []
        async with client_of(access) as client:
            for route in set(routes()) - {SIGN_IN}:
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


# ---- the directory in NATS
