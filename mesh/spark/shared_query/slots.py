"""The session's side of its slots: connections, and which parts each of them serves."""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import threading
from contextlib import closing, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.spark.shared_query.at_work import AtWork, NotedWork
from mesh.spark.shared_query.slot_network import Hello, Working

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mesh.spark.shared_query.at_work import SlotWork
    from mesh.spark.shared_query.members import Member, Outcome
    from mesh.spark.shared_query.slot_network import Command, SessionLink, SlotListener

log = logging.getLogger(__name__)


@dataclass(eq=False)
class SlotLink:
    """A connected slot; messages to it are queued, as a slot at work reads none."""

    hello: Hello
    connection: SessionLink
    #: By app, how many streams' worth of messages it reads: see ``distribute``.
    load: dict[str, Fraction] = field(default_factory=dict)
    _queue: queue.SimpleQueue[Command | None] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        path = self.hello.at_work
        self._at_work = AtWork(Path(path)) if path else NotedWork()
        threading.Thread(target=self._write, name="slot-writer", daemon=True).start()

    def add_load(self, member: Member, parts: int) -> None:
        """Record that it serves so many more parts of a member, or fewer if negative."""
        app = member.io.assignment.app
        self.load[app] = self.load.get(app, Fraction(0)) + parts * _share(member)
        if not self.load[app]:
            del self.load[app]

    def send(self, command: Command) -> None:
        """Queue a command."""
        self._queue.put(command)

    def work(self) -> SlotWork | None:
        """Its present work; None while idle."""
        return self._at_work.look()

    def note(self, message: Working) -> None:
        """Record what a slot on another machine says of its work."""
        if isinstance(self._at_work, NotedWork):
            self._at_work.note(message.instance)

    def kill(self) -> None:
        """Kill its process, if it is on this machine; the end of its query ends others."""
        if not self.hello.at_work:
            return
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
        listener: SlotListener,
        count: int,
        on_ready: Callable[[Sequence[SlotLink]], None],
        on_outcomes: Callable[[SlotLink, tuple[Outcome, ...]], None],
    ) -> None:
        """Accept slots from now on.

        Args:
            listener: where they connect; closed with the slots.
            count: how many slots there will be.
            on_ready: called once, when all of them are connected.
            on_outcomes: called with the reports of a slot, in order.
        """
        self._listener = listener
        self._count = count
        self._on_ready, self._on_outcomes = on_ready, on_outcomes
        self._lock = threading.Lock()
        self._links: list[SlotLink] = []
        self._is_closed = False
        #: For each slot that ended before it was to, what it was working on.
        self._lost: list[SlotWork | None] = []
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
        self._listener.wake()
        for link in self.links:
            link.close()

    def _accept(self) -> None:
        with closing(self._listener):
            while True:
                connection = self._listener.accept()
                with self._lock:
                    if self._is_closed:
                        connection.close()
                        return
                threading.Thread(
                    target=self._read, args=(connection,), name="slot-reader", daemon=True
                ).start()

    def _read(self, connection: SessionLink) -> None:
        link: SlotLink | None = None
        try:
            link = SlotLink(connection.recv(), connection)
            with self._lock:
                self._links.append(link)
                is_last = len(self._links) == self._count
            if is_last:
                self._on_ready(self.links)
            while True:
                message = connection.recv()
                if isinstance(message, Working):
                    link.note(message)
                else:
                    self._on_outcomes(link, message)
        except Exception as error:
            # One that is not read any more would be at work unseen; its end starts the query again.
            if not isinstance(error, EOFError | OSError):
                log.exception("reports of a slot not read")
            connection.close()
            with self._lock:
                if link is not None and not self._is_closed:
                    self._lost.append(link.work())


def distribute(member: Member, links: Sequence[SlotLink]) -> dict[SlotLink, tuple[str, ...]]:
    """Which slots serve which parts of a member.

    Groups of one app work at the same time, as one reads what the other publishes.  So its parts
    are divided evenly by their share of a stream, and only then those of all apps.  The parts of a
    member that halts at a position stay together, as they halt together.
    """
    app, share = member.io.assignment.app, _share(member)
    load = {link: (link.load.get(app, 0), sum(link.load.values())) for link in links}
    by_link: dict[SlotLink, list[str]] = {}
    for part in member.parts:
        if member.until is None or not by_link:
            link = min(load, key=load.__getitem__)
        of_app, of_all = load[link]
        load[link] = of_app + share, of_all + share
        by_link.setdefault(link, []).append(part.key)
    return {link: tuple(keys) for link, keys in by_link.items()}


def _share(member: Member) -> Fraction:
    """The share of its stream's messages that a part of a member reads."""
    if member.io.group.stateful:
        return Fraction(1, member.io.partition_count)
    return Fraction(1, max(part.options.block_count for part in member.parts))
