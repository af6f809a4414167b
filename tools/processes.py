"""Processes of a mesh, started for a test, that can be killed, paused and stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil

from mesh.processes.bounded_process import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

#: Time for a regular end of a process before it is killed, seconds.
END_S = 25.0


class Processes:
    """Managers and workers by name; the output of each is in a file of ``directory``.

    None outlives the thread that started it: the kernel ends it then.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        #: All processes of the mesh, also those of ended parents: to be cleaned up.
        self._left: list[psutil.Process] = []

    def __repr__(self) -> str:
        return f"Processes({', '.join(sorted(self._running))})"

    def start(
        self, name: str, role: str, *, prefix: Sequence[str] = (), **environment: str
    ) -> None:
        """Start ``mesh ROLE`` under a name that no running process has."""
        assert name not in self._running, f"{name} runs already"
        self._running[name] = self.spawn(name, role, prefix=prefix, **environment)

    def spawn(
        self, log_name: str, role: str, *, prefix: Sequence[str] = (), **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start ``mesh ROLE`` without keeping it; the caller ends it.

        ``prefix`` is a command that executes it, such as ``unshare``.
        """
        with (self.directory / f"{log_name}.log").open("ab") as log:
            return subprocess.Popen(
                [*prefix, sys.executable, "-m", "mesh.cli", role],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )

    def names(self) -> list[str]:
        """Processes that were started and not stopped by us, in the order of their start."""
        return list(self._running)

    def pid(self, name: str) -> int:
        """The process itself; of a worker its agent."""
        return self._running[name].pid

    def is_alive(self, name: str) -> bool:
        """Whether it runs, or is paused."""
        return name in self._running and self._running[name].poll() is None

    def session_pid(self, worker: str) -> int | None:
        """A worker's Spark session, while it has one."""
        pids = [p.pid for p in _children(self.pid(worker)) if _is_session(p)]
        return pids[0] if pids else None

    def kill(self, name: str) -> None:
        """Kill -9 a process without notice; of a worker the agent, with which its session ends."""
        process = self._running.pop(name)
        self._left += _children(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_all_of(self, name: str) -> None:
        """Kill -9 a process and all that it has started, as when its machine is lost."""
        process = self._running.pop(name)
        for one in _tree(process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()

    def kill_session(self, worker: str) -> None:
        """Kill -9 a worker's Spark session; its agent lives."""
        pid = self.session_pid(worker)
        assert pid is not None, f"{worker} has no session"
        os.kill(pid, signal.SIGKILL)

    def killer(self, name: str) -> Callable[[], None]:
        """A function that kills a process and its descendants, as fast as possible."""
        tree = _tree(self.pid(name))

        def kill() -> None:
            for one in tree:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)

        return kill

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process, of a worker to its agent alone."""
        self._running[name].send_signal(number)

    def signal_all_of(self, name: str, number: int) -> None:
        """Send a signal to a process and to all that it has started."""
        for one in _tree(self._running[name].pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(number)

    def rename(self, name: str, new: str) -> None:
        """Call a running process otherwise, so that another one may have its name."""
        assert new not in self._running, f"{new} runs already"
        self._running[new] = self._running.pop(name)

    def wake(self, name: str) -> None:
        """Resume a paused process and all its descendants."""
        self.signal_all_of(name, signal.SIGCONT)

    def end(self, name: str) -> None:
        """End a process in order and wait for it; by force after ``END_S``."""
        process = self._running.pop(name)
        self._left += _children(process.pid)
        process.terminate()
        _wait(process)

    def wait(self, name: str) -> int:
        """Wait until a process ends on its own, or by a ``killer``; its exit status."""
        status = self._running[name].wait(END_S)
        del self._running[name]
        return status

    def stop(self) -> None:
        """Stop all processes in order, and kill the rest."""
        left = [*self._left]
        for process in self._running.values():
            left += _children(process.pid)
            # A paused process handles no signal but these.
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._running.values():
            _wait(process)
        self._running.clear()
        for one in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()

    def logs(self) -> str:
        """The last lines that each process printed, for a failed test."""
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:])
            for path in sorted(self.directory.glob("*.log"))
        )


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tree(pid: int) -> list[psutil.Process]:
    try:
        return [psutil.Process(pid), *_children(pid)]
    except psutil.NoSuchProcess:
        return []


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _is_session(process: psutil.Process) -> bool:
    try:
        return "mesh.worker.session_process" in process.cmdline()
    except psutil.NoSuchProcess:
        return False
