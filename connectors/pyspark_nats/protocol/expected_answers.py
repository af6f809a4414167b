"""Answers that are outstanding while other steps use their connection."""

from __future__ import annotations


class ExpectedAnswers:
    """Answers by subject, kept also if a step that does not wait for them receives them."""

    def __init__(self) -> None:
        #: (header, data); None until it comes.
        self._by_subject: dict[str, tuple[bytes, bytes] | None] = {}

    def __len__(self) -> int:
        return len(self._by_subject)

    def expect(self, subject: str) -> None:
        """Keep the answer on ``subject`` until ``take`` or ``forget``."""
        self._by_subject[subject] = None

    def keep(self, subject: str, header: bytes, data: bytes) -> None:
        """Keep a received message if it is expected."""
        if subject in self._by_subject:
            self._by_subject[subject] = header, data

    def take(self, subject: str) -> tuple[bytes, bytes] | None:
        """The answer on ``subject`` as (header, data), once; None if it has not come."""
        found = self._by_subject.get(subject)
        if found is not None:
            del self._by_subject[subject]
        return found

    def forget(self, subject: str) -> None:
        """Expect no answer on ``subject``."""
        self._by_subject.pop(subject, None)

    def clear(self) -> None:
        """Expect nothing."""
        self._by_subject.clear()
