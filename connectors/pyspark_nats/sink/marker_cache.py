"""Per-thread cache of stream info and markers, shared by consecutive Spark tasks of a process.

A thread may have publishers that run in other threads: each entry is of one producer, which has one
publisher at a time.

Entries may be stale: callers must read a marker again before an irreversible decision
(``producer_state.skip_published``).

State of a producer's ingest batch between two runs.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from pyspark_nats.errors import RefusedError
from pyspark_nats.protocol.answers import Reply
from pyspark_nats.protocol.transport import DisconnectedError

if TYPE_CHECKING:
    from pyspark_nats.json_types import JsonObject
    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.protocol.connection_options import ConnectionOptions
    from pyspark_nats.protocol.jetstream import StreamInfo
    from pyspark_nats.sink.markers import Marker
    from pyspark_nats.sink.producer_state import Pair
    from pyspark_nats.sink.sink_options import SinkOptions


_local = threading.local()

#: Most messages between two acks of the server; it may send more acks.
FLOW: Final = 500
#: Purpose of the inbox that readers of the rows do not learn.
PINGS: Final = "pings"


@dataclass(eq=False)
class OpenBatch:
    """An ingest batch of one producer, which lasts for many runs."""

    batch_id: str = field(default_factory=lambda: os.urandom(6).hex())
    key: bytes = field(default_factory=lambda: os.urandom(16))
    #: Sequence of its newest marker; 0 for none.
    sequence: int = 0
    #: Number of its last row that was sent; that an ack covers; and that a ping covers.
    sent: int = 0
    acked: int = 0
    taken: int = 0
    #: Messages between two acks; the first tells how many they may be.
    flow: int = 1
    #: When its last row was sent, monotonic, seconds.
    used_s: float = 0.0
    #: The beginning of the reply subjects of its pings.
    pings: str = ""
    #: Why the server takes no more rows of it; empty as far as is known.
    failure: str = ""

    def reply(self, inbox: str) -> str:
        """The reply subject of its messages, up to their number; a gap ends the batch."""
        return f"{inbox}.{self.batch_id}.{FLOW}.fail"

    def take(self, subject: str, header: bytes, data: bytes) -> None:
        """Process the answer to a row, to a ping, or to a marker; a failure is noted."""
        inbox, *rest = subject.rsplit(".", 3)
        try:
            if not data:
                raise DisconnectedError(f"no responders: {header[:40]!r}")
            reply = Reply(header, data).json()
            if rest[-1:] == ["$FI"]:
                self._acked(inbox, rest, reply)
            else:
                self.sequence = int(reply["seq"])
        except (DisconnectedError, RefusedError) as error:
            self.failure = str(error)
        except (ValueError, KeyError, TypeError, AttributeError):
            # The end of the batch; or no answer of the server: readers of the rows see the inbox.
            self.failure = f"not an ack: {data[:80]!r}"

    def _acked(self, inbox: str, rest: list[str], reply: JsonObject) -> None:
        is_ack, seq, flow = reply["type"] == "ack", int(reply["seq"]), int(reply["msgs"])
        number, operation, _ = rest
        if not is_ack:
            raise DisconnectedError(f"not an ack: {reply}")
        if operation == "4" and inbox == self.pings:
            self.acked = self.taken = int(number)
        else:
            self.acked = max(self.acked, min(seq, self.sent))
            self.flow = max(1, min(flow, FLOW))


@dataclass
class _Acks:
    """Ingest batches of a thread that wait for answers.

    All caches of a thread have the same, as publishers that share a connection receive each other's
    answers.
    """

    #: By the beginnings of the subjects of their acks, and by the reply subjects of markers that
    #: are not acknowledged.
    by_inbox: WeakValueDictionary[str, OpenBatch] = field(default_factory=WeakValueDictionary)
    marked: dict[str, OpenBatch] = field(default_factory=dict)

    def take(self, subject: str, header: bytes, data: bytes) -> OpenBatch | None:
        """Process an answer for any publisher of the thread; the batch that it is for.

        None for a late one, which is not needed any more, and for the answer to something else.
        """
        batch = self.marked.pop(subject, None) or self.by_inbox.get(subject.rsplit(".", 3)[0])
        if batch is not None:
            batch.take(subject, header, data)
        return batch


@dataclass
class MarkerCache:
    """Markers and streams known to writers of the same connection, marker prefix and epoch."""

    markers: dict[Pair, Marker] = field(default_factory=dict)
    #: The last acknowledged marker of each producer; it stays when its cached value is in doubt.
    acknowledged: dict[Pair, Marker] = field(default_factory=dict)
    #: Position of the last row that the server has said to have stored, by producer; after an error
    #: of the file system it may be wrong.
    stored: dict[Pair, int] = field(default_factory=dict)
    #: Streams with checked configuration.
    streams: dict[str, StreamInfo] = field(default_factory=dict)
    #: Markers written since the older ones were purged.
    written: Counter[Pair] = field(default_factory=Counter)
    #: Whether purging was never refused.
    may_purge: bool = True
    #: Ingest batches between two runs; when each producer last published, and until when it begins
    #: no batch after a failure; monotonic, seconds.
    ingests: dict[Pair, OpenBatch] = field(default_factory=dict)
    published_s: dict[Pair, float] = field(default_factory=dict)
    #: The server's time of the input of each producer's last small run, ms since 1970.
    input_ms: dict[Pair, int] = field(default_factory=dict)
    paused_s: dict[Pair, float] = field(default_factory=dict)
    #: Inboxes for acks of such batches: of a connection, the number of times it was opened, and a
    #: purpose.
    inboxes: dict[tuple[Connection, int, str], str] = field(default_factory=dict)
    acks: _Acks = field(default_factory=lambda: _acks())
    #: Held when a batch is taken from ``ingests``, with its marker.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def inbox(self, connection: Connection, purpose: str) -> str:
        """An inbox for acks of ingest batches, which lasts as long as the connection is open."""
        key = (connection, connection.open_count, purpose)
        if key not in self.inboxes:
            for other in list(self.inboxes):
                if other[0] is connection and other[1] != connection.open_count:
                    del self.inboxes[other]
            self.inboxes[key] = connection.new_inbox_tree(">")[1]
        return self.inboxes[key]


def cache_for(options: SinkOptions) -> MarkerCache:
    """The cache of this thread; a forked process begins with an empty one."""
    key = (options.connection, options.marker_prefix, options.epoch)
    return caches().setdefault(key, MarkerCache())


def caches() -> dict[tuple[ConnectionOptions, str, int], MarkerCache]:
    """The caches of this thread by connection, marker prefix and epoch."""
    _begin_process()
    by_key: dict[tuple[ConnectionOptions, str, int], MarkerCache] = _local.caches
    return by_key


def _acks() -> _Acks:
    _begin_process()
    acks: _Acks = _local.acks
    return acks


def _begin_process() -> None:
    if "caches" not in _local.__dict__:
        _local.caches, _local.acks = {}, _Acks()


def clear() -> None:
    """Clear the cache of this thread, as in a new process."""
    _local.__dict__.clear()


os.register_at_fork(after_in_child=clear)
