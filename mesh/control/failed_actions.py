"""Rests of the leader's failed actions: one that fails keeps no other from being performed.

An action is requested by each decision until it has been performed.  One that fails rests before it
is tried again, twice as long after each failure in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.control.actions import target_of
from mesh.control.retries import Retries

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesh.control.actions import Action

#: The first rest of a failed action, and the longest, seconds.
FIRST_S: Final = 1.0
MOST_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Rest:
    """The failures of one action in a row."""

    retries: Retries
    until_s: float
    cause: str


class FailedActions:
    """The actions that failed and have not been performed since, by their target."""

    def __init__(self) -> None:
        self._rests: dict[str, _Rest] = {}

    def select_due(self, decided: Iterable[Action], now_s: float) -> list[Action]:
        """The actions of a decision that do not rest; those not decided any more are forgotten."""
        targets = {target_of(action): action for action in decided}
        self._rests = {at: rest for at, rest in self._rests.items() if at in targets}
        return [
            action
            for at, action in targets.items()
            if at not in self._rests or now_s >= self._rests[at].until_s
        ]

    def record_failure(self, action: Action, now_s: float, cause: str) -> bool:
        """Let an action rest; returns whether its last failure had another cause, or none."""
        at = target_of(action)
        previous = self._rests.get(at)
        retries = previous.retries if previous is not None else Retries(FIRST_S, MOST_S)
        retries = retries.failed(now_s)
        self._rests[at] = _Rest(retries, now_s + retries.rest_s, cause)
        return previous is None or previous.cause != cause

    def record_success(self, action: Action) -> None:
        """Forget the failures of an action."""
        self._rests.pop(target_of(action), None)
