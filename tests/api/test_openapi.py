"""The OpenAPI document, and requests that are made from it at random against a manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from starlette.routing import Route

from mesh.api.auth import ROUTES, Access
from mesh.api.openapi import document
from mesh.api.routes import make_app
from mesh.model.operation import ANY_USER
from mesh.model.operations import OPERATIONS
from tests.support.api import FakeService
from tests.support.manager_api import manager_api

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer

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
