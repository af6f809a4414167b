"""The stack's receiver: an HTTP source that is reached from outside."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.stack.test_stack import OUT_S, Stack, reason_to_skip

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1500)]

DOOR = """@App:name('Door')
@source(type='http', receiver.url='http://0.0.0.0:8280/numbers', @map(type='json'))
define stream Numbers (n long);
from Numbers select n, n * 10 as tenfold insert into Tenfold;
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    reason = reason_to_skip()
    if reason is not None:
        pytest.skip(reason)
    found = Stack(tmp_path_factory.mktemp("stack"), f"meshtest{os.getpid()}d")
    try:
        found.compose("up", "-d")
        yield found
    finally:
        found.compose("down", "-v", "--timeout", "5")


def test_an_http_source_is_reached_from_the_host(stack: Stack) -> None:
    path = stack.folder / "door.siddhi"
    path.write_text(DOOR)
    assert stack.values("deploy", str(path), "--timeout", "120")["running"]
    url = f"http://127.0.0.1:{stack.environment['MESH_RECEIVER_PORT']}/numbers"
    for n in range(20):
        body = json.dumps({"event": {"n": n}}).encode()
        deadline_s = time.monotonic() + OUT_S
        while True:
            headers = {"Idempotency-Key": str(n), "Content-Type": "application/json"}
            try:
                asked = urllib.request.Request(url, body, headers)
                with urllib.request.urlopen(asked, timeout=10) as answer:
                    assert answer.status == 200
                break
            # The source listens some moments after the app runs.
            except OSError:
                if time.monotonic() > deadline_s:
                    raise
    wanted = ("tap", "Door", "Tenfold", "--from-start", "--count", "20")
    rows = [json.loads(line) for line in stack.mesh(*wanted).splitlines()]
    assert sorted(row["tenfold"] for row in rows) == [n * 10 for n in range(20)]
