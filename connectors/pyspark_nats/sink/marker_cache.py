"""Per-thread cache of stream info and markers, shared by consecutive Spark tasks of a process.

A thread may have publishers that run in other threads: each entry is of one producer, which has one
publisher at a time.

Entries may be stale: callers must read a marker again before an irreversible decision
(``producer_state.skip_published``).
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_nats.protocol.connection import Connection
    from pyspark_nats.protocol.connection_options import ConnectionOptions
    from pyspark_nats.protocol.jetstream import StreamInfo
    from pyspark_nats.sink.marker import Marker
    from pyspark_nats.sink.open_batch import OpenBatch
    from pyspark_nats.sink.producer_state import Pair
    from pyspark_nats.sink.sink_options import SinkOptions

_local = threading.local()


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
    return _caches().setdefault(key, MarkerCache())


def caches() -> Iterator[tuple[ConnectionOptions, str, MarkerCache]]:
    """The caches of this thread, with connection and marker prefix of each."""
    for (connection, prefix, _), cache in _caches().items():
        yield connection, prefix, cache


def _caches() -> dict[tuple[ConnectionOptions, str, int], MarkerCache]:
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
