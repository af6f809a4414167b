"""nanoidp, an identity provider for tests, on a free port."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest
import yaml

from mesh.jetstream.server import die_with_parent, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AUDIENCE = "mesh"


class IdentityProvider:
    """A running provider."""

    def __init__(self, url: str) -> None:
        self.url = url

    def token(self, user: str, password: str) -> str:
        """A user's access token."""
        form = {"grant_type": "password", "username": user, "password": password}
        answer = httpx.post(f"{self.url}/token", data=form, auth=("demo-client", "demo-secret"))
        return str(answer.json()["access_token"])

    def rotate(self) -> None:
        """Sign with another key from now on."""
        answer = httpx.post(f"{self.url}/api/keys/rotate")
        assert answer.is_success, answer.text


@contextlib.contextmanager
def identity_provider(directory: Path) -> Iterator[IdentityProvider]:
    """Start one with the users ``ada`` (role ADMIN) and ``eve`` (role SHOP)."""
    if shutil.which("nanoidp") is None:
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
            "clients": [{"client_id": "demo-client", "client_secret": "demo-secret"}],
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
