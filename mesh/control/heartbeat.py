"""Heartbeats of one worker: time of the next one, its timeout, and the end of the term."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Final

from mesh.control.agent_events import HeartbeatPhase
from mesh.control.membership import BEATS_PER_TERM

#: Longest extension of a term while servers elect a leader of the records, seconds: an election
#: takes 4 to 9 s, and may have to be repeated.
ELECTION_S: Final = 20.0
#: A timer may fire this much before its time, seconds: clocks are compared after rounding.
EARLY_S: Final = 1e-6


@dataclass(eq=False)
class HeartbeatCycle:
    """A sequence of heartbeats; the term begins when the last stored one was sent."""

    #: Length of the term.
    _ttl_s: float
    #: The worker's monotonic clock when the first term begins.
    now_s: InitVar[float]
    phase: HeartbeatPhase = HeartbeatPhase.RESTING
    #: Number of heartbeats sent.
    count: int = 0
    #: The next one does not wait for its period.
    is_urgent: bool = False
    #: Whether any heartbeat was stored.
    was_stored: bool = False

    def __post_init__(self, now_s: float) -> None:
        self._sent_s = self._renewed_s = self._stored_s = self._due_s = now_s

    @property
    def term_ends_s(self) -> float:
        """Time at which the instances are stopped, unless another heartbeat is stored."""
        return self._renewed_s + self._ttl_s

    @property
    def wake_s(self) -> float:
        """Time of the next heartbeat; infinity while one is being written."""
        return self._due_s if self.phase is HeartbeatPhase.RESTING else float("inf")

    def is_over(self, now_s: float) -> bool:
        """Whether no heartbeat was stored for a term."""
        return now_s >= self.term_ends_s - EARLY_S

    def is_due(self, now_s: float) -> bool:
        """Whether the next heartbeat is to be sent."""
        is_resting = self.phase is HeartbeatPhase.RESTING
        return is_resting and (self.is_urgent or now_s >= self._due_s - EARLY_S)

    def limit_s(self, now_s: float) -> float:
        """Longest duration of an attempt: it must not outlast the term."""
        left_s = self.term_ends_s - now_s
        return min(left_s, self._ttl_s / 2) if left_s > EARLY_S else self._ttl_s / 2

    def start_term(self, now_s: float) -> None:
        """Begin the term now, with a heartbeat that is due at once."""
        self._renewed_s = self._stored_s = self._due_s = now_s

    def send(self, now_s: float) -> None:
        """Record that a heartbeat was sent."""
        self.phase, self.is_urgent = HeartbeatPhase.WRITING, False
        self.count += 1
        self._sent_s = now_s

    def renew(self) -> None:
        """Record that the heartbeat was stored."""
        self._renewed_s = self._stored_s = self._sent_s
        self.was_stored = True

    def extend(self) -> None:
        """Begin the term again with the last one: no leader of the records could store anything."""
        if self._sent_s - self._stored_s < ELECTION_S:
            self._renewed_s = self._sent_s

    def rest(self, now_s: float) -> None:
        """Wait for the next one, but not past the end of the term."""
        self.phase = HeartbeatPhase.RESTING
        left_s, period_s = self.term_ends_s - now_s, self._ttl_s / BEATS_PER_TERM
        self._due_s = now_s + (min(period_s, left_s) if left_s > EARLY_S else period_s)
