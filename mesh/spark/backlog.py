"""Number of messages that wait for an instance: what the server has after what was read.

Only the server's count is whole.  A reader does not know of messages that are on their way to it,
and not of those that come while it is stuck.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mesh.telemetry.logs import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mesh.spark.instance_context import InstanceContext

log = logging.getLogger(__name__)


def waiting(context: InstanceContext, read: Mapping[str, int]) -> dict[str, int] | None:
    """Count by JetStream stream; None without an answer of the server.

    Args:
        context: of the instance.
        read: the last sequence that was read, by JetStream stream.
    """
    try:
        bounds = context.store.bounds(read)
    # The next count may succeed; a stream without a leader must not fail the instance.
    except Exception as error:
        extra = fields(instance=context.io.assignment.instance, error=str(error))
        log.debug("backlog was not counted", extra=extra)
        return None
    counts = {}
    for js_stream, at in read.items():
        first, last = bounds[js_stream]
        # Messages that are deleted do not wait.
        counts[js_stream] = context.io.blocks(js_stream).number_in(max(at, first - 1), last)
    return counts


def total(counts: Iterable[Mapping[str, int]]) -> int:
    """Sum over the streams; parts that read the same stream read the same messages."""
    highest: dict[str, int] = {}
    for one in counts:
        for js_stream, count in one.items():
            highest[js_stream] = max(count, highest.get(js_stream, 0))
    return sum(highest.values())
