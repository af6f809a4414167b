"""Routes of the system before this one: each answer has at least the keys that its clients read."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
import yaml

from mesh.api.originals import named, permission_id
from mesh.manager.manager import running
from mesh.model.access import ROLES
from mesh.model.cluster import StatisticsLevel
from mesh.settings import ManagerSettings, NatsSettings, Settings
from tests.api.test_monitoring import Leading
from tests.support.api import OPEN, TEXT_PLAIN, served

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

CASES = yaml.safe_load((Path(__file__).parents[1] / "cases" / "rest.yml").read_text("utf-8"))
TYPES: dict[str, Any] = {
    "str": str, "int": int, "number": (int, float), "bool": bool, "list": list,
}  # fmt: skip


def fits(wanted: Any, got: Any) -> bool:
    """Whether an answer has everything of the recorded one."""
    match wanted:
        case dict():
            return isinstance(got, dict) and all(
                key in got and fits(value, got[key]) for key, value in wanted.items()
            )
        case list():
            return isinstance(got, list) and len(got) == len(wanted) and all(map(fits, wanted, got))
        case str() if wanted in TYPES:
            return isinstance(got, TYPES[wanted])
        case _:
            return bool(got == wanted)


def within(case: dict[str, Any], got: httpx.Response) -> bool:
    """Whether the JSON in the message of an answer has everything, too."""
    return "message" not in case or fits(case["message"], json.loads(got.json()["message"]))


async def wrong(case: dict[str, Any]) -> str:
    """The fault of the answer of a manager in the state of the recorded one; "" for none."""
    service = Leading(texts={} if "text" in case else {"Shop": "old"})
    async with served(service, OPEN) as api, httpx.AsyncClient(verify=False, timeout=60) as http:
        more: dict[str, Any] = {}
        if "text" in case:
            more = {"content": case["text"], "headers": TEXT_PLAIN}
        elif "body" in case:
            more = {"json": case["body"]}
        elif "file" in case:
            more = {"files": {"file": (case["file"], b"pen,2")}}
        got = await http.request(case["method"], f"{api.url}{case['path']}", **more)
        if got.status_code != case.get("status", 200):
            return f"{case['method']} {case['path']}: {got.status_code} {got.text}"
        if not fits(case["answer"], got.json()) or not within(case, got):
            return f"{case['method']} {case['path']}: {got.text}"
    return ""


async def test_each_route_has_the_keys_of_the_original() -> None:
    # A server takes a while to end.
    found = await asyncio.gather(*map(wrong, CASES))
    assert [one for one in found if one] == []


def test_the_text_of_an_app_is_text_for_who_asks_for_text() -> None:
    async def run() -> httpx.Response:
        async with served(Leading(), OPEN) as api, httpx.AsyncClient(base_url=api.url) as http:
            path = "/managers/siddhi-apps-execution/Shop"
            return await http.get(path, headers={"Accept": "text/plain"})

    assert anyio.run(run).text.lstrip().startswith("@App:name('Shop')")


@pytest.mark.slow
@pytest.mark.nats
async def test_levels_are_of_the_desired_state_and_restart_nothing(nats_server: NatsServer) -> None:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    text = "@App:name('A') define stream S (a int); from S[a > 1] select a insert into T;"
    async with running(settings) as (_, service):
        await service.deploy(text)
        before = service.record("A")
        await service.set_statistics("A", StatisticsLevel.DETAIL, by="ada")
        after = service.record("A")
        assert before is not None
        assert after is not None
        assert (before.statistics, after.statistics) == ("BASIC", "DETAIL")
        assert (before.spec, before.incarnation) == (after.spec, after.incarnation)
        assert (await service.apps())[0].statistics == "DETAIL"
        # A deploy of the same text keeps the level.
        await service.update(text)
        record = service.record("A")
        assert record is not None
        assert record.statistics is StatisticsLevel.DETAIL


@pytest.mark.parametrize(
    ("role", "suffix", "has"),
    [
        ("viewer", ".viewer", True), ("viewer", "MON.viewer", True), ("viewer", ".manager", False),
        ("admin", ".manager", True), ("operator", "siddhiApp.view", True),
        ("operator", "data.read", False), ("developer", "data.write", True), ("admin", "", False),
    ],
)  # fmt: skip
def test_roles_are_those_of_the_original_and_ours(role: str, suffix: str, has: bool) -> None:
    assert any(some <= ROLES[role] for some in named(suffix)) is has


def test_ids_of_permissions_are_those_of_the_originals_documentation() -> None:
    assert permission_id("MON.consumer") == "f0c74633-2f07-3896-841a-154afb0c29da"
