"""Which test left a socket open: the garbage collector would blame whichever test runs then."""

from __future__ import annotations

import asyncio.selector_events
import traceback
from asyncio.sslproto import SSLProtocol, SSLProtocolState
from typing import Any
from weakref import WeakKeyDictionary

#: Frames of the stack that are kept of the task that opened a socket.
FRAMES = 12


class OpenSockets:
    """The sockets of event loops of this process, with the place where each was opened."""

    def __init__(self) -> None:
        self._opened: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    def watch(self) -> None:
        """Note each socket that a loop opens from here on."""
        transport: Any = asyncio.selector_events._SelectorTransport  # type: ignore[attr-defined]
        opens = transport.__init__
        opened = self._opened

        def noted(made: Any, *arguments: Any, **options: Any) -> None:
            opens(made, *arguments, **options)
            opened[made] = _place()

        transport.__init__ = noted

    def of_ended_loops(self) -> list[Any]:
        """The transports whose socket is open and whose loop is closed."""
        return [t for t in list(self._opened) if t._sock is not None and t._loop.is_closed()]

    def left(self) -> list[str]:
        """The open sockets of loops that have ended; they are closed here.

        Without those that were closed, with TLS, whose peer had no time left to say goodbye.
        """
        found = []
        for one in self.of_ended_loops():
            if not _says_goodbye(one.get_protocol()):
                peer, place = one.get_extra_info("peername"), self._opened[one]
                found.append(f"{one!r} {peer}, opened by\n{place}")
            one._sock.close()
            one._sock, one._closing = None, True
        return found


def _says_goodbye(protocol: Any) -> bool:
    if not isinstance(protocol, SSLProtocol):
        return False
    state = protocol._state  # type: ignore[attr-defined]
    return state in (SSLProtocolState.FLUSHING, SSLProtocolState.SHUTDOWN)


def _place() -> str:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    name = f"{task!r}\n" if task is not None else ""
    # Without the frames of this module and of the class.
    return name + "".join(traceback.format_stack(limit=FRAMES)[:-4])
