"""A worker's side of ``mesh check``: opens sources and sinks from here, in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import orjson

from mesh.jetstream.connection import UNREACHABLE
from mesh.model import names
from mesh.model.question import is_inbox
from mesh.processes.bounded_process import die_with_parent
from mesh.processes.signals import end
from mesh.telemetry.logs import fields
from mesh.worker.children import environment_of, inherited
from mesh.worker.protocol import config_line

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from mesh.worker.protocol import SessionConfig

log = logging.getLogger(__name__)

#: Module of the process, which is not imported here: it is above this package.
CHECK: Final = "mesh.receiver.check_once"
#: Time of one check, seconds; checks that wait for a turn.
LIMIT_S: Final = 90.0
_WAITING_MAX: Final = 4


class ConnectorChecks:
    """Receives checks from managers, and answers one at a time."""

    def __init__(self, client: Client, config: SessionConfig) -> None:
        self._client, self._config = client, config
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Receive checks from now on."""
        subject = names.check_subject(self._config.worker)
        self._subscription = await self._client.subscribe(subject, cb=self._receive)

    async def stop(self) -> None:
        """Receive no more, and end the processes."""
        if self._subscription is not None:
            with contextlib.suppress(*UNREACHABLE):
                await self._subscription.unsubscribe()
        await end(list(self._tasks))

    async def _receive(self, message: Msg) -> None:
        if not is_inbox(message.reply):
            return
        if len(self._tasks) >= _WAITING_MAX:
            await message.respond(_problem("too many checks wait on this worker"))
            return
        task = asyncio.create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: Msg) -> None:
        async with self._turn:
            try:
                async with asyncio.timeout(LIMIT_S):
                    reply = await self._checked(message.data)
            except TimeoutError:
                reply = _problem(f"the check did not end within {LIMIT_S:g} s")
        with contextlib.suppress(*UNREACHABLE):
            await message.respond(reply)

    async def _checked(self, question: bytes) -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", CHECK,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**inherited(), **environment_of(self._config)},
            preexec_fn=die_with_parent(),
        )  # fmt: skip
        try:
            output, _ = await process.communicate(config_line(self._config) + question)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            log.warning("check failed", extra=fields(status=process.returncode))
            return _problem("the check failed; the worker's log has the reason")
        return output


def _problem(reason: str) -> bytes:
    return orjson.dumps({"problem": reason})
