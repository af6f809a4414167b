"""Secrets that a test plants in a mesh, and the places where it looks for them."""

from __future__ import annotations

import base64
import functools
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import httpx
import psutil
import yaml
from nats.js.errors import NotFoundError
from typer.testing import CliRunner

from mesh.api import users
from mesh.api.auth import ROUTES
from mesh.cli.commands import app

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from nats.js import JetStreamContext

    from tools.cluster import Outside

_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_ENCODED: Final = re.compile(rb"[A-Za-z0-9+/_-]{12,}={0,2}")


class Planted:
    """Secrets by name, and the places where one of them was seen."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values
        self.seen: list[str] = []

    def look(self, place: str, data: bytes) -> None:
        """Note each secret in ``data``, plain, in base64, and in what is base64 there."""
        forms = [data]
        for part in _ENCODED.findall(data)[:2000]:
            whole = part.rstrip(b"=")[: len(part.rstrip(b"=")) // 4 * 4]
            forms.append(base64.b64decode(whole.translate(_URL_SAFE)))
        text = b"\n".join(forms)
        for name, value in self.values.items():
            if value.encode() in text or base64.b64encode(value.encode()).rstrip(b"=") in data:
                self.seen.append(f"{name} in {place}")


class RecordedAnswers:
    """Answers to the HTTP requests of this process between ``start`` and ``stop``."""

    def __init__(self) -> None:
        #: Request, and head and body of its answer.
        self.found: list[tuple[str, bytes]] = []
        self._patches: list[Any] = []

    def start(self) -> None:
        """Record what is read from now on, by clients with and without ``asyncio``."""
        read, aread = httpx.Response.read, httpx.Response.aread

        @functools.wraps(read)
        def recorded(response: httpx.Response) -> bytes:
            return self._keep(response, read(response))

        @functools.wraps(aread)
        async def arecorded(response: httpx.Response) -> bytes:
            return self._keep(response, await aread(response))

        self._patches = [
            mock.patch.object(httpx.Response, "read", recorded),
            mock.patch.object(httpx.Response, "aread", arecorded),
        ]
        for patch in self._patches:
            patch.start()

    def stop(self) -> None:
        """Record no more."""
        while self._patches:
            self._patches.pop().stop()

    def look(self, planted: Planted) -> None:
        """Look for secrets in all of them."""
        for request, answer in self.found:
            planted.look(f"answer to {request}", answer)

    def _keep(self, response: httpx.Response, content: bytes) -> bytes:
        try:
            request = response.request
        except RuntimeError:
            # It was made here and not received.
            return content
        head = f"{response.status_code} {response.headers}".encode()
        self.found.append((f"{request.method} {request.url.path}", head + b" " + content))
        return content


def look_at_command_lines(planted: Planted) -> None:
    """Arguments of every process of this machine, which all its users can see."""
    for process in psutil.process_iter():
        try:
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        planted.look(f"command line of {process.pid}", line)


async def look_at_streams(planted: Planted, js: JetStreamContext, least: int) -> None:
    """Every message of every stream: buckets, states, events, journal, audit."""
    read = 0
    for stream in await js.streams_info():
        name, state = stream.config.name or "", stream.state
        for sequence in range(max(1, state.first_seq), state.last_seq + 1):
            try:
                message = await js.get_msg(name, sequence)
            except NotFoundError:
                continue
            read += 1
            about = f"{message.subject} {message.headers}".encode()
            planted.look(f"stream {name}", about + b" " + (message.data or b""))
    assert read > least


def look_at_files(
    planted: Planted, directory: Path, least: int, keepers: Collection[Path] = ()
) -> None:
    """Every file below a directory, but those that are there to keep the secrets."""
    read = 0
    for path in directory.rglob("*"):
        if path.is_file() and not {path, *path.parents} & {*keepers}:
            read += 1
            planted.look(f"file {path.relative_to(directory)}", path.read_bytes())
    assert read > least


def look_at_answers(
    planted: Planted, api: str, auth: tuple[str, str] | None, apps: Iterable[str] = ("Spy",)
) -> None:
    """The answers of all routes that are read, about these apps, and the pages."""
    with httpx.Client(base_url=api, auth=auth, timeout=60) as client:
        for app in apps:
            names = {
                "app": app, "node": "w1", "id": "1", "kind": "User", "unknown": "x",
                "resource": "x", "stream": "S", "sequence": "1", "other": app,
                "product": "MON", "permission": "x", "role": "admin", "feed": "x", "file": "x.csv",
            }  # fmt: skip
            for route in ROUTES:
                method, _, path = route.partition(" ")
                if method == "GET" and "{urn}" not in path:
                    answer = client.get(path.format_map(names))
                    planted.look(route, answer.content + str(answer.headers).encode())
            for page in ("/", f"/apps/{app}", "/nodes", "/story", "/errors", "/login"):
                planted.look(page, client.get(page, headers={"Accept": "text/html"}).content)


def look_at_debug(planted: Planted, api: str, auth: tuple[str, str]) -> None:
    given = ["--server", api, "--user", auth[0], "--password", auth[1]]
    for command in (["debug", "story", "Spy"], ["status", "Spy"], ["errors", "Spy"]):
        planted.look(
            f"mesh {command[0]}", CliRunner().invoke(app, [*command, *given]).output.encode()
        )


def plant(directory: Path, password: str, database: str, client_secret: str) -> dict[str, str]:
    """Write the files with secrets; the environment of manager and worker that names them."""
    users.add(directory / "users", "ada", password)
    key, sources, secret = (directory / name for name in ("key", "sources.yaml", "oidc"))
    key.write_text(base64.b64encode(secrets.token_bytes(32)).decode())
    entry = {"url": "jdbc:postgresql://127.0.0.1:1/x", "username": "m", "password": database}
    sources.write_text(yaml.safe_dump({"trades": entry}))
    secret.write_text(client_secret)
    return {
        "MESH_MANAGER_ANONYMOUS": "false", "MESH_MANAGER_USERS_FILE": str(directory / "users"),
        "MESH_SECRETS_KEY_FILE": str(key), "MESH_STORES_SOURCES_FILE": str(sources),
        "MESH_OIDC_ISSUER": "https://127.0.0.1:1", "MESH_OIDC_AUDIENCE": "mesh",
        "MESH_OIDC_CLIENT_ID": "pages", "MESH_OIDC_CLIENT_SECRET_FILE": str(secret),
    }  # fmt: skip


async def address(outside: Outside) -> str:
    """The URL of the manager."""

    def found() -> str | None:
        nodes = outside.view.snapshot().nodes
        return next((n.value.address for n in nodes if n.value.id == "m1"), None)

    return f"http://{await outside.until('an address', found)}"
