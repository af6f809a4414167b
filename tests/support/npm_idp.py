"""The identity provider ``oidc-provider`` of npm, on a free port, and a person's browser."""

from __future__ import annotations

import contextlib
import html
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

import httpx
import pytest

from mesh.jetstream.server import free_port
from mesh.processes.bounded_process import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION: Final = "9.13.3"
AUDIENCE: Final = "urn:mesh:api"
CLIENT, CLIENT_SECRET, COMMAND_CLIENT = "mesh-pages", "a secret: with signs/&", "mesh-command"
SCRIPT: Final = Path(__file__).with_name("npm_provider.mjs")


class NpmProvider:
    """A provider that can be started again with another key."""

    def __init__(self, directory: Path, redirect_uri: str) -> None:
        self._directory, self._redirect_uri = directory, redirect_uri
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it with a new key; what it knew of sign-ins is lost.

        It ends with the thread that starts it.
        """
        self.stop()
        command = ["node", "provider.mjs", str(self.port), AUDIENCE, self._redirect_uri]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self._directory, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                preexec_fn=die_with_parent(),
            )  # fmt: skip
        with httpx.Client(transport=httpx.HTTPTransport(retries=30)) as client:
            while self._process.poll() is None:
                with contextlib.suppress(httpx.HTTPError):
                    client.get(f"{self.url}/.well-known/openid-configuration").raise_for_status()
                    return
        raise AssertionError((self._directory / "log").read_text())

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def remove(self, user: str) -> None:
        """Remove a user, as an administrator does."""
        httpx.delete(f"{self.url}/{user}").raise_for_status()

    def sign_in(self, page: str, user: str) -> str:
        """Go through the pages as a person; returns the URL that leads away, or the last page."""
        with httpx.Client() as browser:
            answer = browser.get(page)
            for _ in range(20):
                here = str(answer.request.url)
                if answer.is_redirect:
                    target = urljoin(here, answer.headers["location"])
                    if not target.startswith(self.url):
                        return target
                    answer = browser.get(target)
                    continue
                form = re.search(r"<form[^>]*action=\"([^\"]*)\".*?</form>", answer.text, re.DOTALL)
                if form is None:
                    return answer.text
                fields = dict(re.findall(r'name="([^"]+)" value="([^"]*)"', form[0]))
                if 'name="login"' in form[0]:
                    fields |= {"login": user, "password": "pw"}
                target = urljoin(here, html.unescape(form[1]))
                answer = browser.post(target, data=fields)
        raise AssertionError(f"no end of pages at {here}")


@contextlib.contextmanager
def npm_provider(directory: Path, redirect_uri: str) -> Iterator[NpmProvider]:
    """Install and start one; skips without npm or its registry."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm is not installed")
    directory.mkdir(parents=True)
    (directory / "package.json").write_text('{"private": true}')
    # A node that is too old is a reason to skip, too.
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--engine-strict"]
    command = ["npm", "install", *options, f"oidc-provider@{VERSION}"]
    try:
        subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=120, check=True
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"oidc-provider can't be had from npm: {error} {str(error.stderr)[-200:]}")
    shutil.copy(SCRIPT, directory / "provider.mjs")
    made = NpmProvider(directory, redirect_uri)
    try:
        made.start()
        yield made
    finally:
        made.stop()
