"""The REST API over a small service of its own: statuses, refusals, users, certificates.

The file is longer than 400 lines because one small service serves every route.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import stat
import subprocess
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from mesh import certificate as certificates
from mesh.api import users
from mesh.api.server import ApiServer, listen
from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.model.access import Permission
from mesh.model.events import SimulatedEvent
from mesh.model.history import HistoryInput
from mesh.settings import ManagerSettings
from tests.support.api import (
    OPEN,
    TEXT,
    TEXT_PLAIN,
    FakeService,
    served,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def secured(tmp_path: Path) -> ManagerSettings:
    """HTTPS with one user, ada, whose password is 'pass:word'."""
    users.add(tmp_path / "users", "ada", "pass:word")
    certificate, key = certificates.self_signed(tmp_path, SystemClock().wall_ms())
    return ManagerSettings(
        port=0,
        tls_cert=str(certificate),
        tls_key=str(key),
        users_file=str(tmp_path / "users"),
    )


async def _open_request(service: FakeService, *arguments: Any, **more: Any) -> httpx.Response:
    async with served(service, OPEN) as api, httpx.AsyncClient(base_url=api.url) as client:
        return await client.request(*arguments, **more)


def ask(service: FakeService, *arguments: Any, **more: Any) -> httpx.Response:
    """Send one request to an anonymous API."""

    async def run() -> httpx.Response:
        return await _open_request(service, *arguments, **more)

    return anyio.run(run)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("method", "path", "body", "done"),
    [
        ("POST", "/error-handler/Shop/replay", {"ids": [2, 3]}, ("replay", "Shop", [2, 3], None)),
        ("POST", "/error-handler/Shop/replay", {"all": True}, ("replay", "Shop", None, None)),
        ("POST", "/error-handler/Shop/replay", {"id": 4, "event": {"a": 1}},
         ("replay", "Shop", [4], b'{"a":1}')),
        ("POST", "/error-handler/Shop/replay", {"id": 4, "payload": "a,b", "to": "stream"},
         ("replay", "Shop", [4], b"a,b", "stream")),
        ("POST", "/error-handler/error-entries", [{"id": 4, "siddhiAppName": "Shop"}],
         ("replay", "Shop", [4], None, "stream")),
        ("POST", "/error-handler/error-entries",
         [{"id": 4, "siddhiAppName": "Shop", "event": {"a": 1}}],
         ("replay", "Shop", [4], b'{"a":1}', "stream")),
        ("DELETE", "/error-handler/error-entries/5?siddhiApp=Shop", None,
         ("discard", "Shop", [5])),
        ("DELETE", "/error-handler/error-entries?siddhiApp=Shop", None, ("older", "Shop", 0)),
        ("DELETE", "/error-handler/error-entries?retentionDays=1&siddhiApp=Shop", None,
         ("older", "Shop", 86400.0)),
        ("DELETE", "/error-handler/Shop/5", None, ("discard", "Shop", [5])),
        ("DELETE", "/error-handler/Shop?all=true", None, ("discard", "Shop", None)),
        ("DELETE", "/error-handler/Shop?olderThan=60", None, ("older", "Shop", 60.0)),
        ("POST", "/simulation/single",
         {"siddhiAppName": "Shop", "streamName": "Orders", "data": ["pen", 2], "timestamp": 7},
         ("send", "Shop", SimulatedEvent("Orders", ["pen", 2], 7))),
        ("POST", "/simulation/feed",
         [{"app": "Shop", "stream": "Orders", "data": {"item": "pen"}}] * 2,
         ("send", "Shop", *[SimulatedEvent("Orders", {"item": "pen"})] * 2)),
        ("POST", "/error-handler/Shop/replay", {"ids": "all"}, 400),
        ("POST", "/error-handler/Shop/replay", [], 400),
        ("POST", "/error-handler/Shop/replay", {"id": 1, "to": "moon"}, 400),
        ("DELETE", "/error-handler/error-entries", None, 400),
        ("GET", "/error-handler/error-entries?siddhiApp=*", None, 400),
        ("GET", "/error-handler/error-entries/9", None, 404),
        ("POST", "/error-handler/error-entries", [{"id": 1}], 400),
        ("DELETE", "/error-handler/Shop", None, 400),
        ("DELETE", "/error-handler/Shop/9", None, 404),
        ("DELETE", "/error-handler/Shop?olderThan=never", None, 400),
        ("POST", "/simulation/single", {"app": "Shop", "data": []}, 400),
        ("POST", "/simulation/single", {"app": "S", "stream": "T", "data": [], "time_ms": ""}, 400),
        ("POST", "/simulation/feed", {"app": "Shop"}, 400),
        ("POST", "/simulation/feed?action=run", [], 400),
    ],
)  # fmt: skip
def test_events_are_replayed_discarded_and_sent(
    method: str, path: str, body: Any, done: tuple[Any, ...] | int
) -> None:
    service = FakeService()
    more = {"json": body} if body is not None else {}
    answer = ask(service, method, path, **more)
    if isinstance(done, int):
        assert answer.status_code == done
        assert service.events.done == []
    else:
        assert answer.status_code == 200
        assert service.events.done == [done]


def test_failed_events_are_listed() -> None:
    service = FakeService(texts={"Shop": TEXT})
    assert ask(service, "GET", "/error-handler").json() == [{"app": "Shop", "count": 5}]
    entries = "/error-handler/error-entries"
    assert ask(service, "GET", f"{entries}/count").json() == {"entriesCount": 5}
    some = ask(service, "GET", f"{entries}?siddhiApp=Shop&limit=2&offset=1").json()
    assert [(e["id"], e["siddhiAppName"]) for e in some] == [(3, "Shop"), (4, "Shop")]
    assert ask(service, "GET", f"{entries}/3").json()["errorOccurrence"] == "STORE_ON_STREAM_ERROR"
    listed = ask(service, "GET", "/error-handler/Shop?limit=2&before=4")
    assert listed.json() == [{"id": 2}, {"id": 3}]
    assert ask(service, "GET", "/error-handler/Shop/3").json() == {"id": 3}


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
    answer = await _open_request(FakeService({"Shop": TEXT}), "GET", path)
    assert answer.status_code == status
    assert status == 200 or answer.json()["code"].startswith("MESH-A")


def test_managers_are_the_nodes_that_manage() -> None:
    (manager,) = ask(FakeService(), "GET", "/managers").json()
    assert (manager["id"], manager["role"]) == ("m1", "manager")
    assert len(ask(FakeService(), "GET", "/nodes").json()) == 2


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


async def test_a_user_who_is_added_later_gets_in(secured: ManagerSettings, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=secured.tls_cert)
    async with (
        served(FakeService(), secured) as api,
        httpx.AsyncClient(base_url=api.url, verify=context) as client,
    ):
        assert (await client.get("/nodes", auth=("bob", "b"))).status_code == 401
        users.add(tmp_path / "users", "bob", "b")
        assert (await client.get("/nodes", auth=("bob", "b"))).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "rebound.example"}, 403),
        ({"Host": "localhost:9543"}, 200),
    ],
)
def test_pages_of_other_sites_do_not_reach_an_anonymous_api(
    headers: dict[str, str], status: int
) -> None:
    assert ask(FakeService(), "GET", "/siddhi-apps", headers=headers).status_code == status


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (ManagerSettings(port=0, host="0.0.0.0", anonymous=True), "MESH-A102"),
        (ManagerSettings(port=0, host="0.0.0.0", users_file="users"), "MESH-A103"),
        (ManagerSettings(port=0, anonymous=True, tls_cert="only.crt"), "MESH-A104"),
        (ManagerSettings(port=0, host="192.0.2.1", users_file="u", tls_cert="c", tls_key="k"),
         "MESH-A105"),
    ],
)  # fmt: skip
def test_settings_that_leave_the_api_open_are_refused(settings: ManagerSettings, code: str) -> None:
    with pytest.raises(MeshError) as error:
        listen(settings)
    assert error.value.code == code


@pytest.mark.parametrize("text", [None, "", "ada\n", "ada:plain\n", ":$argon2\n"])
def test_a_users_file_without_users_is_refused(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "users"
    if text is not None:
        path.write_text(text)
    settings = ManagerSettings(port=0, users_file=str(path))
    listener = listen(settings)
    with pytest.raises(MeshError) as error:
        ApiServer(FakeService().as_manager, settings, listener)
    listener.close()
    assert error.value.code in ("MESH-A100", "MESH-A102")


def test_a_users_file_holds_no_password_and_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "users"
    assert users.add(path, "ada", "secret")
    assert not users.add(path, "ada", "secret2")
    assert "secret" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file = users.Users(path)
    assert file.check(users.LoginCredentials("ada", "secret2"))
    assert file.check(users.LoginCredentials("ada", "secret2"))
    assert not file.check(users.LoginCredentials("ada", "secret"))
    # A password that was changed no longer fits, though it did a moment ago.
    users.add(path, "ada", "secret3")
    assert not file.check(users.LoginCredentials("ada", "secret2"))
    for name, password in (("a:b", "x"), ("", "x"), ("ada", "")):
        with pytest.raises(MeshError) as error:
            users.add(path, name, password)
        assert error.value.code == "MESH-A101"


def test_the_certificates_key_is_its_owners(tmp_path: Path) -> None:
    _, key = certificates.self_signed(tmp_path, SystemClock().wall_ms())
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


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


def test_an_app_is_backed_up_and_restored() -> None:
    service = FakeService({"Shop": TEXT})
    made = ask(service, "POST", "/siddhi-apps/Shop/backup")
    assert made.status_code == 201
    assert made.headers["Location"] == "/siddhi-apps/Shop/revisions/r1"
    assert (made.json()["revision"], made.json()["bytes"]) == ("r1", 3000)
    assert [b["revision"] for b in ask(service, "GET", "/siddhi-apps/Shop/revisions").json()] == [
        "r1"
    ]
    done = ask(service, "POST", "/siddhi-apps/Shop/restore?revision=r1&as=Twin&replay=false")
    assert done.json()["app"] == "Twin"
    ask(service, "POST", "/siddhi-apps/Shop/restore?before=2026-11-21T20:30:00Z")
    assert service.backups.asked["before_ms"] == 1795293000000
    assert service.backups.asked["replay"] is True
    assert ask(service, "DELETE", "/siddhi-apps/Shop/revisions/r1").json()["deleted"] == 1
    assert ask(service, "DELETE", "/siddhi-apps/Shop/revisions").json()["deleted"] == 0


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("Other/backup", 404),
        ("Shop/restore?revision=lost", 410),
        ("Shop/restore?before=noon", 400),
        ("Shop/restore?replay=perhaps", 400),
    ],
)
def test_what_can_not_be_backed_up_or_restored_says_so(path: str, status: int) -> None:
    assert ask(FakeService({"Shop": TEXT}), "POST", f"/siddhi-apps/{path}").status_code == status


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


def test_an_app_is_forked() -> None:
    service = FakeService()
    done = ask(service, "POST", "/siddhi-apps/Shop/fork?as=Next&from=17&until=20&sinks=true")
    assert (done.status_code, done.headers["location"]) == (201, "/siddhi-apps/Next")
    assert done.json()["of"] == "Shop"
    assert service.forks.asked == {
        "text": None, "begin": "17", "until": "20", "sinks": True, "by": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("Shop/fork", 400),
        ("Shop/fork?as=Next&sinks=some", 400),
        ("Gone/fork?as=Next", 404),
    ],
)
def test_what_can_not_be_forked_says_so(path: str, status: int) -> None:
    assert ask(FakeService(), "POST", f"/siddhi-apps/{path}").status_code == status


def test_an_app_is_deployed_after_its_history() -> None:
    service = FakeService()
    path = "/siddhi-apps/backfill?path=old&stream=Orders&time=at"
    done = ask(service, "POST", f"{path}&until=9", content="text", headers=TEXT_PLAIN)
    assert (done.status_code, done.headers["location"]) == (201, "/siddhi-apps/Shop")
    assert done.json()["rows"] == 7
    assert service.backfills.asked == [HistoryInput("Orders", "old", "at", "9")]
    more = f"{path}&stream=Payments&path=paid&until=9&until="
    assert ask(service, "POST", more, content="text", headers=TEXT_PLAIN).status_code == 201
    assert service.backfills.asked == [
        HistoryInput("Orders", "old", "at", "9"), HistoryInput("Payments", "paid", "at"),
    ]  # fmt: skip
    # Messages have times of their own.
    log = "/siddhi-apps/backfill?path=nats:OLD&stream=Orders"
    assert ask(service, "POST", log, content="text", headers=TEXT_PLAIN).status_code == 201
    assert service.backfills.asked == [HistoryInput("Orders", "nats:OLD", "")]
    for wrong in (f"{path}&stream=Payments", f"{path}&until=1&until=2", f"{log}&path=x&stream=P"):
        assert ask(service, "POST", wrong, content="text", headers=TEXT_PLAIN).status_code == 400
    refused = ask(
        service, "POST", path.removesuffix("&time=at"), content="text", headers=TEXT_PLAIN
    )
    assert (refused.status_code, refused.json()["code"]) == (400, "MESH-A400")


def test_the_needs_of_a_text_at_a_rate_are_asked_for() -> None:
    path = "/siddhi-apps/what-if?at_rate=5000&at_rate=Orders%3D10&keys=1e6&cores=8"
    found = ask(FakeService(), "POST", path, content="text", headers=TEXT_PLAIN)
    assert found.json() == {"rates": ["5000", "Orders=10"], "keys": 1_000_000, "cores": 8}
    refused = ask(FakeService(), "POST", path, content="!", headers=TEXT_PLAIN)
    assert (refused.status_code, refused.json()["code"]) == (422, "MESH-C170")


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


def test_an_events_lineage_is_asked_for_by_its_sequence() -> None:
    found = ask(FakeService(), "GET", "/siddhi-apps/Shop/why/Dear/7?index=1")
    assert found.json() == {"stream": "Dear", "sequence": 7, "index": 1, "inputs": []}
    assert ask(FakeService(), "GET", "/siddhi-apps/Shop/why/Dear/x").status_code == 400
    assert ask(FakeService(), "GET", "/siddhi-apps/Shop/why/Dear/10").status_code == 404


def test_outputs_of_two_apps_are_compared() -> None:
    path = "/siddhi-apps/Shop/compare/Next?stream=Dear&key=item&key=shop&ignore=seen"
    found = ask(FakeService(), "GET", path).json()
    wanted = {"app": "Shop", "fork": "Next", "streams": ["Dear"], "key": ["item", "shop"]}
    wanted |= {"ignored": ["seen"]}
    assert found == wanted


def test_a_fork_is_promoted() -> None:
    done = ask(FakeService(), "POST", "/siddhi-apps/Next/promote")
    assert (done.status_code, done.json()["app"], done.json()["fork"]) == (200, "Shop", "Next")
    other = ask(FakeService(), "POST", "/siddhi-apps/Next/promote?replaces=Other")
    assert other.status_code == 409
    assert ask(FakeService(), "POST", "/siddhi-apps/Gone/promote").status_code == 404
