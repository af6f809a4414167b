"""Event times: the events' own, or their message's, within bounds.

A time that is far ahead can't be undone: the clock of a stream never goes back.  So it is compared
with the server's time of the same message, which gives the same result in every replay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyspark_nats.arrow import kernels, rows_at
from pyspark_nats.decode.result import ERRORS_MAX, bounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_nats.arrow import Array
    from pyspark_nats.decode.result import DecodeResult, Ints, MessageLimits, Unreadable


def with_event_times(
    decoded: DecodeResult, message_ms: Array, broker_ms: Callable[[], Ints], limits: MessageLimits
) -> DecodeResult:
    """``decoded`` with the messages' times for events that have none.

    Events with a time out of bounds become errors.

    Args:
        decoded: of n messages or more.
        message_ms: int64[n], the messages' event times, ms since 1970; null if absent.
        broker_ms: gives the server's times, int64[n]; called only if they are needed.
        limits: how far ahead a time may be; below 0 none is accepted.
    """
    times = decoded.event_time_ms
    if message_ms.null_count < len(message_ms):
        times = kernels.coalesce(times, message_ms.take(rows_at(decoded.message)))
    ahead_ms = limits.event_time_ahead_ms
    if ahead_ms is None or times.null_count == len(times):
        return replace(decoded, event_time_ms=times)
    values = kernels.fill_null(times, 0).to_numpy(zero_copy_only=False)
    stored_ms = broker_ms()
    is_wrong = (values < 0) | (values > stored_ms[decoded.message] + ahead_ms)
    if not is_wrong.any():
        return replace(decoded, event_time_ms=times)
    errors = _refused(decoded, values, stored_ms, ahead_ms, np.flatnonzero(is_wrong))
    keep = pa.array(~is_wrong)
    return replace(
        decoded,
        rows=decoded.rows.filter(keep),
        message=decoded.message[~is_wrong],
        index=decoded.index[~is_wrong],
        event_time_ms=times.filter(keep),
        errors=bounded([*decoded.errors, *errors]),
    )


def _refused(
    decoded: DecodeResult, times: Ints, broker_ms: Ints, ahead_ms: int, wrong: Ints
) -> list[Unreadable]:
    """Errors for the rows ``wrong``, for some of each message."""
    message = decoded.message[wrong]
    rank = np.arange(len(wrong)) - np.searchsorted(message, message)
    errors: list[Unreadable] = []
    for row in wrong[rank <= ERRORS_MAX].tolist():
        number = int(decoded.message[row])
        over_ms = int(times[row]) - int(broker_ms[number])
        place = "before 1970" if times[row] < 0 else f"{over_ms} ms after NATS stored the message"
        reason = f"event time {times[row]} is {place}; at most {ahead_ms} ms are accepted"
        errors.append((number, int(decoded.index[row]), reason))
    return errors
