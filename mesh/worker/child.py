"""The session as the agent's child process, with one line per command and reply."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from mesh.errors import MeshError
from mesh.files import scratch
from mesh.functions import script_switch
from mesh.processes.child_process import die_with_parent
from mesh.telemetry import traces
from mesh.telemetry.logs import fields
from mesh.worker import state_directory, store_secrets
from mesh.worker.protocol import Reply, SessionConfig, config_line, from_line, to_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from mesh.worker.protocol import Command

log = logging.getLogger(__name__)

#: Time for a session to stop its queries before it is killed.
STOP_S = 8.0


#: Beginnings of variables that give access: to NATS, to the REST API, to a store of states.
_LOGINS: Final = (
    "MESH_NATS_", "MESH_TOKEN", "MESH_PASSWORD", "MESH_NEW_PASSWORD",
)  # fmt: skip


def inherited() -> dict[str, str]:
    """This process's environment without logins: apps may run Python in the session."""
    return {name: v for name, v in os.environ.items() if not name.startswith(_LOGINS)}


class SessionProcess:
    """Starts and restarts the session; at most one runs at a time."""

    def __init__(self, config: SessionConfig, command: Sequence[str] = ()) -> None:
        self._config = config
        self._command = command or (sys.executable, "-m", "mesh.worker.session_process")
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the session, while it runs."""
        return self._process.pid if self._process is not None else None

    def instances(self) -> Path | None:
        """The directory of the instances' states; None while there is none."""
        if self.pid is None:
            return None
        return state_directory.instances_of(Path(self._config.directory), self.pid)

    async def start(self) -> None:
        """Start a session; remains of an earlier one are killed."""
        await self._end()
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**inherited(), **environment_of(self._config)},
            # Its own group, so that its JVM and Python workers can be killed with it.
            start_new_session=True,
            preexec_fn=die_with_parent(),
            limit=1 << 24,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(config_line(self._config))

    def send(self, command: Command) -> None:
        """Send a command; it is lost if the session has ended, as then its replies end too.

        It never waits: commands are few, and a session that doesn't read them is killed in the end.
        """
        if self._process is None:
            return
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(to_line(command))

    async def replies(self) -> AsyncIterator[Reply]:
        """The session's replies, until it ends; a line that can't be read is passed over."""
        assert self._process is not None
        stdout = self._process.stdout
        assert stdout is not None
        while True:
            try:
                line = await stdout.readline()
                if not line:
                    return
                reply = from_line(line)
            # The reader drops a line that is longer than its limit, and raises ValueError.
            except (MeshError, ValueError) as error:
                log.error("reply of a child process not read", extra=fields(error=error))
                continue
            if isinstance(reply, Reply):
                yield reply

    def memory_bytes(self) -> int:
        """Memory of the session and all its children; 0 if it has ended."""
        if self._process is None:
            return 0
        try:
            root = psutil.Process(self._process.pid)
            return sum(p.memory_info().rss for p in (root, *root.children(recursive=True)))
        except psutil.Error:
            return 0

    async def stop(self) -> None:
        """Stop the session's queries and end it; by force after a timeout."""
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                while await self._drain():
                    continue
                await self._process.wait()
        await self._end()

    async def kill(self) -> None:
        """End the session at once, with all its processes."""
        await self._end()

    async def _drain(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        return await self._process.stdout.read(1 << 16)

    async def _end(self) -> None:
        """Kill the session's whole group: a stuck JVM would otherwise outlive the session."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        # One that was killed has left its scratch files.
        await asyncio.to_thread(state_directory.remove_ended, Path(self._config.directory))
        await asyncio.to_thread(scratch.sweep)
        self._process = None


def environment_of(config: SessionConfig) -> dict[str, str]:
    """The variables of a session, which its JVM and Python workers inherit."""
    settings = config.settings
    allowed = script_switch.switch(settings.functions.python)
    stores = store_secrets.variables(settings)
    spans = traces.variables(settings.traces, config.worker)
    return {**allowed, **stores, **spans}
