"""Readers of many streams at once, to which messages come as they are stored.

Each stream has a pull consumer without acks, and all of them share one connection.  A consumer
always has an open request, so the server sends a message as soon as it is stored, with its position
in the reply subject, which no publisher can write.  The requests bound what may wait here unread.

A reader is *broken* when its consumer is gone or silent, or a message was lost on the way.  The
caller then looks at the stream, and follows it again from where it is.

A consumer is in one server of a cluster, and says nothing when that one is killed.  So one consumer
of each server is *probed* many times a second with a request that it refuses.  If it is gone, the
connected server says so at once, and the other consumers of its server are probed too.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import FEW
from pyspark_nats.errors import ConnectorError
from pyspark_nats.protocol import frames, jetstream
from pyspark_nats.protocol.connection import DisconnectedError
from pyspark_nats.protocol.frames import header_values
from pyspark_nats.source import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.source.messages import Messages

K = TypeVar("K", bound="Hashable")
M = TypeVar("M")

#: Most messages and bytes of one request for a stream that has much.
_MESSAGES_MAX: Final = 50_000
_BYTES_MAX: Final = 16 << 20
#: After so many bytes at once there may be more in the socket.
_MORE_BYTES: Final = 32 << 10
#: Interval of probes, seconds.
_PROBE_S: Final = 0.25
#: Time in which the server sends the next of the messages that a stream has, seconds.
_SOON_S: Final = 0.1
#: After this part of its time another request is open: the server may delete a consumer without
#: one at once.
_RENEWED: Final = 0.75
#: A request that every consumer refuses, as its signs of life would come too late; and the code of
#: the answer.
_PROBE: Final = b'{"expires":1000000,"idle_heartbeat":1000000}'
_REFUSED: Final = 400


@dataclass(frozen=True, slots=True)
class TailOptions:
    """Sizes of the requests of readers, and times by which their end is noticed."""

    #: Most messages and bytes of a reader's first request.
    messages_first: int = 1_000
    bytes_first: int = 1 << 20
    #: Interval of the signs of life of a consumer in a cluster and of others, and their number
    #: after which it counts as silent: the consumer of a replicated stream is in one server, which
    #: may end; seconds.
    beat_clustered_s: float = 2.0
    beat_s: float = 20.0
    silent_beats: float = 2.5
    #: Quiet time after which the server is asked for a sign of life, and its time to answer,
    #: seconds.
    quiet_s: float = 1.0
    answers_s: float = 2.0
    #: The server ends a request after this time, seconds; no signs of life follow one that it lost.
    expires_s: float = 120.0


@dataclass(eq=False, slots=True)
class _Tail(Generic[K]):
    key: K
    stream: str
    consumer: str
    #: The server of a cluster that has the consumer; empty for a server alone.
    server: str
    sid: int
    inbox: str
    messages_max: int
    bytes_max: int
    #: Number of messages that it has sent, and that open requests may still bring.
    delivered: int = 0
    expected: int = 0
    requests: int = 0
    #: When the last one was opened, monotonic, seconds.
    request_s: float = 0.0
    #: When it was last heard of, monotonic, seconds.
    last_activity_s: float = 0.0
    #: Messages that the caller has not taken, and how many the stream has after them.
    waiting: list[Messages] = field(default_factory=list)
    pending: int = 0


class Tails(Generic[K]):
    """Readers by a key of the caller's; for one thread."""

    def __init__(
        self, connection: Connection, asks: Connection, options: TailOptions | None = None
    ) -> None:
        """No readers yet.

        Args:
            connection: for messages only.
            asks: for requests.
            options: sizes and times; None for the usual ones.
        """
        self._connection = connection
        self.asks = asks
        self.options = options or TailOptions()
        #: The state of each reader.
        self.by_key: dict[K, _Tail[K]] = {}
        self._by_sid: dict[int, _Tail[K]] = {}
        self._connection_number = 0
        #: The keys with messages, and those whose readers have broken since the last ``receive``.
        self._ready: dict[K, None] = {}
        self._broken: set[K] = set()
        #: Whether a reader has its consumer in a server of a cluster.
        self._is_clustered = False
        #: When the readers were last looked at, monotonic, seconds.
        self._swept_s = 0.0
        #: When the server was last asked for a sign of life, monotonic, seconds.
        self._pinged_s = 0.0
        #: When probes were last sent, monotonic, seconds, and the servers probed in full since.
        self._probed_s = 0.0
        self._suspected: set[str] = set()

    @property
    def connection(self) -> Connection:
        """The connection for messages, for ``wait_any``."""
        return self._connection

    def __contains__(self, key: object) -> bool:
        return key in self.by_key

    def __len__(self) -> int:
        return len(self.by_key)

    def follow(self, key: K, stream: str, at: int, within_s: float = jetstream.REQUEST_S) -> None:
        """Read ``stream`` after sequence ``at`` from now on.

        Raises:
            RefusedError: this account may not, or the stream is gone; UnavailableError: no answer;
                DisconnectedError: no consumer was made within ``within_s``: the cluster has no
                leader, or has placed it in a server that was just killed.
        """
        self.forget(key)
        self.asks.retry_while_unavailable("following a stream", lambda: None)
        try:
            reader = jetstream.create_reader(self.asks, stream, at + 1, timeout_s=within_s)
        except (DisconnectedError, OSError) as error:
            raise DisconnectedError(f"no consumer was made: {error}") from error

        def step() -> None:
            self._drop_lost()
            sid, inbox = self._connection.new_inbox_tree()
            tail = _Tail(
                key,
                stream,
                reader.name,
                reader.server,
                sid,
                inbox,
                self.options.messages_first,
                self.options.bytes_first,
                last_activity_s=time.monotonic(),
            )
            self.by_key[key] = self._by_sid[sid] = tail
            self._is_clustered |= bool(reader.server)
            self._broken.discard(key)
            self._ask(tail)

        self._connection.retry_while_unavailable("following a stream", step, is_under_way=True)

    def forget(self, key: K) -> None:
        """End a reader; its consumer expires."""
        tail = self.by_key.pop(key, None)
        if tail is None:
            return
        self._by_sid.pop(tail.sid, None)
        self._ready.pop(key, None)
        if self._connection.is_open:
            try:
                self._connection.unsubscribe(tail.sid)
            except (DisconnectedError, OSError):
                # The next call reconnects.
                return

    def receive(self) -> set[K]:
        """Take in what has arrived; the keys of the readers that are broken, which end."""
        if not self.by_key:
            # Bytes that are not read would wake every wait.
            self._connection.close()
            return self._lost()
        try:
            while self._take_in():
                pass
            self._check()
        except (DisconnectedError, OSError, ConnectorError):
            self._connection.close()
        self._drop_lost()
        now_s = time.monotonic()
        if now_s - self._swept_s >= _PROBE_S:
            self._swept_s = now_s
            self._look(now_s)
        return self._lost()

    def _look(self, now_s: float) -> None:
        """End the readers that are silent, and open requests before the present ones end."""
        silent_s = self.options.silent_beats * self._beat_s
        for tail in list(self.by_key.values()):
            if now_s - tail.last_activity_s > silent_s:
                self._break(tail)
            elif now_s - tail.request_s > _RENEWED * self.options.expires_s:
                self._open_request(tail)

    def _break(self, tail: _Tail[K]) -> None:
        self._broken.add(tail.key)
        self.forget(tail.key)

    def _lost(self) -> set[K]:
        keys, self._broken = self._broken, set()
        return keys

    def ready(self) -> list[K]:
        """The keys with messages, in the order of their arrival."""
        return list(self._ready)

    def take(self, key: K, at: int, most: int) -> tuple[Messages, int] | None:
        """Messages of a reader, and how many wait after them.

        Args:
            key: of the reader.
            at: only messages after this sequence.
            most: at most so many.

        Returns:
            None without any.
        """
        tail = self.by_key[key]
        if not tail.waiting:
            return None
        queue = messages.concatenated(tail.waiting)
        first = int(queue.sequence.searchsorted(at, side="right"))
        last = min(len(queue), first + most)
        tail.waiting = [queue.slice(last, len(queue))] if last < len(queue) else []
        if not tail.waiting:
            del self._ready[key]
        if tail.expected + len(queue) - last <= tail.messages_max // 2:
            self._renew(tail)
        if first == last:
            return None
        return queue.slice(first, last), tail.pending + len(queue) - last

    def expects_until_s(self, key: K) -> float:
        """Time until which a reader expects further messages, monotonic, seconds; 0 for none.

        The stream may have lost what it had after the last message that came.
        """
        tail = self.by_key.get(key)
        if tail is None or not (tail.waiting or (tail.pending and tail.expected)):
            return 0.0
        return tail.last_activity_s + _SOON_S

    @property
    def check_s(self) -> float:
        """Time of the next ``receive`` even if nothing arrives, monotonic, seconds."""
        return self._probed_s + _PROBE_S if self._is_clustered else float("inf")

    def _check(self) -> None:
        """Check that the server is there, if it has been quiet.

        Raises:
            DisconnectedError: it is not.
        """
        now_s = time.monotonic()
        quiet_s = now_s - max(self._connection.last_activity_s, self._pinged_s)
        if self._pinged_s > self._connection.last_activity_s:
            if quiet_s > self.options.answers_s:
                raise DisconnectedError("the server is silent")
        elif quiet_s > self.options.quiet_s:
            self._pinged_s = now_s
            self._connection.send(b"PING\r\n")
        if now_s - self._probed_s >= _PROBE_S:
            self._probed_s = now_s
            self._suspected.clear()
            # The one that was made last: an earlier one may be gone for a reason of its own.
            self._probe({tail.server: tail for tail in self.by_key.values()}.values())

    def _probe(self, tails: Iterable[_Tail[K]]) -> None:
        """Send a request that a consumer refuses; the server answers for one that is gone."""
        octets = b"".join(
            frames.publish(
                self._connection.api(f"CONSUMER.MSG.NEXT.{tail.stream}.{tail.consumer}"),
                _PROBE,
                reply=f"{tail.inbox}.0",
            )
            for tail in tails
            if tail.server
        )
        if octets:
            self._connection.send(octets)

    def _suspect(self, server: str) -> None:
        """Probe all consumers of a server, as one of them is gone."""
        if server not in self._suspected:
            self._suspected.add(server)
            self._probe([tail for tail in self.by_key.values() if tail.server == server])

    # --- requests

    @property
    def _beat_s(self) -> float:
        is_clustered = "cluster" in self._connection.info
        return self.options.beat_clustered_s if is_clustered else self.options.beat_s

    def _renew(self, tail: _Tail[K]) -> None:
        tail.messages_max = min(2 * tail.messages_max, _MESSAGES_MAX)
        tail.bytes_max = min(2 * tail.bytes_max, _BYTES_MAX)
        self._open_request(tail)

    def _open_request(self, tail: _Tail[K]) -> None:
        """``_ask``; the next call reconnects if that fails."""
        try:
            self._ask(tail)
        except (DisconnectedError, OSError):
            self._connection.close()

    def _ask(self, tail: _Tail[K]) -> None:
        """Open a request."""
        tail.requests += 1
        tail.request_s = time.monotonic()
        query = {
            "batch": tail.messages_max,
            "max_bytes": tail.bytes_max,
            "expires": int(self.options.expires_s * 1e9),
            "idle_heartbeat": int(self._beat_s * 1e9),
        }
        self._connection.send(
            frames.publish(
                self._connection.api(f"CONSUMER.MSG.NEXT.{tail.stream}.{tail.consumer}"),
                json.dumps(query).encode(),
                reply=f"{tail.inbox}.{tail.requests}",
            )
        )
        tail.expected += tail.messages_max

    # --- answers

    def _drop_lost(self) -> None:
        """End the readers of an earlier connection."""
        if self._connection.open_count != self._connection_number or not self._connection.is_open:
            self._connection_number = self._connection.open_count
            self._broken |= self.by_key.keys()
            for some in (self.by_key, self._by_sid, self._ready):
                some.clear()
            self._is_clustered = False

    def _take_in(self) -> bool:
        """Process the messages that have arrived; whether many more may be there."""
        self._connection.receive_now()
        few = self._connection.take_few()
        if few is not None:
            by_sid: dict[int, list[frames.Frame]] = {}
            for one in few:
                by_sid.setdefault(one.sid, []).append(one)
            self._received_of(by_sid.items(), self._received_few)
            return False
        batch = self._connection.take_frames()
        if len(batch):
            self._received_of(self._divided(batch), self._received)
        return batch.consumed >= _MORE_BYTES

    def _received_of(
        self, parts: Iterable[tuple[int, M]], received: Callable[[_Tail[K], M], None]
    ) -> None:
        """Process messages by the subscription of their reader; it may be broken by them."""
        now_s = time.monotonic()
        for sid, mine in parts:
            tail = self._by_sid.get(sid)
            if tail is None:
                continue
            tail.last_activity_s = now_s
            try:
                received(tail, mine)
            except DisconnectedError:
                self._break(tail)
                self._suspect(tail.server)

    def _divided(self, batch: frames.Frames) -> Iterator[tuple[int, frames.Frames]]:
        """Messages by the subscription of their reader."""
        if len(self._by_sid) == 1 and len(batch) > FEW:
            # A message of a reader that has ended would not fit the count of this one's messages.
            yield next(iter(self._by_sid)), batch
            return
        sids = batch.sid
        if len(batch) == 1 or (sids == sids[0]).all():
            yield int(sids[0]), batch
            return
        for sid in np.unique(sids).tolist():
            yield sid, batch.where(sids == sid)

    def _received(self, tail: _Tail[K], batch: frames.Frames) -> None:
        data = batch
        is_status = batch.is_status if batch.has_headers else None
        if is_status is not None and is_status.any():
            data = batch.where(~is_status)
            for at in np.flatnonzero(is_status).tolist():
                self._answered(tail, batch.header[at].as_py(), bool(len(data)))
        if len(data):
            self._keep(
                tail, *messages.of_consumer(tail.stream, tail.consumer, tail.delivered, data)
            )

    def _received_few(self, tail: _Tail[K], few: list[frames.Frame]) -> None:
        data = [one for one in few if not one.is_status]
        for one in few:
            if one.is_status and not one.is_beat:
                self._answered(tail, one.header, bool(data))
        if data:
            self._keep(tail, *messages.of_few(tail.stream, tail.consumer, tail.delivered, data))

    def _keep(self, tail: _Tail[K], got: Messages, pending: int) -> None:
        """Keep messages for ``take``; ``pending``: what the stream has after them."""
        tail.pending = pending
        tail.delivered += len(got)
        tail.expected = max(0, tail.expected - len(got))
        tail.waiting.append(got)
        self._ready[tail.key] = None

    def _answered(self, tail: _Tail[K], header: bytes, has_data: bool) -> None:
        """Process a status: a sign of life, or the end of a request."""
        said = frames.status(header)
        assert said is not None
        code, text = said
        if code in (100, _REFUSED):
            return
        if code not in (404, 408) and not (code == 409 and text.startswith(jetstream.SERVED)):
            raise DisconnectedError(f"{code} {text}")
        if code == 409 and text.startswith("Message Size") and not has_data:
            # One message may be larger than the requested size.
            tail.bytes_max = min(4 * tail.bytes_max, 8 * _BYTES_MAX)
        left = header_values(pa.array([header]), "Nats-Pending-Messages")[0].as_py()
        tail.expected = max(0, tail.expected - int(left)) if left else 0
        if not tail.waiting and tail.expected <= tail.messages_max // 2:
            self._ask(tail)
