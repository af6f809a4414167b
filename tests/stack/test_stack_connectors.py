"""The stack's receiver and its Spark cluster: a source from outside, an app on executors."""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.stack.test_stack import (
    OUT_S,
    UP_S,
    Stack,
    assert_exact,
    docker,
    publish,
    reason_to_skip,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1500)]

CONNECTOR = """@App:name('Connector')
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
    found.environment["COMPOSE_PROFILES"] = "spark"
    try:
        found.compose("up", "-d")
        yield found
    finally:
        found.compose("down", "-v", "--timeout", "5")


def test_an_http_source_is_reached_from_the_host_and_exact_over_a_kill(stack: Stack) -> None:
    path = stack.folder / "connector.siddhi"
    path.write_text(CONNECTOR)
    assert stack.values("deploy", str(path), "--timeout", "120")["running"]
    url = f"http://127.0.0.1:{stack.environment['MESH_RECEIVER_PORT']}/numbers"
    for n in range(40):
        if n == 20:
            assert docker("start", stack.kill("r1")).returncode == 0
        body = json.dumps({"event": {"n": n}}).encode()
        deadline_s = time.monotonic() + OUT_S
        while True:
            headers = {"Idempotency-Key": str(n), "Content-Type": "application/json"}
            try:
                asked = urllib.request.Request(url, body, headers)
                with urllib.request.urlopen(asked, timeout=10) as answer:
                    assert answer.status == 200
                break
            # The source listens some moments after the app runs, and again after the kill.  The key
            # of a request makes a repetition the same event.
            except OSError:
                if time.monotonic() > deadline_s:
                    raise
    wanted = ("tap", "Connector", "Tenfold", "--from-start", "--count", "40")
    rows = [json.loads(line) for line in stack.mesh(*wanted).splitlines()]
    assert sorted(row["tenfold"] for row in rows) == [n * 10 for n in range(40)]


EIGHT = """@App:name('Counted')
define stream Numbers (n long);
@info(name='pass') @dist(execGroup='pass', parallel='8', node='spark=true')
from Numbers[n >= 0] select n insert into Passed;
@info(name='sums') @dist(execGroup='sums', node='spark=true')
from Numbers select n, count() as seen, sum(n) as total insert into Sums;
"""


def test_an_app_runs_on_the_executors_of_the_spark_cluster(stack: Stack) -> None:
    deadline_s = time.monotonic() + UP_S
    # `ready` does not wait for the services of profiles.
    while not any(one["id"] == "ws" and one["ready"] for one in stack.values("nodes")):
        assert time.monotonic() < deadline_s, "the worker on the Spark cluster is not ready"
        time.sleep(1)
    path = stack.folder / "eight.siddhi"
    path.write_text(EIGHT)
    assert stack.values("deploy", str(path), "--timeout", "120")["running"]
    placed = stack.values("status", "Counted")["instances"]
    assert {one["worker"] for one in placed} == {"ws"}
    # An executor that dies under load loses and doubles nothing.
    (killed,) = asyncio.run(publish(stack, 0, 600, {300: "spark-1"}))
    assert_exact(stack, 600)
    assert docker("start", killed).returncode == 0
