"""What managers and workers report to a service manager that listens, as systemd does."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import urllib.request
from typing import TYPE_CHECKING

import pytest

from mesh.jetstream import server
from mesh.processes.signals import Notifier, take_from
from tests.support.agents import WORKER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.agents import Cluster

#: A worker's process needs seconds to import everything on a busy machine.
LIMIT_S = 60.0
CLI = "import sys; from mesh.cli import main; sys.argv[1:] = ['manager']; main()"


class Listener:
    """The socket of a service manager, in the abstract namespace: no path is too long for it."""

    def __init__(self) -> None:
        self.address = f"@mesh-test-{secrets.token_hex(8)}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + self.address[1:])
        self.socket.settimeout(LIMIT_S)

    def until(self, wanted: str) -> list[str]:
        """All assignments up to the message with ``wanted``."""
        found: list[str] = []
        while wanted not in found:
            found += self.socket.recv(4096).decode().split("\n")
        return found


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.socket.close()


@pytest.mark.slow
def test_a_worker_is_ready_with_its_session_and_gives_signs_of_life(
    cluster: Cluster, listener: Listener
) -> None:
    pipe = cluster.directory / "ready"
    os.mkfifo(pipe)
    cluster.worker(
        "w1", NOTIFY_SOCKET=listener.address, WATCHDOG_USEC="600000", FAKE_READY=str(pipe)
    )
    # The heartbeat is stored; only the session is missing.
    early = listener.until("STATUS=the Spark session is starting")
    assert "READY=1" not in early
    assert "WATCHDOG=1" in early
    with pipe.open("w"):
        pass
    assert "STATUS=ready" in listener.until("READY=1")
    listener.until("WATCHDOG=1")
    cluster.signal("w1", signal.SIGTERM)
    assert "READY=1" not in listener.until("STOPPING=1")
    assert cluster.processes["w1"].wait(LIMIT_S) == 0


@pytest.mark.slow
def test_a_worker_that_does_not_reach_nats_is_never_ready(
    cluster: Cluster, listener: Listener
) -> None:
    cluster.nats.stop()
    cluster.start(
        "w1", WORKER, NOTIFY_SOCKET=listener.address, MESH_WORKER_ID="w1",
        MESH_NATS_CONNECT_TIMEOUT_S="0.2",
    )  # fmt: skip
    assert cluster.processes["w1"].wait(LIMIT_S) != 0
    listener.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.until("READY=1")


@pytest.mark.slow
def test_a_manager_is_ready_when_its_probe_says_so(cluster: Cluster, listener: Listener) -> None:
    port = server.free_port()
    cluster.start(
        "m1", CLI, NOTIFY_SOCKET=listener.address, MESH_MANAGER_ID="m1",
        MESH_MANAGER_PORT=str(port), MESH_MANAGER_ANONYMOUS="true",
    )  # fmt: skip
    listener.until("READY=1")
    # Nobody waits and tries again: it answers at the first request.
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=LIMIT_S) as answer:
        assert answer.status == 200
    cluster.signal("m1", signal.SIGTERM)
    listener.until("STOPPING=1")
    assert cluster.processes["m1"].wait(LIMIT_S) == 0


def test_only_the_process_that_is_asked_notifies() -> None:
    given = {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7", "A": "b"}
    kept = dict(given)
    assert take_from(kept, 7) == Notifier("/run/n", 3.0)
    assert kept == {"A": "b"}
    assert take_from(dict(given), 8) == Notifier("/run/n", 0.0)
    assert take_from({"NOTIFY_SOCKET": "vsock:2:1"}, 7) == Notifier()
    assert take_from({}, 7) == Notifier()


def test_a_service_manager_that_is_gone_is_no_error() -> None:
    Notifier(f"@mesh-test-{secrets.token_hex(8)}").send("READY=1")
    Notifier("/nowhere/notify").send("READY=1")
