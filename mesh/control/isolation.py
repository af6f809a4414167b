"""Isolation policy: decides when an instance moves to a dedicated query, and for how long.

Reasons: its streams time out (UNANSWERED), or a slot was working for it when it crashed or hung
(SUSPECT).  Pure; ``instance_lifecycle`` asks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from mesh.model.cluster import InstanceState

if TYPE_CHECKING:
    from mesh.model.cluster import InstanceStatus

#: Time after which an instance returns whose streams didn't answer.
_ANSWERED_S: Final = 60.0
#: The same for an instance that was running when the query failed; doubles with each failure.
_TRUSTED_S: Final = 600.0


class IsolationReason(Enum):
    """Reason for which an instance is isolated."""

    UNANSWERED = "a stream does not answer it"
    SUSPECT = "it was running when the shared query failed"


@dataclass(slots=True)
class IsolationPeriod:
    """Duration of an isolation, by its reason."""

    why: IsolationReason
    #: Number of isolations for the same reason.
    times: int = 1
    #: Start of the current healthy phase, and the restarts seen then.
    _since_s: float | None = None
    _restarts: int = -1

    def is_over(self, status: InstanceStatus, now_s: float) -> bool:
        """Whether the instance may return to the shared query.

        Args:
            status: the present report of its query.
            now_s: monotonic.
        """
        if status.state is not InstanceState.RUNNING:
            self._since_s = None
            return False
        if self._since_s is None or status.restarts != self._restarts:
            self._since_s, self._restarts = now_s, status.restarts
        return now_s - self._since_s >= self._length_s

    @property
    def _length_s(self) -> float:
        match self.why:
            case IsolationReason.UNANSWERED:
                return _ANSWERED_S
            case IsolationReason.SUSPECT:
                return _TRUSTED_S * 2.0 ** (self.times - 1)
