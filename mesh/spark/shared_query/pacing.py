"""Limits on what one part or instance takes, as others wait for it.

Of messages a slot takes so many at a time: a part begins with a low limit, which doubles with each
run up to a bound.  After a slow run the limit falls to what fits a fair duration.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark_nats.source.source_options import ReadLimits

#: Limits of a part's messages in one run: initial, highest, and lowest for the slowest part.
ROWS_FIRST: Final = 200
ROWS_MAX: Final = 20_000
ROWS_MIN: Final = 20
#: Initial limit of a part with a restored state.  It has had no output for a while, like the other
#: parts of its slot: each has a short run before any of them works off its backlog.
ROWS_RESTORED: Final = 4
#: Fair duration of a run, milliseconds: while other parts wait, and alone in a slot.
FAIR_MS: Final = 20.0
ALONE_MS: Final = 200.0
#: Interval of the status reports of an instance, seconds, and the most of all instances a second:
#: each costs the session, the agent, NATS and the managers about a millisecond together.
REPORT_S: Final = 1.0
_REPORTS_PER_S: Final = 20
#: Snapshots of all instances a second, as each costs the session and NATS half a millisecond; and
#: the longest interval for one, seconds: its events since would be read again after a crash.
_SNAPSHOTS_PER_S: Final = 100
_SNAPSHOT_INTERVAL_MAX_S: Final = 10.0
#: Reports on parts, and confirmations of their output, that a slot makes in a second: each takes
#: about as long as a run; and the longest interval for one part, seconds, from which its instance
#: would have to repeat after a crash.
_PART_REPORTS_PER_S: Final = 100
_PART_INTERVAL_MAX_S: Final = 3.0
_PART_TOGETHER_S: Final = 0.25
#: Part of the time of a run that counts although its thread waited.
_WAIT_SHARE: Final = 0.5


def charged_ms(took_ms: float, busy_ms: float) -> float:
    """The duration by which a run is judged, milliseconds.

    A wait for an ack, or for a processor that others use, is about as long for fewer messages.  A
    limit that falls because of it leaves the same wait for less work, and falls again.

    Args:
        took_ms: how long the run took.
        busy_ms: processor time of its thread.
    """
    return max(busy_ms, took_ms * _WAIT_SHARE)


def next_limit(rows_max: int, messages: int, took_ms: float, fair_ms: float) -> int:
    """The limit of a part after a run.

    Args:
        rows_max: the limit of the run.
        messages: how many it had.
        took_ms: how long it took, as ``charged_ms``.
        fair_ms: how long it should have taken at most.
    """
    if took_ms <= fair_ms:
        return min(2 * rows_max, ROWS_MAX)
    return max(ROWS_MIN, min(rows_max, int(messages * fair_ms / took_ms)))


def limited(limits: ReadLimits, rows_max: int) -> ReadLimits:
    """``limits`` with at most ``rows_max`` messages."""
    return replace(limits, offsets_max=min(limits.offsets_max or rows_max, rows_max))


def part_interval_s(least_s: float, busy: int) -> float:
    """Interval of a slot's reports on one part, or of confirmations of its output, seconds.

    Args:
        least_s: that of a slot with few parts.
        busy: number of parts with something to report.
    """
    return max(least_s, min(busy // _PART_REPORTS_PER_S, _PART_INTERVAL_MAX_S))


def part_due_s(now_s: float, least_s: float, busy: int) -> float:
    """Time after such an interval, monotonic, seconds.

    Of many parts, those of a quarter of a second are due together: they wait for NATS once.
    """
    due_s = now_s + part_interval_s(least_s, busy)
    if busy < _PART_REPORTS_PER_S:
        return due_s
    return math.ceil(due_s / _PART_TOGETHER_S) * _PART_TOGETHER_S


def report_s(busy: int) -> float:
    """Interval of the status reports of an instance, seconds.

    Args:
        busy: number of instances with something to report.
    """
    return max(REPORT_S, busy / _REPORTS_PER_S)


def snapshot_s(least_s: float, busy: int) -> float:
    """Interval of the snapshots of an instance, seconds.

    Args:
        least_s: that of few instances.
        busy: as for ``report_s``.
    """
    return max(least_s, min(busy / _SNAPSHOTS_PER_S, _SNAPSHOT_INTERVAL_MAX_S))
