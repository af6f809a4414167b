"""Parameters of routes: names of apps are names."""

from __future__ import annotations

from typing import Any

import anyio
import httpx

from mesh.api.routing import AppName, EntryId
from tests.support.api import OPEN, TEXT, FakeService, served
from tests.support.api_routes import all_routes


def test_every_route_of_an_app_takes_names_of_apps_only() -> None:
    convertors = [
        (one.path, name, convertor)
        for one in all_routes()
        for name, convertor in one.param_convertors.items()
    ]
    assert sum(name == "app" for _, name, _ in convertors) > 20
    for path, name, convertor in convertors:
        wanted = {"app": AppName, "id": EntryId}.get(name, object)
        assert isinstance(convertor, wanted), path


def test_a_wildcard_in_the_place_of_an_app_is_not_found() -> None:
    service = FakeService({"Shop": TEXT})

    async def run() -> list[tuple[str, int, Any]]:
        found = []
        async with served(service, OPEN) as api, httpx.AsyncClient(base_url=api.url) as client:
            for one in (one for one in all_routes() if "app" in one.param_convertors):
                for name in ("%2A", "%3E", "a%2Eb", "a%20b", "a%0D%0Ab", "%2A%2F", "_x", "\u00e9"):
                    path = one.path.replace("{app:app_name}", name)
                    path = path.replace("{id:entry_id}", "1").replace("{revision}", "r1")
                    method = next(iter((one.methods or set()) - {"HEAD"}))
                    answer = await client.request(method, path, content=b"{}")
                    found.append((f"{method} {path}", answer.status_code, answer.json()))
        return found

    answers = anyio.run(run)
    assert len(answers) > 160
    refused = 404, {"code": "MESH-A404", "message": "not found", "type": "not found"}
    assert [(path, *answer) for path, *answer in answers if tuple(answer) != refused] == []
    assert service.events.done == []
