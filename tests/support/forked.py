"""Processes forked from one that has imported what they need.

A manager or a worker imports modules for a second of a processor, which is most of what it costs in
a test.  Python reseeds ``random`` in a fork; nothing else of the process that forks is in use.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from mesh.processes.bounded_process import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Forked:
    """The part of ``subprocess.Popen`` that tests use, for a process of another parent."""

    def __init__(
        self, program: str, argument: str, environment: Mapping[str, str], log: Path
    ) -> None:
        """Run a program with one argument; its output is appended to ``log``."""
        self._socket, theirs = socket.socketpair()
        request = {
            "program": program, "argument": argument, "environment": {**environment},
            "log": str(log), "path": sys.path,
        }  # fmt: skip
        with theirs:
            socket.send_fds(_forking(), [b"1"], [theirs.fileno()])
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        self._answers = self._socket.makefile("rb")
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code; null while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended, at most ``timeout`` seconds."""
        if self.returncode is None:
            if not select.select([self._socket], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(["forked"], timeout or 0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._socket.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


@cache
def _forking() -> socket.socket:
    """The process that forks, of this process of the tests."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked", str(theirs.fileno())],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], preexec_fn=die_with_parent(),
    )  # fmt: skip
    theirs.close()

    def end() -> None:
        ours.close()
        process.kill()
        process.wait()

    atexit.register(end)
    return ours


def _request(control: socket.socket) -> dict[str, Any]:
    """The request of the process to be; returns in that process alone."""
    # Processes that wait for others end unnoticed.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        _, (number, *_), _, _ = socket.recv_fds(control, 1, 1)
        dies = die_with_parent()
        if os.fork():
            os.close(number)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if dies is not None:
            dies()
        control.close()
        asking = socket.socket(fileno=number)
        request: dict[str, Any] = json.loads(asking.makefile("rb").readline())
        dies = die_with_parent()
        pid = os.fork()
        if not pid:
            if dies is not None:
                dies()
            asking.close()
            return request
        asking.sendall(b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        asking.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)


def main(number: int) -> None:
    """Import, then fork for each request; in a fork, run the program."""
    for module in ("mesh.manager", "mesh.worker.children", "mesh.worker.worker"):
        importlib.import_module(module)
    request = _request(socket.socket(fileno=number))
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:] = request["path"]
    sys.argv = ["-c", request["argument"]]
    exec(request["program"], {"__name__": "__main__"})


if __name__ == "__main__":
    main(int(sys.argv[1]))
