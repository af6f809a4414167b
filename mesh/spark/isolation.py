"""Isolation policy: decides when an instance moves to a dedicated query, and for how long.

Reasons: it saturates the shared tasks (BUSY), its streams time out (UNANSWERED), or it was running
when the query failed (SUSPECT).  Pure; ``SharedInstance`` acts on the decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from mesh.model.cluster import InstanceState

if TYPE_CHECKING:
    from mesh.model.cluster import InstanceStatus

#: Share of a task's time, window, and number of consecutive windows that make an instance busy.
_BUSY: Final = 0.5
_BUSY_S: Final = 3.0
_BUSY_TIMES: Final = 2
#: Time without messages after which a busy instance returns to the shared query.
_QUIET_S: Final = 60.0
#: Time after which an instance returns whose streams didn't answer.
_ANSWERED_S: Final = 60.0
#: The same for an instance that was running when the query failed; doubles with each failure.
_TRUSTED_S: Final = 600.0


class IsolationReason(Enum):
    """Reason for which an instance is isolated."""

    BUSY = "it keeps the shared query busy"
    UNANSWERED = "a stream does not answer it"
    SUSPECT = "it was running when the shared query failed"


@dataclass(slots=True)
class TaskLoad:
    """Load that an instance puts on the tasks of the shared query."""

    #: Start of the window; monotonic, seconds.
    since_s: float
    ms: float = 0.0
    #: Number of consecutive windows over the limit.
    times: int = 0

    def is_saturated(self, now_s: float) -> bool:
        """Whether the instance has been busy for several windows; to be called regularly."""
        passed_s = now_s - self.since_s
        if passed_s < _BUSY_S:
            return False
        self.times = self.times + 1 if self.ms > passed_s * 1000 * _BUSY else 0
        self.ms, self.since_s = 0.0, now_s
        return self.times >= _BUSY_TIMES


@dataclass(slots=True)
class IsolationPeriod:
    """Duration of an isolation, by its reason."""

    why: IsolationReason
    #: Number of isolations for the same reason.
    times: int = 1
    #: Start of the current healthy phase, and the counts seen then.
    _since_s: float | None = None
    _seen: tuple[int, int] = (-1, -1)

    def is_over(self, status: InstanceStatus, now_s: float) -> bool:
        """Whether the instance may return to the shared query.

        Args:
            status: the present report of its query.
            now_s: monotonic.
        """
        seen = (status.restarts, status.messages_in if self.why is IsolationReason.BUSY else 0)
        is_waiting = self.why is IsolationReason.BUSY and status.behind > 0
        if status.state is not InstanceState.RUNNING or is_waiting:
            self._since_s = None
            return False
        if self._since_s is None or seen != self._seen:
            self._since_s, self._seen = now_s, seen
        return now_s - self._since_s >= self._length_s

    @property
    def _length_s(self) -> float:
        match self.why:
            case IsolationReason.BUSY:
                return _QUIET_S
            case IsolationReason.UNANSWERED:
                return _ANSWERED_S
            case IsolationReason.SUSPECT:
                return _TRUSTED_S * 2.0 ** (self.times - 1)
