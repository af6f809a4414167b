"""The REST API over a small service of its own: apps, nodes, probes, refusals.

The OpenAPI document, and requests that are made from it at random against a manager.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from starlette.routing import Route

from mesh.api import users
from mesh.api.auth import ROUTES, Access
from mesh.api.routes import document, make_app
from mesh.model.operation import ANY_USER
from mesh.model.operations import OPERATIONS
from tests.support.api import (
    OPEN,
    TEXT,
    TEXT_PLAIN,
    FakeService,
    served,
)
from tests.support.api_asked import ask, open_request, secured
from tests.support.manager_api import manager_api

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.settings import ManagerSettings

__all__ = ("secured",)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("given", "begin"),
    [
        (None, "earliest"),
        ("latest", "latest"),
        ("17", "sequence 17"),
        ("2026-11-21T20:00:00Z", "2026-11-21T20:00:00+00:00"),
        ("2026-11-21T21:00:00.5+01:00", "2026-11-21T20:00:00.500000+00:00"),
        ("0", 400),
        ("yesterday", 400),
        ("2026-11-21T20:00:00", 400),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_an_app_begins_where_it_is_told_to(
    method: str, given: str | None, begin: str | int
) -> None:
    service = FakeService()
    parameters = {} if given is None else {"from": given}
    answer = ask(
        service, method, "/siddhi-apps", content=TEXT, headers=TEXT_PLAIN, params=parameters
    )
    if isinstance(begin, int):
        assert answer.status_code == begin
        assert service.begins == []
    else:
        assert answer.status_code == 201
        assert service.begins == [begin]


async def test_an_app_is_deployed_read_and_removed() -> None:
    service = FakeService()
    async with served(service, OPEN) as api, httpx.AsyncClient(base_url=api.url) as client:
        made = await client.post("/siddhi-apps", content=TEXT, headers=TEXT_PLAIN)
        assert made.status_code == 201
        assert made.headers["location"] == "/siddhi-apps/Shop"
        assert made.json()["app"] == "Shop"

        again = await client.post("/siddhi-apps", content=TEXT, headers=TEXT_PLAIN)
        assert again.status_code == 200

        other = await client.post("/siddhi-apps", content=TEXT + " ", headers=TEXT_PLAIN)
        assert other.status_code == 409
        assert other.json()["code"] == "MESH-A409"

        read = await client.get(made.headers["location"])
        assert read.json() == {"content": TEXT, "streams": {"Orders": {"item": "string"}}}
        assert (await client.get("/siddhi-apps")).json() == ["Shop"]

        assert (await client.delete("/siddhi-apps/Shop")).status_code == 200
        assert (await client.get("/siddhi-apps/Shop")).status_code == 404
        assert (await client.get("/siddhi-apps/Shop/status")).status_code == 404


def test_a_fault_in_the_text_is_answered_with_its_place() -> None:
    answer = ask(FakeService(), "POST", "/siddhi-apps", content="!", headers=TEXT_PLAIN)
    assert answer.status_code == 400
    assert answer.json() == {
        "code": "MESH-L100",
        "type": "validation error",
        "message": "no app",
        "hint": "Write one.",
        "position": {"line": 1, "column": 1, "length": 1},
    }


@pytest.mark.parametrize(
    ("headers", "content", "status"),
    [
        ({"Content-Type": "application/json"}, b"{}", 415),
        ({"Content-Type": "text/plain; charset=latin-1"}, b"x", 415),
        ({"Content-Type": 'text/plain; charset="UTF-8"'}, TEXT.encode(), 201),
        ({"Content-Type": "text/plain"}, b"\xef\xbb\xbf" + TEXT.encode(), 201),
        (TEXT_PLAIN, b"\xff\xfe", 400),
        (TEXT_PLAIN, b"x" * 1_000_001, 413),
    ],
)
def test_what_is_no_text_is_refused(headers: dict[str, str], content: bytes, status: int) -> None:
    answer = ask(FakeService(), "POST", "/siddhi-apps", content=content, headers=headers)
    assert answer.status_code == status
    assert status == 201 or answer.json()["code"] == f"MESH-A{status}"


async def test_waiting_for_an_app_to_run_ends_when_it_does() -> None:
    service = FakeService({"Shop": TEXT})
    async with served(service, OPEN) as api, httpx.AsyncClient(base_url=api.url) as client:
        path = "/siddhi-apps/Shop/status"
        early = await client.get(path, params={"wait": "running", "timeout": "0"})
        assert early.json()["state"] == "waiting"
        async with anyio.create_task_group() as tasks:

            async def ask_and_check() -> None:
                late = await client.get(path, params={"wait": "running", "timeout": "60"})
                assert late.json()["state"] == "running"

            tasks.start_soon(ask_and_check)
            service.runs.set()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/siddhi-apps/Shop/status?wait=stopped", 400),
        ("/siddhi-apps/Shop/status?wait=running&timeout=soon", 400),
        ("/siddhi-apps/Shop/status?wait=running&timeout=1e9", 400),
        ("/siddhi-apps/Shop/errors?limit=-1", 400),
        ("/siddhi-apps/Shop/errors?limit=3", 200),
        ("/nothing", 404),
        ("/siddhi-apps/broken/errors", 500),
    ],
)
async def test_parameters_and_paths_are_checked(path: str, status: int) -> None:
    answer = await open_request(FakeService({"Shop": TEXT}), "GET", path)
    assert answer.status_code == status
    assert status == 200 or answer.json()["code"].startswith("MESH-A")


def test_managers_are_the_nodes_that_manage() -> None:
    (manager,) = ask(FakeService(), "GET", "/managers").json()
    assert (manager["id"], manager["role"]) == ("m1", "manager")
    assert len(ask(FakeService(), "GET", "/nodes").json()) == 2


@pytest.mark.slow
async def test_a_user_is_needed_for_all_but_health(secured: ManagerSettings) -> None:
    service = FakeService()
    context = ssl.create_default_context(cafile=secured.tls_cert)
    async with (
        served(service, secured) as api,
        httpx.AsyncClient(base_url=api.url, verify=context) as client,
    ):
        assert api.url.startswith("https://")
        assert (await client.get("/health")).json() == {"status": "up"}
        bare = await client.get("/siddhi-apps")
        assert bare.status_code == 401
        assert bare.headers["www-authenticate"].startswith("Basic ")
        for wrong in (("ada", "no"), ("bob", "pass:word"), ("", ""), ("ada", "")):
            assert (await client.get("/siddhi-apps", auth=wrong)).status_code == 401
        for header in ("Basic", "Basic !!", "Bearer x", "Basic YWRh"):
            got = await client.get("/siddhi-apps", headers={"Authorization": header})
            assert got.status_code == 401
        right = ("ada", "pass:word")
        assert (await client.get("/siddhi-apps", auth=right)).status_code == 200
        await client.post("/siddhi-apps", content=TEXT, headers=TEXT_PLAIN, auth=right)
        assert service.by == ["ada"]


async def test_probes_need_no_user_and_say_whether_the_manager_can_serve(
    secured: ManagerSettings,
) -> None:
    service = FakeService()
    context = ssl.create_default_context(cafile=secured.tls_cert)
    async with (
        served(service, secured) as api,
        httpx.AsyncClient(base_url=api.url, verify=context) as client,
    ):
        ready = await client.get("/health/ready")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")
        service.reasons = ("NATS can't be reached",)
        ready = await client.get("/health/ready")
        assert ready.status_code == 503
        assert ready.json() == {"status": "not ready", "reasons": ["NATS can't be reached"]}
        assert (await client.get("/health/live")).json() == {"status": "up"}
        assert (await client.get("/health/other")).status_code == 401


@pytest.mark.slow
async def test_a_user_who_is_added_later_gets_in(secured: ManagerSettings, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=secured.tls_cert)
    async with (
        served(FakeService(), secured) as api,
        httpx.AsyncClient(base_url=api.url, verify=context) as client,
    ):
        assert (await client.get("/nodes", auth=("bob", "b"))).status_code == 401
        users.add(tmp_path / "users", "bob", "b")
        assert (await client.get("/nodes", auth=("bob", "b"))).status_code == 200


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not on this machine")
def test_the_documented_curl_deploys(secured: ManagerSettings, tmp_path: Path) -> None:
    (tmp_path / "app.siddhi").write_text(TEXT)

    async def run() -> tuple[int, str]:
        async with served(FakeService(), secured) as api:
            command = [
                "curl", "-X", "POST", f"{api.url}/siddhi-apps", "-H", "Content-Type: text/plain",
                "--data-binary", "@app.siddhi", "-u", "ada:pass:word",
                "--cacert", secured.tls_cert, "-sS", "-w", "%{http_code}",
            ]  # fmt: skip
            environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
            said = await anyio.run_process(
                command, cwd=tmp_path, env=environment, check=False, stderr=subprocess.STDOUT
            )
            return said.returncode, said.stdout.decode()

    code, said = anyio.run(run)
    assert code == 0, said
    body, status = said.rsplit("\n", 1)
    assert status == "201"
    assert json.loads(body)["app"] == "Shop"


def test_an_app_has_a_story() -> None:
    service = FakeService({"Shop": TEXT})
    assert ask(service, "GET", "/siddhi-apps/Shop/story").json() == [{"text": "deployed app Shop"}]
    assert ask(service, "GET", "/siddhi-apps/Other/story").status_code == 404


def test_a_worker_is_told_what_it_may_have() -> None:
    service = FakeService()
    answer = ask(service, "POST", "/nodes/w1/drain")
    assert answer.json() == {"id": "w1", "role": "draining"}
    assert ask(service, "POST", "/nodes/w9/drain").status_code == 404
    assert ask(service, "POST", "/nodes/w1/dance").status_code == 404
    assert service.by == [""]


def test_the_needs_of_a_text_at_a_rate_are_asked_for() -> None:
    path = "/siddhi-apps/what-if?at_rate=5000&at_rate=Orders%3D10&keys=1e6&cores=8"
    found = ask(FakeService(), "POST", path, content="text", headers=TEXT_PLAIN)
    assert found.json() == {"rates": ["5000", "Orders=10"], "keys": 1_000_000, "cores": 8}
    refused = ask(FakeService(), "POST", path, content="!", headers=TEXT_PLAIN)
    assert (refused.status_code, refused.json()["code"]) == (422, "MESH-C170")


@pytest.mark.slow
def test_the_outputs_of_a_text_are_asked_for_with_its_events() -> None:
    path = "/siddhi-apps/preview"
    asked = {
        "text": "text", "name": "Shop", "events": "e", "from": ["A", "B=C.D"], "last": 7,
        "since": "1", "until": "9", "against": "Shop", "keep": True,
    }  # fmt: skip
    found = ask(FakeService(), "POST", path, json=asked).json()
    assert found.pop("text") == "@App:name('Shop')\ntext"
    assert found == {key: value for key, value in asked.items() if key not in ("text", "name")}
    refused = ask(FakeService(), "POST", path, json={"text": "!"})
    assert (refused.status_code, refused.json()["code"]) == (422, "MESH-C172")
    several: list[Any] = [
        [], {}, {"text": ""}, {"text": 1}, {"text": "t", "from": "A"}, {"text": "t", "last": 0},
        {"text": "t", "last": True}, {"text": "t", "keep": 1}, {"text": "t", "events": ["e"]},
    ]  # fmt: skip
    for wrong in several:
        assert ask(FakeService(), "POST", path, json=wrong).status_code == 400, wrong


#: Requests of each route and user.
EXAMPLES = 2


def _routes() -> list[Route]:
    return [
        r for r in make_app(FakeService().as_manager, Access(None)).routes if isinstance(r, Route)
    ]


def test_the_document_has_every_route_with_its_parameters_and_permission() -> None:
    found = document()
    for one in _routes():
        for method in (one.methods or set()) - {"HEAD"}:
            operation = found["paths"][one.path_format][method.lower()]
            assert operation["summary"], one.path
            named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert named == set(one.param_convertors)
    assert found["paths"]["/siddhi-apps"]["post"]["description"] == "Permission: apps.manage."
    assert found["paths"]["/health"]["get"]["security"] == []


def test_each_operation_has_a_handler_and_each_handler_an_operation() -> None:
    routes = [f"{min((r.methods or set()) - {'HEAD'})} {r.path_format}" for r in _routes()]
    assert sorted(routes) == sorted(key for one in OPERATIONS for key in one.keys)


def test_it_is_served() -> None:
    async def run() -> dict[str, Any]:
        transport = httpx.ASGITransport(make_app(FakeService().as_manager, Access(None)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            values: dict[str, Any] = (await client.get("/openapi.json")).json()
            return values

    assert "/openapi.json" in anyio.run(run)["paths"]


@pytest.mark.extended
@pytest.mark.nats
def test_random_requests_meet_no_fault_and_reach_nothing_without_a_permission(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    with manager_api(nats_server, tmp_path) as api:
        _fuzz(api)


def _fuzz(api: str) -> None:
    ada = ("ada", "pw")
    with httpx.Client(base_url=api, auth=ada) as client:
        # A token of ada that leaves eve nothing but what is open to any user.
        limit = {"name": "eve", "may": ["nodes.manage"], "apps": "None"}
        token = client.post("/tokens", json=limit).json()["token"]
        schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    wrong: list[str] = []
    asked = 0

    def check(operation: Any) -> None:
        key = f"{operation.method.upper()} {operation.path}"

        @settings(
            max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            nonlocal asked
            asked += 2
            if case.query and "timeout" in case.query:
                case.query["timeout"] = "0"
            more = {"base_url": api, "timeout": 60}
            answer = case.call(**more, auth=ada)
            if answer.status_code >= 500:
                wrong.append(f"{key}: {answer.status_code} {answer.text[:200]}")
            headers = {"Authorization": f"Bearer {token}"}
            answer = case.call(**more, headers=headers)
            is_open = ROUTES.get(key, ANY_USER) is ANY_USER
            if answer.status_code < 300 and not is_open:
                wrong.append(f"{key}: {answer.status_code} without the permission")

        ask()

    for result in schema.get_all_operations():
        operation: Any = result
        check(operation.ok())
    assert wrong == []
    assert asked > 150
