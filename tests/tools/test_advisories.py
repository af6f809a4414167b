"""Locked packages of known weaknesses, as a package index tells them."""

from __future__ import annotations

import asyncio
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from tools.advisories import check, main
from tools.sbom import Package

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.environment import Variables

WEAK = {
    "id": "PYSEC-0000-1", "aliases": ["CVE-0000-1"], "fixed_in": ["1.1", "2.0"], "withdrawn": None,
}  # fmt: skip
#: By package: the status and the body of the answer.
ANSWERS: dict[str, tuple[int, Any]] = {
    "sound": (200, {"vulnerabilities": []}),
    "weak": (200, {"vulnerabilities": [WEAK, {**WEAK, "id": "PYSEC-0000-2", "withdrawn": "2026"}]}),
    "open": (200, {"vulnerabilities": [{"id": "GHSA-0000", "fixed_in": []}]}),
    "of-a-mirror": (200, {"files": []}),
    "not-there": (404, {}),
}


class Index(BaseHTTPRequestHandler):
    """Answers as PyPI does."""

    def do_GET(self) -> None:
        name = self.path.split("/")[1]
        status, answer = ANSWERS[name]
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def index() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_weaknesses_are_told_with_the_versions_that_have_them_not(index: str) -> None:
    packages = [Package(name, "1.0") for name in ANSWERS]
    wrong, unknown = asyncio.run(check(index, packages))
    assert wrong == [
        "weak 1.0: PYSEC-0000-1, CVE-0000-1; fixed in: 1.1, 2.0",
        "open 1.0: GHSA-0000; fixed in: no version yet",
    ]
    assert {reason: [one.name for one in ones] for reason, ones in unknown.items()} == {
        "an answer without advisories, as of a mirror": ["of-a-mirror"],
        "HTTP 404": ["not-there"],
    }


def test_without_an_index_nothing_is_known() -> None:
    packages = [Package("sound", "1.0"), Package("weak", "1.0")]
    found = asyncio.run(check("http://127.0.0.1:1", packages))
    assert found == ([], {"no answer: ConnectError": packages})


@pytest.mark.parametrize(
    ("names", "unchecked", "status", "said"),
    [
        (["sound"], "", 0, ""),
        (["sound", "of-a-mirror"], "", 1, "1 packages (of-a-mirror 1.0): an answer without advi"),
        (["sound", "not-there"], "", 1, "this is no pass.  Set MESH_ADVISORIES_URL"),
        (["sound", "not-there"], "yes", 0, "not checked: 1 packages (not-there 1.0): HTTP 404"),
        (["weak", "not-there"], "yes", 1, "weak 1.0: PYSEC-0000-1"),
        ([], "", 1, "this is no pass"),
    ],
)
def test_a_package_that_is_not_checked_is_no_pass(
    index: str, names: list[str], unchecked: str, status: int, said: str,
    alone: Path, environment: Variables, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (alone / "requirements.lock").write_text("".join(f"{name}==1.0\n" for name in names))
    environment["MESH_ADVISORIES_URL"] = index
    environment["MESH_ADVISORIES_UNCHECKED"] = unchecked
    assert main() == status
    out, err = capsys.readouterr()
    assert (said in err) if said else not err
    checked = sum(name in ("sound", "weak") for name in names)
    assert f"{checked} of {len(names)} packages checked at {index}" in out
