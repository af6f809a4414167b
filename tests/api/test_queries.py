"""On-demand queries at the API."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from mesh.api import users
from mesh.model.access import Permission
from tests.support.api import FakeService, served
from tests.support.api_asked import ask, secured

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.settings import ManagerSettings

__all__ = ("secured",)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"appName": "Shop", "aggName": "Sales"}, 200),
        ({"appName": "Shop", "aggName": "Other"}, 404),
        ({"appName": "Shop"}, 400),
        ([], 400),
    ],
)
def test_an_aggregation_needs_no_loading(asked: Any, status: int) -> None:
    assert ask(FakeService(), "POST", "/stores/initAgg", json=asked).status_code == status


CHANGE = {"appName": "Shop", "query": "delete T on true"}


@pytest.mark.slow
def test_a_change_of_a_table_needs_the_permission_to_manage(
    secured: ManagerSettings, tmp_path: Path
) -> None:
    async def run() -> None:
        users.add(tmp_path / "users", "eve", "e", frozenset({Permission.DATA_READ}))
        context = ssl.create_default_context(cafile=secured.tls_cert)
        change = {**CHANGE, "id": "i-1"}
        async with (
            served(FakeService(), secured) as api,
            httpx.AsyncClient(base_url=api.url, verify=context) as client,
        ):
            for user, may in ((("ada", "pass:word"), True), (("eve", "e"), False)):
                answer = await client.post("/stores/query", json=change, auth=user)
                assert answer.json()["records"] == [[may, "i-1"]]
            wrong = {**change, "id": "a b"}
            answer = await client.post("/stores/query", json=wrong, auth=("ada", "pass:word"))
            assert (answer.status_code, answer.json()["code"]) == (400, "MESH-A400")

    anyio.run(run)
    # An API without users allows all.
    open_to_all = ask(FakeService(), "POST", "/stores/query", json={**CHANGE, "id": ""})
    assert open_to_all.json()["records"] == [[True, ""]]


def test_an_on_demand_query_is_answered_as_the_system_before_did() -> None:
    asked = {"appName": "Shop", "query": "from T", "details": True, "min_position": {"s": 3}}
    answer = ask(FakeService(), "POST", "/stores/query", json=asked)
    assert answer.status_code == 200
    found = answer.json()
    assert found["records"] == [["Shop", "from T", {"s": 3}, False]]
    assert found["details"][0] == {"name": "c0", "dataType": "OBJECT"}
    away = ask(FakeService(), "POST", "/stores/query", json={**asked, "query": "from Away"})
    assert (away.status_code, away.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize(
    "faulty",
    [
        "{",
        "[]",
        {"appName": "Shop"},
        {"appName": "Shop", "query": " "},
        {"query": "from T"},
        {"appName": "a.*", "query": "from T"},
        {"appName": "Shop", "query": "from T", "min_position": {"s": -1}},
        {"appName": "Shop", "query": "from T", "partial": "yes"},
    ],
)
def test_a_faulty_request_for_a_query_is_refused(faulty: Any) -> None:
    content = faulty if isinstance(faulty, str) else json.dumps(faulty)
    answer = ask(FakeService(), "POST", "/stores/query", content=content)
    assert (answer.status_code, answer.json()["code"]) == (400, "MESH-A400")
