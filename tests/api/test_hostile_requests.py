"""Requests with names, numbers, times and headers that no client of ours sends."""

from __future__ import annotations

import errno
import os
import re
from typing import Any

import anyio
import httpx
import pytest

from mesh.api.routes import status_of
from mesh.errors import MeshError
from tests.support.api import OPEN, TEXT, TEXT_PLAIN, FakeService, served
from tests.support.api_routes import all_routes


def ask(service: FakeService, method: str, path: str, **more: Any) -> httpx.Response:
    """Send one request to an anonymous API."""

    async def run() -> httpx.Response:
        async with served(service, OPEN) as api, httpx.AsyncClient(base_url=api.url) as client:
            return await client.request(method, path, **more)

    return anyio.run(run)


@pytest.mark.parametrize(
    ("method", "path", "more", "status"),
    [
        ("POST", "/siddhi-apps?from=9999-12-31T23:59:59-23:59", {"content": TEXT}, 400),
        ("POST", "/siddhi-apps?from=0001-01-01T00:00:00%2B23:59", {"content": TEXT}, 400),
        ("GET", f"/error-handler/Shop/{'9' * 5000}", {}, 404),
        ("DELETE", f"/error-handler/Shop/{'9' * 5000}", {}, 404),
        ("GET", f"/siddhi-apps/Shop/errors?limit={'9' * 5000}", {}, 400),
        ("GET", "/siddhi-apps/Shop/errors?limit=nan", {}, 400),
        ("POST", "/error-handler/Shop/replay", {"content": b'{"id": 18446744073709551615}'}, 400),
        ("POST", "/error-handler/Shop/replay", {"content": b'{"ids": [-1]}'}, 400),
        ("POST", "/error-handler/Shop/replay", {"content": b'{"ids": [true]}'}, 400),
        ("GET", "/siddhi-apps", {"headers": {"Origin": "http://["}}, 403),
        ("GET", "/siddhi-apps", {"headers": {"Host": "["}}, 403),
    ],
)
def test_numbers_times_and_origins_out_of_range_are_refused(
    method: str, path: str, more: dict[str, Any], status: int
) -> None:
    answer = ask(FakeService({"Shop": TEXT}), method, path, **{"headers": TEXT_PLAIN, **more})
    assert answer.status_code == status
    assert answer.json()["code"] == f"MESH-A{status}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "time", [b"true", b"-1", b"1.5", b'"5"', b"[]", b"253402300800000", b"9" * 400, b"NaN"]
)
@pytest.mark.parametrize("path", ["single", "feed"])
def test_an_event_for_a_test_has_a_time_that_there_is(time: bytes, path: str) -> None:
    event = b'{"siddhiAppName":"Shop","streamName":"Orders","data":["a",1],"timestamp":%s}' % time
    body = b"[%s]" % event if path == "feed" else event
    answer = ask(FakeService({"Shop": TEXT}), "POST", f"/simulation/{path}", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "MESH-A400")


def test_a_feed_has_so_many_events_at_most() -> None:
    event = b'{"siddhiAppName":"Shop","streamName":"Orders","data":["a",1]}'
    body = b"[%s]" % b",".join([event] * 10_001)
    answer = ask(FakeService({"Shop": TEXT}), "POST", "/simulation/feed", content=body)
    assert (answer.status_code, answer.json()["code"]) == (413, "MESH-A413")


#: Bodies that are no JSON, or no values that a route has asked for.
BODIES = (
    b"\0" * 100,
    b"\xff\xfe",
    b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b"9" * 5000,
    b'"\\ud800"',
    b"null",
    b"[[]]",
    b'{"' + b"k" * 100_000 + b'":1}',
)


def _kind(path: str) -> str:
    if path.startswith("/scim"):
        return "application/scim+json"
    return "text/plain" if path.startswith("/siddhi-apps") else "application/json"


@pytest.mark.thorough
async def test_a_body_of_any_form_is_no_fault_of_the_server() -> None:
    wrong = []
    routes = [
        (method, re.sub(r"\{.*?\}", "x", path), body)
        for one in all_routes()
        for path in [one.path.replace("{app:app_name}", "Shop").replace("{id:entry_id}", "1")]
        for method in sorted((one.methods or set()) - {"HEAD", "GET"})
        for body in BODIES
    ]
    assert len(routes) > 250
    service = FakeService({"Shop": TEXT})
    async with served(service, OPEN) as api, httpx.AsyncClient(base_url=api.url) as client:
        for method, path, body in routes:
            headers = {"Content-Type": _kind(path)}
            answer = await client.request(method, path, content=body, headers=headers)
            if answer.status_code >= 500:
                wrong.append((method, path, body[:50], answer.status_code, answer.text[:200]))
    assert wrong == []


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("MESH-A404", 404),
        ("MESH-A503", 503),
        ("MESH-A100", 500),
        ("MESH-N110", 503),
        # A text that a node can't have, and a store that does not fit.
        ("MESH-C124", 409),
        ("MESH-C132", 400),
        ("MESH-C135", 403),
        ("MESH-S146", 400),
    ],
)
def test_an_error_has_the_status_of_its_code(code: str, status: int) -> None:
    assert status_of(MeshError(code, "an error")) == status


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_of_the_manager_is_told(code: int) -> None:
    class Full(FakeService):
        async def story(self, app: str) -> list[dict[str, str]]:
            raise OSError(code, os.strerror(code), "/tmp/mesh-backup-1/0")

    answer = ask(Full({"Shop": TEXT}), "GET", "/siddhi-apps/Shop/story")
    if code == errno.EIO:
        assert (answer.status_code, answer.json()["code"]) == (500, "MESH-A500")
        return
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["code"] == "MESH-A503"
    assert "/tmp/mesh-backup-1/0" in answer.json()["detail"]
    assert "TMPDIR" in answer.json()["hint"]


def test_a_request_that_is_one_too_many_is_told_when_to_come_back() -> None:
    class Busy(FakeService):
        async def story(self, app: str) -> list[dict[str, str]]:
            raise MeshError("MESH-A429", "8 requests wait for a story")

    answer = ask(Busy({"Shop": TEXT}), "GET", "/siddhi-apps/Shop/story")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
