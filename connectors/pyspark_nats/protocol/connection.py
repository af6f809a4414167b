"""A synchronous connection to NATS that reconnects; JetStream calls are made over it.

A Spark task and the planner of a query each do one thing at a time, so they need no event loop:
they send, and read until the answer has arrived.  ``Connection.retry_while_unavailable`` makes
every call survive a restart, a change of leader, or a lost connection: it repeats a step until it
succeeds or ``timeoutS`` is over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark_nats.errors import RefusedError, UnavailableError
from pyspark_nats.gc_freeze import freeze_imported
from pyspark_nats.protocol import frames
from pyspark_nats.protocol.answers import Reply as Reply
from pyspark_nats.protocol.answers import refusal as refusal
from pyspark_nats.protocol.link import Link
from pyspark_nats.protocol.servers import ServerPool
from pyspark_nats.protocol.transport import DisconnectedError as DisconnectedError
from pyspark_nats.protocol.transport import NoRoomError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_nats.json_types import JsonObject
    from pyspark_nats.protocol.connection_options import ConnectionOptions

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Timeout of one answer before the step is tried again on another server.
REQUEST_S: Final = 2.0
#: Interval at which a request without an answer is repeated: while servers elect a leader none of
#: them answers, and the new leader does not know of earlier requests.
_REPEAT_S: Final = 0.4
#: Octets that are sent although more may follow.
_TOGETHER_BYTES: Final = 64 << 10


class Connection:
    """A connection that is opened on first use and reopened when it broke; for one thread."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._timeout_s = options.timeout_s
        self._pool = ServerPool(options.servers)
        self._open: Link | None = None
        self._sids = 1
        self._info: dict[str, object] = {}
        #: Number of consecutive unreachable servers.
        self._missed = 0
        #: Number of times it was opened: subscriptions end with each.
        self.open_count = 0
        #: Called with subject, header and data of a message that comes while another is awaited.
        self.on_other: Callable[[str, bytes, bytes], object] = lambda *_: None
        #: Pieces to be sent together; None if each is sent at once.
        self._held: list[bytes] | None = None
        self._held_bytes = 0

    def __repr__(self) -> str:
        return f"Connection({self._pool.current}, {'open' if self._open else 'closed'})"

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- life

    def retry_while_unavailable(
        self, what: str, step: Callable[[], T], *, is_under_way: bool = False
    ) -> T:
        """Run ``step`` until it meets an available server and leader.

        Args:
            what: names the step in the error.
            step: must be safe to repeat.
            is_under_way: the step continues with answers to an earlier request; otherwise unread
                received data is dropped as leftovers.

        Raises:
            UnavailableError: ``timeoutS`` is over; RefusedError: no server accepts our credentials;
                any other error of the step at once.
        """
        deadline_s = time.monotonic() + self._timeout_s
        pause_s = 0.02
        while True:
            try:
                if not is_under_way or self._open is None:
                    self._ensure()
                return step()
            except (DisconnectedError, OSError) as error:
                reason, last = str(error) or type(error).__name__, error
                # After a timeout the connection can't be trusted; another server may be better.
                self._leave()
            if time.monotonic() + pause_s > deadline_s:
                servers = ", ".join(map(str, self._pool.servers))
                if isinstance(last, NoRoomError):
                    raise UnavailableError(
                        f"{reason}, for {self._timeout_s:g} s: {what}",
                        detail=f"Servers: {servers}.",
                        hint=last.hint,
                    )
                raise UnavailableError(
                    f"no answer from NATS within {self._timeout_s:g} s: {what}",
                    detail=f"Servers: {servers}; last: {reason}.",
                    hint='Raise option "timeoutS" if the servers need longer to come back.',
                )
            log.debug("waiting for nats: %s: %s", what, reason)
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, 0.5)

    @contextlib.contextmanager
    def patience(self, most_s: float) -> Iterator[None]:
        """Have steps, and each answer, take at most ``most_s`` instead of ``timeoutS``."""
        self._timeout_s = min(most_s, self._options.timeout_s)
        try:
            yield
        finally:
            self._timeout_s = self._options.timeout_s

    def close(self) -> None:
        """Close the connection; the next step opens another."""
        if self._open is not None:
            self._open.close()
        self._open = None
        self._drop_held()

    def _leave(self) -> None:
        self.close()
        self._pool.advance()

    def _ensure(self) -> None:
        """Connect unless connected.

        Raises:
            RefusedError: none of the reachable servers accepts us; DisconnectedError, OSError: the
                current server is unreachable.
        """
        if self._open is not None:
            if self._open.is_leaving and len(self._pool) > 1:
                self._leave()
            elif self._open.is_alive(self.on_other):
                return
        self.close()
        refused: RefusedError | None = None
        for _ in range(len(self._pool)):
            try:
                # Each gets the full timeout if the others were unreachable too.
                is_hurried = self._missed < len(self._pool) - 1
                server = self._pool.current
                self._open = Link(server, self._options, self._learn, is_hurried=is_hurried)
            except RefusedError as error:
                refused = refused or error
            except (DisconnectedError, OSError):
                self._missed += 1
                if refused is None:
                    raise
            else:
                self._missed = 0
                self._pool.mark_connected()
                self._sids = 1
                self.open_count += 1
                return
            self._pool.advance()
        assert refused is not None
        raise refused

    def _learn(self, info: JsonObject) -> None:
        self._info = info
        self._pool.learn(info)

    @property
    def has_denied(self) -> bool:
        """Whether the server has denied a subscription for notification on this connection."""
        return self._link.has_denied

    @property
    def _link(self) -> Link:
        if self._open is None:
            raise DisconnectedError("not connected")
        return self._open

    # --- bytes

    @property
    def info(self) -> JsonObject:
        """The server's ``INFO``, with ``max_payload``; empty before the first step."""
        return self._info

    @property
    def is_open(self) -> bool:
        """Whether it is connected, as far as is known."""
        return self._open is not None

    @property
    def buffered_bytes(self) -> int:
        """Number of received and unread bytes."""
        return self._open.buffered_bytes if self._open is not None else 0

    @property
    def buffered_tail(self) -> bytes:
        """The last of the received and unread bytes; enough for a status."""
        return self._open.buffered_tail(256) if self._open is not None else b""

    def send(self, data: bytes) -> None:
        """Send, however slowly the server reads; data that arrives meanwhile is kept.

        Raises:
            DisconnectedError: the server read nothing for long, or closed the connection.
        """
        link = self._link
        if self._held is None:
            link.send(data)
            return
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > _TOGETHER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what is held back; a failure closes the connection, and is raised as by ``send``.

        So who has sent something finds that the connection is not that any more (``open_count``).
        """
        if not self._held:
            return
        data = b"".join(self._held)
        self._drop_held()
        try:
            self._link.send(data)
        except BaseException:
            self.close()
            raise

    def _drop_held(self) -> None:
        self._held_bytes = 0
        if self._held is not None:
            self._held.clear()

    def hold(self) -> None:
        """Hold back what is sent, until ``flush`` or a wait for the server, and until ``release``.

        To send many small pieces takes longer than to make them: each wakes the server.
        """
        self._held = []

    def release(self) -> None:
        """``flush``, and send each piece at once from now on; a failure closes the connection."""
        with contextlib.suppress(DisconnectedError, OSError, RefusedError):
            self.flush()
        self._held = None

    def receive(self, deadline_s: float) -> None:
        """Wait for bytes until ``deadline_s`` (monotonic) and keep them.

        Raises:
            DisconnectedError: none arrived, or the server closed the connection.
        """
        self.flush()
        self._link.receive(deadline_s)

    def gather(self, count: int, pause_s: float) -> None:
        """Receive until ``count`` bytes are unread, or nothing arrives for ``pause_s``.

        Raises:
            DisconnectedError: the server closed the connection.
        """
        self.flush()
        self._link.gather(count, pause_s)

    def receive_now(self) -> bool:
        """Keep the bytes that have arrived; whether there are any; False while it is closed.

        Raises:
            DisconnectedError: the server closed the connection.
        """
        return self._open is not None and self._open.receive_now()

    @property
    def has_received(self) -> bool:
        """Whether bytes have arrived that ``fileno`` does not show."""
        return self._open is not None and self._open.has_received

    def is_readable(self, wait_s: float = 0.0) -> bool:
        """Whether bytes wait in the socket, or arrive within ``wait_s``."""
        if wait_s > 0:
            self.flush()
        return self._open is not None and self._open.is_readable(wait_s)

    @property
    def last_activity_s(self) -> float:
        """When the server was last heard of, monotonic, seconds; 0 while it is closed."""
        return self._open.last_activity_s if self._open is not None else 0.0

    def fileno(self) -> int | None:
        """The file descriptor of the socket; None while it is closed."""
        return self._open.fileno() if self._open is not None else None

    def take_frames(self) -> frames.Frames:
        """All whole messages received so far; other frames are processed.

        Raises:
            RefusedError: the server denied a subject that we publish to or wait on.
        """
        return self._link.take_frames()

    def take_few(self) -> list[frames.Frame] | None:
        """``take_frames`` for few messages; None for many, which are kept.

        Raises:
            RefusedError: as for ``take_frames``.
        """
        return self._link.take_few()

    def take_acks(self, replies: Sequence[bytes]) -> list[int] | None:
        """Number of acks on each of ``replies``; None if not all are plain: use ``take_frames``."""
        return self._link.take_acks(replies)

    def next_frame(self) -> tuple[int, str, bytes, bytes] | None:
        """The next received message as (sid, subject, header, data), None if none is whole.

        Raises:
            RefusedError: the server denied a subject that we publish to or wait on.
        """
        return self._link.next_frame()

    # --- requests

    def api(self, call: str) -> str:
        """The subject of a call of the JetStream API, such as ``STREAM.INFO.ORDERS``."""
        return f"{self._options.js_api_prefix}.{call}"

    def new_inbox(self) -> tuple[int, str]:
        """Subscribe to a new inbox; returns (sid, subject)."""
        return self.new_inboxes(1)[0]

    def new_inboxes(self, count: int) -> list[tuple[int, str]]:
        """Subscribe to new inboxes; returns (sid, subject) of each, with consecutive sids."""
        first = self._sids + 1
        self._sids += count
        inboxes = [(sid, f"{self._link.inbox}.{sid}.m") for sid in range(first, first + count)]
        self.send("".join(f"SUB {inbox} {sid}\r\n" for sid, inbox in inboxes).encode())
        return inboxes

    def new_inbox_tree(self, below: str = "*") -> tuple[int, str]:
        """Subscribe to a token below a new inbox, or to ``>``; returns (sid, inbox)."""
        self._sids += 1
        inbox = f"{self._link.inbox}.{self._sids}"
        self.send(f"SUB {inbox}.{below} {self._sids}\r\n".encode())
        return self._sids, inbox

    def subscribe(self, subject: str, *, most: int) -> int:
        """Subscribe to ``subject`` for ``most`` messages; returns the sid."""
        self._sids += 1
        self.send(f"SUB {subject} {self._sids}\r\nUNSUB {self._sids} {most}\r\n".encode())
        return self._sids

    def unsubscribe(self, *sids: int) -> None:
        """End subscriptions; messages on their way are dropped on arrival."""
        self.send("".join(f"UNSUB {sid}\r\n" for sid in sids).encode())

    def reply_subjects(self, count: int) -> list[str]:
        """New subjects for answers that ``replies`` reads."""
        first = self._sids + 1
        self._sids += count
        return [f"{self._link.inbox}.{n}" for n in range(first, first + count)]

    def replies(
        self, subjects: list[str], timeout_s: float = REQUEST_S, requests: Sequence[bytes] = ()
    ) -> list[Reply]:
        """Wait for one answer on each of ``subjects``.

        Args:
            subjects: of the answers.
            timeout_s: for all of them.
            requests: the request of each, which is repeated while it has no answer; none for none.

        Raises:
            DisconnectedError: an answer was late, or no responder serves the request.
        """
        self.flush()
        indexes = {subject: at for at, subject in enumerate(subjects)}
        answers: dict[int, Reply] = {}
        deadline_s = time.monotonic() + min(timeout_s, self._timeout_s)
        repeat_s = time.monotonic() + _REPEAT_S
        while len(answers) < len(subjects):
            frame = self._link.next_frame()
            if frame is None:
                wait_s = min(deadline_s, repeat_s) - time.monotonic()
                if self._link.is_readable(wait_s) or time.monotonic() >= deadline_s:
                    self.receive(deadline_s)
                else:
                    repeat_s += _REPEAT_S
                    self.send(b"".join(r for at, r in enumerate(requests) if at not in answers))
                    self.flush()
                continue
            _, subject, header, data = frame
            if subject not in indexes:
                self.on_other(subject, header, data)
                continue
            said = frames.status(header) if header else None
            if said is not None and said[0] == 503:
                raise DisconnectedError("no responders: JetStream is not there")
            answers[indexes[subject]] = Reply(header, data)
        return [answers[at] for at in range(len(subjects))]

    def requests(self, calls: list[tuple[str, bytes]], timeout_s: float = REQUEST_S) -> list[Reply]:
        """Send all ``calls`` (subject, payload), and wait for all answers.

        Without an answer a call is repeated, as is a step that fails.
        """
        subjects = self.reply_subjects(len(calls))
        requests = [
            frames.publish(subject, data, reply=reply)
            for (subject, data), reply in zip(calls, subjects, strict=True)
        ]
        self.send(b"".join(requests))
        return self.replies(subjects, timeout_s, requests)

    def wait_for_message(self, sids: set[int], timeout_s: float) -> bool:
        """Wait until a message arrives for one of ``sids``; False if none arrived in time."""
        self.flush()
        deadline_s = time.monotonic() + timeout_s
        while True:
            frame = self._link.next_frame()
            if frame is not None:
                if frame[0] in sids:
                    return True
                continue
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0 or not self._link.is_readable(remaining_s):
                return False
            self.receive(time.monotonic() + 1)


_local = threading.local()


def shared(options: ConnectionOptions, purpose: str = "") -> Connection:
    """This thread's connection for ``options``, kept open between uses.

    Spark reuses its Python workers, so a small batch finds an open connection.

    Args:
        options: of the connection.
        purpose: a call that waits for its answer drops all others.  So publishing, which is under
            way while rows are read, has a connection of its own.
    """
    # Every task calls this function, and Spark collects garbage after every task.
    freeze_imported()
    connections = _shared()
    connection = connections.get((options, purpose))
    if connection is None:
        connection = connections[options, purpose] = Connection(options)
    return connection


@contextlib.contextmanager
def together(purpose: str) -> Iterator[None]:
    """Hold back what is sent over this thread's connections of a purpose: ``Connection.hold``."""
    connections = [one for (_, use), one in _shared().items() if use == purpose]
    for one in connections:
        one.hold()
    try:
        yield
    finally:
        for one in connections:
            one.release()


def close_shared() -> None:
    """Close the connections that ``shared`` keeps for this thread."""
    for connection in _shared().values():
        connection.close()


def _shared() -> dict[tuple[ConnectionOptions, str], Connection]:
    connections: dict[tuple[ConnectionOptions, str], Connection]
    connections = _local.__dict__.setdefault("connections", {})
    return connections


# A forked worker must not use its parent's socket.
os.register_at_fork(after_in_child=lambda: _local.__dict__.clear())
