"""The OpenAPI document, and requests that are made from it at random against a manager."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from starlette.routing import Route

from mesh.api import users
from mesh.api.auth import Access
from mesh.api.openapi import document
from mesh.api.permissions import ANY_USER, ROUTES, template
from mesh.api.routes import make_app
from mesh.api.server import ApiServer, listen
from mesh.jetstream.audit import Audit
from mesh.jetstream.directory import Directory
from mesh.manager.manager import running
from mesh.settings import ManagerSettings, NatsSettings, Settings
from tests.support.api import FakeService

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

#: Requests of each route and user.
EXAMPLES = 2


def _routes() -> list[Route]:
    return [r for r in make_app(FakeService(), Access(None)).routes if isinstance(r, Route)]


def test_the_document_has_every_route_with_its_parameters_and_permission() -> None:
    found = document(_routes())
    for one in _routes():
        for method in (one.methods or set()) - {"HEAD"}:
            operation = found["paths"][template(one.path)][method.lower()]
            assert operation["summary"], one.path
            named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert named == set(one.param_convertors)
    assert found["paths"]["/siddhi-apps"]["post"]["description"] == "Permission: apps.manage."
    assert found["paths"]["/health"]["get"]["security"] == []


def test_it_is_served() -> None:
    async def run() -> dict[str, Any]:
        transport = httpx.ASGITransport(make_app(FakeService(), Access(None)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            values: dict[str, Any] = (await client.get("/openapi.json")).json()
            return values

    assert "/openapi.json" in anyio.run(run)["paths"]


@pytest.fixture
def api(nats_server: NatsServer, tmp_path: Path) -> Iterator[str]:
    """The URL of a manager with the users ``ada``, who may all, and ``eve``, who may nothing."""
    file = tmp_path / "users"
    users.add(file, "ada", "pw")
    manager = ManagerSettings(id="m1", port=0, users_file=str(file), requests_per_s=0.0)
    whole = Settings(nats=NatsSettings(url=nats_server.url), manager=manager)
    found: concurrent.futures.Future[str] = concurrent.futures.Future()
    ended = threading.Event()

    async def serve() -> None:
        async with running(whole) as (_, service), anyio.create_task_group() as tasks:
            directory, audit = Directory(service.client.jetstream()), Audit(service.client)
            await audit.start()
            await directory.start()
            tasks.start_soon(directory.follow)
            tasks.start_soon(audit.follow)
            await directory.ready()
            server = ApiServer(service, manager, listen(manager), directory=directory, audit=audit)
            tasks.start_soon(server.run)
            found.set_result(server.url)
            await asyncio.to_thread(ended.wait)
            server.stop()
            tasks.cancel_scope.cancel()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield found.result(60)
    finally:
        ended.set()
        thread.join(30)


@pytest.mark.extended
@pytest.mark.nats
def test_random_requests_meet_no_fault_and_reach_nothing_without_a_permission(api: str) -> None:
    ada, token = ("ada", "pw"), ""
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
