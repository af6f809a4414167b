"""End of long-running processes: on SIGTERM or SIGINT, or when their work ends."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection


async def end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended, with any result.

    They are cancelled until they do: ``wait_for`` of Python 3.11, with which nats-py waits, forgets
    a cancellation that comes together with the result.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.2)
    for task in tasks:
        if not task.cancelled():
            # Looked at, so that asyncio doesn't report it as never retrieved.
            task.exception()


async def signalled(task: asyncio.Future[Any] | None = None) -> None:
    """Wait until a signal arrives, or ``task`` ends; after a signal, ``task`` continues.

    Raises:
        BaseException: what ``task`` raised, when it ended first.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if task is None:
        await stop.wait()
        return
    waiter = asyncio.create_task(stop.wait())
    await asyncio.wait((task, waiter), return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    if task.done():
        task.result()
