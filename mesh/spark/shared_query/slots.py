"""The session's side of its slots: connections, and which parts each of them serves."""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.spark.shared_query.at_work import AtWork
from mesh.spark.shared_query.slot_protocol import Hello

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mesh.spark.shared_query.at_work import Work
    from mesh.spark.shared_query.members import Member
    from mesh.spark.shared_query.slot_protocol import Command
    from mesh.spark.shared_query.work import Outcome


@dataclass(eq=False)
class SlotLink:
    """A connected slot; messages to it are queued, as a slot at work reads none."""

    hello: Hello
    connection: Connection
    #: Number of parts that it serves.
    load: int = 0
    _queue: queue.SimpleQueue[Command | None] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        self._at_work = AtWork(Path(self.hello.at_work))
        threading.Thread(target=self._write, name="slot-writer", daemon=True).start()

    def send(self, command: Command) -> None:
        """Queue a command."""
        self._queue.put(command)

    def work(self) -> Work | None:
        """Its present work; None while idle."""
        return self._at_work.look()

    def kill(self) -> None:
        """Kill its process."""
        with suppress(ProcessLookupError):
            os.kill(self.hello.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the connection, which ends the slot; queued commands may be lost."""
        self._queue.put(None)

    def _write(self) -> None:
        # A slot that is gone is noticed by the reader.
        with suppress(OSError):
            while (command := self._queue.get()) is not None:
                self.connection.send(command)
            # To close it would not wake the thread that reads.
            with socket.socket(fileno=os.dup(self.connection.fileno())) as ended:
                ended.shutdown(socket.SHUT_RDWR)


class Slots:
    """The slots of one run of the shared query."""

    def __init__(
        self,
        address: Path,
        count: int,
        on_ready: Callable[[Sequence[SlotLink]], None],
        on_outcomes: Callable[[SlotLink, tuple[Outcome, ...]], None],
    ) -> None:
        """Accept slots from now on.

        Args:
            address: path for a socket.
            count: how many slots there will be.
            on_ready: called once, when all of them are connected.
            on_outcomes: called with the reports of a slot, in order.
        """
        self._listener = Listener(str(address), family="AF_UNIX")
        self._count = count
        self._on_ready, self._on_outcomes = on_ready, on_outcomes
        self._lock = threading.Lock()
        self._links: list[SlotLink] = []
        self._is_closed = False
        #: For each slot that ended before it was to, what it was working on.
        self._lost: list[Work | None] = []
        self.address = str(address)
        threading.Thread(target=self._accept, name="slots", daemon=True).start()

    @property
    def links(self) -> tuple[SlotLink, ...]:
        """The connected slots."""
        with self._lock:
            return tuple(self._links)

    @property
    def is_ready(self) -> bool:
        """Whether all slots have connected."""
        return len(self.links) >= self._count

    @property
    def is_lost(self) -> bool:
        """Whether a slot has ended before it was to."""
        return bool(self._lost)

    def suspects(self) -> frozenset[str]:
        """The instances that lost slots were working for."""
        with self._lock:
            return frozenset(work.instance for work in self._lost if work is not None)

    def close(self) -> None:
        """End all slots."""
        with self._lock:
            self._is_closed = True
        # Wakes the thread that accepts.
        with suppress(OSError):
            Client(self.address, family="AF_UNIX").close()
        for link in self.links:
            link.close()

    def _accept(self) -> None:
        with self._listener:
            while True:
                connection = self._listener.accept()
                with self._lock:
                    if self._is_closed:
                        connection.close()
                        return
                threading.Thread(
                    target=self._read, args=(connection,), name="slot-reader", daemon=True
                ).start()

    def _read(self, connection: Connection) -> None:
        link: SlotLink | None = None
        try:
            link = SlotLink(connection.recv(), connection)
            with self._lock:
                self._links.append(link)
                is_last = len(self._links) == self._count
            if is_last:
                self._on_ready(self.links)
            while True:
                self._on_outcomes(link, connection.recv())
        except (EOFError, OSError):
            connection.close()
            with self._lock:
                if link is not None and not self._is_closed:
                    self._lost.append(link.work())


def distribute(member: Member, links: Sequence[SlotLink]) -> list[tuple[SlotLink, tuple[str, ...]]]:
    """Which slots serve which parts of a member: all slots about equally many.

    The parts of a member that halts at a position stay together, as they halt together.
    """
    keys = tuple(part.key for part in member.parts)
    by_load = sorted(links, key=lambda link: link.load)
    count = 1 if member.until is not None else min(len(by_load), len(keys))
    return [(link, keys[number::count]) for number, link in enumerate(by_load[:count])]
