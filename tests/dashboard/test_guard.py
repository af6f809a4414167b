"""Access to pages: sessions of users, forms of this site only, headers, vendored files."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mesh.api import users
from mesh.dashboard.guard import local_path
from mesh.dashboard.server import is_for_page
from tests.support.dashboard import site
from tests.support.paths import ROOT
from tools.vendor.__main__ import BUNDLE, BUNDLE_LICENCE, DIGESTS, FILES, HERE, TARGET, digests

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer


@pytest.mark.parametrize(
    "path", ["//evil.example", "https://evil.example", "/\\evil", "/a\r\nb", ""]
)
def test_a_sign_in_leads_to_this_host_only(path: str) -> None:
    assert local_path(path) == "/"
    assert local_path("/apps/Shop?tab=text") == "/apps/Shop?tab=text"


@pytest.mark.parametrize(
    ("method", "path", "accept", "is_page"),
    [
        ("GET", "/", "*/*", True),
        ("GET", "/nodes", "*/*", False),
        ("GET", "/nodes", "text/html,*/*", True),
        ("GET", "/nodes", "text/event-stream", True),
        ("POST", "/nodes/w1", "text/html", True),
        ("POST", "/nodes/w1/drain", "text/html", False),
        ("GET", "/siddhi-apps", "text/html", False),
        ("GET", "/login/Shop", "text/html", False),
        ("GET", "/metrics", "text/html", False),
    ],
)
def test_requests_of_clients_of_the_api_stay_with_the_api(
    method: str, path: str, accept: str, is_page: bool
) -> None:
    scope = {"method": method, "path": path, "headers": [(b"accept", accept.encode())]}
    assert is_for_page(scope) is is_page


@pytest.mark.slow
async def test_users_sign_in_and_forms_are_of_their_session(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    users.add(tmp_path / "users", "ada", "secret")
    given: dict[str, Any] = {"anonymous": False, "users_file": str(tmp_path / "users")}

    async with (
        site(nats_server, **given) as at,
        httpx.AsyncClient(base_url=at.url, follow_redirects=False) as client,
    ):
        sent = await client.get("/", headers={"Accept": "text/html"})
        assert (sent.status_code, sent.headers["location"]) == (303, "/login")
        assert (await client.get("/?q=a")).headers["location"] == "/login?next=/%3Fq%3Da"
        assert (await client.post("/logout")).status_code == 401
        # The API is as it was.
        assert (await client.get("/siddhi-apps")).status_code == 401
        wrong = await client.post("/login", data={"user": "ada", "password": "guess"})
        assert wrong.status_code == 401
        assert "user and password don&#39;t fit" in wrong.text
        assert "guess" not in wrong.text
        done = await client.post("/login?next=/?q=S", data={"user": "ada", "password": "secret"})
        assert (done.status_code, done.headers["location"]) == (303, "/?q=S")
        cookie = done.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        page = await client.get("/")
        assert page.status_code == 200
        assert "ada" in page.text
        await _check_forms(client, page.text)
        # A user that is removed has no permission any more, at once.
        await client.post("/login", data={"user": "ada", "password": "secret"})
        users.add(tmp_path / "users", "eve", "other")
        lines = (tmp_path / "users").read_text().splitlines()
        (tmp_path / "users").write_text("\n".join(x for x in lines if x[:3] == "eve") + "\n")
        assert (await client.get("/")).headers["location"] == "/login"


async def _check_forms(client: httpx.AsyncClient, page: str) -> None:
    token = re.findall(r'name="token" value="([^"]+)"', page)[0]
    other = {"Origin": "https://evil.example"}
    assert (await client.post("/logout", data={"token": token}, headers=other)).status_code == 403
    other = {"Sec-Fetch-Site": "cross-site"}
    assert (await client.post("/logout", data={"token": token}, headers=other)).status_code == 403
    assert (await client.post("/logout", data={"token": "guess"})).status_code == 403
    assert (await client.post("/logout", json={"token": token})).status_code == 415
    assert (await client.post("/logout", data={"token": token})).status_code == 303
    assert (await client.get("/")).status_code == 303


async def test_pages_have_a_strict_policy_and_without_users_are_for_this_machine(
    nats_server: NatsServer,
) -> None:
    async with site(nats_server) as at, httpx.AsyncClient(base_url=at.url) as client:
        page = await client.get("/")
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'self'; ")
        assert "unsafe" not in policy
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"<script>|\son\w+=|\sstyle=|<style", page.text)
        away = await client.get("/", headers={"Host": "mesh.example"})
        assert away.status_code == 403
        style = await client.get("/static/dashboard.css")
        assert (style.status_code, style.headers["content-encoding"]) == (200, "gzip")
        # A page has the token of its session beside texts of others, so its size tells nothing.
        assert "content-encoding" not in page.headers
        assert (await client.get("/static/../server.py")).status_code == 404


def test_vendored_files_are_those_of_the_pinned_versions() -> None:
    told = json.loads((TARGET / DIGESTS).read_text())
    assert told["sha256"] == digests(TARGET)
    copied = {name for files in FILES.values() for name in files.values()}
    assert set(told["sha256"]) == {*copied, BUNDLE, BUNDLE_LICENCE}
    pinned = json.loads((HERE / "package.json").read_text())["dependencies"]
    locked = json.loads((HERE / "package-lock.json").read_text())["packages"]
    assert told["versions"] == pinned
    assert {n: locked[f"node_modules/{n}"]["version"] for n in pinned} == pinned
    assert all("integrity" in locked[f"node_modules/{name}"] for name in pinned)
    # The pages of the editor alone have the bundle.
    sizes = {path.name: path.stat().st_size for path in TARGET.iterdir()}
    assert sum(sizes.values()) - sizes[BUNDLE] <= 200_000
    assert sum(len(gzip.compress(path.read_bytes())) for path in TARGET.iterdir()) <= 200_000
    assert (ROOT / "mesh" / "dashboard" / "static" / "dashboard.css").exists()
