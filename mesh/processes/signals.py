"""End of long-running processes: on SIGTERM or SIGINT, or when their work ends.

Notifications to the service manager: readiness, end, and signs of life, as systemd reads them.

systemd starts a service of ``Type=notify`` with a datagram socket in ``NOTIFY_SOCKET``, and with
``WatchdogSec`` in ``WATCHDOG_USEC``.  Without the first variable nothing here does anything.

Source:
    sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, MutableMapping


#: Interval at which the reasons against readiness are looked at before readiness, seconds.
_LOOK_S: Final = 0.2
#: The same after it, without a watchdog.
_IDLE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Notifier:
    """The socket of the service manager, and how often it expects a sign of life."""

    #: Path of the socket, with a leading ``@`` in the abstract namespace; "" for no manager.
    address: str = ""
    #: Time without a sign of life after which the process is killed, seconds; 0 for any time.
    watchdog_s: float = 0.0

    def send(self, *assignments: str) -> None:
        """Send assignments like ``READY=1`` in one message; a manager that is gone gets none."""
        if not self.address:
            return
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
        ):
            # A full queue of the service manager must not hold up the event loop.
            sender.setblocking(False)
            sender.sendto("\n".join(assignments).encode(), address)

    def stopping(self) -> None:
        """Report that the process ends in order."""
        self.send("STOPPING=1", "STATUS=ends")

    async def report(self, reasons: Callable[[], tuple[str, ...]]) -> None:
        """Report readiness once there is no reason against it, and signs of life, without end.

        Args:
            reasons: those against readiness, as the probe gives them; none if ready.
        """
        was_ready, shown = False, ""
        while True:
            obstacles = reasons()
            status = "; ".join(obstacles) or "ready"
            lines = ["WATCHDOG=1"] if self.watchdog_s else []
            if status != shown:
                lines.append(f"STATUS={status}")
            if not obstacles and not was_ready:
                lines.append("READY=1")
                was_ready = True
            if lines:
                self.send(*lines)
            shown = status
            pause_s = self.watchdog_s / 3 if self.watchdog_s else _IDLE_S
            await asyncio.sleep(pause_s if was_ready else min(_LOOK_S, pause_s))


def take_from(environment: MutableMapping[str, str], pid: int) -> Notifier:
    """The notifier of the process ``pid``, whose variables are removed: children have none."""
    address = environment.pop("NOTIFY_SOCKET", "")
    period = environment.pop("WATCHDOG_USEC", "")
    owner = environment.pop("WATCHDOG_PID", "")
    is_watched = period.isdecimal() and owner in ("", str(pid))
    # Other address families exist for virtual machines; they are not ours.
    if address[:1] not in ("/", "@"):
        return Notifier()
    return Notifier(address, int(period) / 1e6 if is_watched else 0.0)


@asynccontextmanager
async def reporting(reasons: Callable[[], tuple[str, ...]]) -> AsyncIterator[Notifier]:
    """A notifier of this process that reports while the body runs, if a service manager listens."""
    notifier = take_from(os.environ, os.getpid())
    if not notifier.address:
        yield notifier
        return
    task = asyncio.create_task(notifier.report(reasons))
    try:
        yield notifier
    finally:
        await end([task])


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
