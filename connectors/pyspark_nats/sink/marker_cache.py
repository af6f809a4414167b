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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_nats.protocol.jetstream import StreamInfo
    from pyspark_nats.sink.marker import Marker
    from pyspark_nats.sink.producer_state import Pair
    from pyspark_nats.sink.sink_options import SinkOptions

_local = threading.local()


@dataclass
class MarkerCache:
    """Markers and streams known to writers of the same connection, marker prefix and epoch."""

    markers: dict[Pair, Marker] = field(default_factory=dict)
    #: The last acknowledged marker of each producer; it stays when its cached value is in doubt.
    acknowledged: dict[Pair, Marker] = field(default_factory=dict)
    #: Streams with checked configuration.
    streams: dict[str, StreamInfo] = field(default_factory=dict)
    #: Markers written since the older ones were purged.
    written: Counter[Pair] = field(default_factory=Counter)
    #: Whether purging was never refused.
    may_purge: bool = True


def cache_for(options: SinkOptions) -> MarkerCache:
    """The cache of this thread; a forked process begins with an empty one."""
    if getattr(_local, "pid", None) != os.getpid():
        _local.pid, _local.caches = os.getpid(), {}
    key = (options.connection, options.marker_prefix, options.epoch)
    caches: dict[Any, MarkerCache] = _local.caches
    return caches.setdefault(key, MarkerCache())


def clear() -> None:
    """Clear the cache of this thread, as in a new process."""
    _local.__dict__.clear()
