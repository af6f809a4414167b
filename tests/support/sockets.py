"""Which test left a socket open: the garbage collector would blame whichever test runs then."""

from __future__ import annotations

import asyncio.selector_events
import traceback
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

    def left(self) -> list[str]:
        """The open sockets of loops that have ended, which are closed here."""
        found = []
        for made, place in list(self._opened.items()):
            if made._sock is not None and made._loop.is_closed():
                peer = made.get_extra_info("peername")
                found.append(f"{made!r} {peer}, opened by\n{place}")
                made._sock.close()
                made._sock, made._closing = None, True
        return found


def _place() -> str:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    name = f"{task!r}\n" if task is not None else ""
    # Without the frames of this module and of the class.
    return name + "".join(traceback.format_stack(limit=FRAMES)[:-4])
