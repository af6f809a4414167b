"""nanoidp, an identity provider for tests, on a free port."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest
import yaml

from mesh.jetstream.server import free_port
from mesh.processes.bounded_process import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AUDIENCE = "mesh"
CLIENT, CLIENT_SECRET = "demo-client", "demo-secret"
#: The public client of ``mesh login``.
COMMAND_CLIENT = "mesh-command"


class IdentityProvider:
    """A running provider."""

    def __init__(self, url: str) -> None:
        self.url = url

    def token(self, user: str, password: str) -> str:
        """A user's access token."""
        form = {"grant_type": "password", "username": user, "password": password}
        return str(self._tokens(form)["access_token"])

    def refresh_token(self, user: str, password: str) -> str:
        """A user's refresh token."""
        form = {"grant_type": "password", "username": user, "password": password}
        return str(self._tokens(form)["refresh_token"])

    def _tokens(self, form: dict[str, str]) -> dict[str, str]:
        answer = httpx.post(f"{self.url}/token", data=form, auth=(CLIENT, CLIENT_SECRET))
        found: dict[str, str] = answer.json()
        return found

    def sign_in(self, page: str, user: str, password: str = "pw") -> str:
        """Fill in the provider's page as a person does; returns the URL that it leads to."""
        with httpx.Client() as browser:
            form = {"username": user, "password": password}
            shown = browser.get(page)
            transaction = re.search(r'name="transaction_id" value="([^"]+)"', shown.text)
            assert transaction is not None, shown.text
            form["transaction_id"] = transaction[1]
            answer = browser.post(f"{self.url}/authorize", data=form)
        return answer.headers["location"]

    def confirm(self, page: str, code: str, user: str, password: str = "pw") -> None:
        """Confirm the code of a device as a person does."""
        form = {"user_code": code, "username": user, "password": password, "action": "authorize"}
        with httpx.Client() as browser:
            browser.get(page)
            answer = browser.post(page, data=form)
        assert answer.is_success, answer.text

    def revoke(self, token: str) -> None:
        """Withdraw a refresh token, as an administrator who removes a user does."""
        form = {"token": token}
        answer = httpx.post(f"{self.url}/revoke", data=form, auth=(CLIENT, CLIENT_SECRET))
        assert answer.is_success, answer.text

    def rotate(self) -> None:
        """Sign with another key from now on."""
        answer = httpx.post(f"{self.url}/api/keys/rotate")
        assert answer.is_success, answer.text


@contextlib.contextmanager
def identity_provider(directory: Path) -> Iterator[IdentityProvider]:
    """Start one with the users ``ada`` (role ADMIN) and ``eve`` (role SHOP)."""
    # Not by the path of commands: a virtual environment need not be active.
    if importlib.util.find_spec("nanoidp") is None:
        pytest.skip("nanoidp is not installed")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = {
        "config_version": 1,
        "server": {"host": "127.0.0.1", "port": port},
        "oauth": {
            "issuer": url,
            "audience": AUDIENCE,
            "token_expiry_minutes": 60,
            "clients": [
                {"client_id": CLIENT, "client_secret": CLIENT_SECRET},
                {"client_id": COMMAND_CLIENT, "token_endpoint_auth_method": "none"},
            ],
        },
    }
    people = {
        name: {"password": "pw", "email": f"{name}@example.org", "roles": [role]}
        for name, role in (("ada", "ADMIN"), ("eve", "SHOP"))
    }
    (directory / "keys").mkdir(parents=True)
    (directory / "settings.yaml").write_text(yaml.safe_dump(settings))
    (directory / "users.yaml").write_text(yaml.safe_dump({"config_version": 1, "users": people}))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "nanoidp", "--config", str(directory), "--port", str(port)],
            # It keeps its keys below the working directory.
            cwd=directory, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            preexec_fn=die_with_parent(),
        )  # fmt: skip
    try:
        with httpx.Client(transport=httpx.HTTPTransport(retries=30)) as client:
            while process.poll() is None:
                with contextlib.suppress(httpx.HTTPError):
                    client.get(f"{url}/.well-known/openid-configuration").raise_for_status()
                    break
            assert process.poll() is None, (directory / "log").read_text()
        yield IdentityProvider(url)
    finally:
        process.kill()
        process.wait()
