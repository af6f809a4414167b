"""What a process knows of streams and markers between its tasks, which saves reading it again.

It may be outdated: whoever uses it looks again before it decides anything that can't be undone.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_nats.jetstream import StreamInfo
    from pyspark_nats.lanes import Pair
    from pyspark_nats.markers import Marker
    from pyspark_nats.sink_options import SinkOptions

_local = threading.local()


@dataclass
class Known:
    """What is known by the writers with the same connection, marker prefix and epoch."""

    markers: dict[Pair, Marker] = field(default_factory=dict)
    #: Streams that were looked at, and can be written to.
    streams: dict[str, StreamInfo] = field(default_factory=dict)


def known(options: SinkOptions) -> Known:
    """What this thread of this process knows; a fork begins with nothing."""
    if getattr(_local, "pid", None) != os.getpid():
        _local.pid, _local.known = os.getpid(), {}
    key = (options.connection, options.marker_prefix, options.epoch)
    found: dict[Any, Known] = _local.known
    return found.setdefault(key, Known())


def forget() -> None:
    """Forget what this thread knows, as in a new process."""
    _local.__dict__.clear()
