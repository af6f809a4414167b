"""What a writer knows of a stream's end, so that it can send a batch before the last one's ack.

An atomic batch may expect what the one before it leaves, although that one is not acked yet, when
the sequence numbers can be foretold: they can, as long as nobody else publishes into the stream in
between.  That the producer's marker stands where it was foretold is not enough: another writer's
marker might stand just there, or our own of an earlier batch that came later than foretold, as two
tasks with batches of one size shift each other by exactly one batch.  So each batch also carries a
guard: a message on a subject that only this writer knows, and that none of its batches which may
still be on their way shares.  It expects the guard of the batch before it, on that one's subject.
A batch is stored only if exactly our batch before it was.  When somebody else publishes in between,
the batch is refused and sent again; then we do not look ahead for a while.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

#: Batches on their way at once, at the most.
_AHEAD_MAX = 4
#: Acked batches after which one more is sent ahead.
_CALM_BATCHES = 8
_PAUSE_MAX = 512
#: Subjects of guards, used in turns.  A subject comes up again only when the batch that used it
#: last is acked: its guard stands where we know it, and not where a later one is foretold.
_TURNS = 2 * _AHEAD_MAX


@dataclass
class Guard:
    """Foresight for one stream, of one writer."""

    #: Where guards go: a prefix of their subjects, which the stream holds.
    prefix: str
    #: The stream's last sequence once all that we sent is stored; None when it can't be told.
    head: int | None = None
    #: Sequence of the last guard; 0 for none.
    sequence: int = 0
    #: Batches that may be on their way before another one is sent.
    ahead: int = 1
    #: Subjects that guards were sent to.
    used: list[str] = field(default_factory=list)
    #: Whether the last batch that was sent carried a guard.
    is_set: bool = False
    _token: str = field(default_factory=lambda: os.urandom(6).hex())
    _turn: int = 0
    _pause: int = 0
    _next_pause: int = 8
    _calm: int = 0

    @property
    def subject(self) -> str:
        """Where the next guard goes."""
        return self._subject(self._turn)

    @property
    def expected(self) -> dict[str, str]:
        """Headers by which the next guard expects the one before it."""
        headers = {"Nats-Expected-Last-Subject-Sequence": str(self.sequence)}
        if self.sequence:
            before = self._subject(self._turn - 1)
            headers["Nats-Expected-Last-Subject-Sequence-Subject"] = before
        return headers

    def _subject(self, turn: int) -> str:
        return f"{self.prefix}.{self._token}.{turn % _TURNS}"

    def may_send(self, under_way: int) -> bool:
        """Whether another batch may be sent while ``under_way`` of ours are not acked."""
        return under_way == 0 or (self.head is not None and self.is_set and under_way <= self.ahead)

    @property
    def is_wanted(self) -> bool:
        """Whether the next batch should carry a guard, so that another one can follow it."""
        return self.head is not None and self._pause == 0

    def sent(self, message_count: int, *, with_guard: bool) -> int | None:
        """Note a batch whose last messages are the guard, if any, and the marker.

        Returns:
            The sequence that the marker will have; None when it can't be foretold.
        """
        self._pause = max(0, self._pause - 1)
        self.is_set = with_guard
        if self.head is None:
            return None
        self.head += message_count
        if with_guard:
            self.sequence = self.head - 1
            if self.subject not in self.used:
                self.used.append(self.subject)
            self._turn += 1
        return self.head

    def stored(self, sequence: int, *, was_ahead: bool, is_last: bool, with_guard: bool) -> None:
        """Note the ack of a batch: its marker's sequence."""
        if is_last:
            self.head = sequence
            if with_guard:
                self.sequence = sequence - 1
        if was_ahead:
            self._calm += 1
            if self._calm % _CALM_BATCHES == 0:
                self.ahead = min(self.ahead + 1, _AHEAD_MAX - 1)
                self._next_pause = max(8, self._next_pause // 2)

    def missed(self) -> None:
        """Note that what was foretold did not come: somebody else publishes into the stream."""
        self.reset()
        self.ahead, self._calm = 1, 0
        self._pause, self._next_pause = self._next_pause, min(self._next_pause * 2, _PAUSE_MAX)

    def reset(self) -> None:
        """Forget what was foretold.

        A batch that is still on its way can't be stored any more, unless the one before it was:
        nobody writes to the old guard's subject again.
        """
        self.head, self.sequence, self.is_set = None, 0, False
        self._token = os.urandom(6).hex()
