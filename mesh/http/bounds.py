"""Bound of the requests that a process serves at a time, of all users and of one."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mesh.errors import MeshError
from mesh.model.access import current

if TYPE_CHECKING:
    from collections.abc import Iterator


class Bound:
    """A bound of the requests that do the same at a time; one user has at most half of them.

    Args:
        most: number of requests.
        what: what they do, for the message: "requests wait".
    """

    def __init__(self, most: int, what: str) -> None:
        self._most, self._what = most, what
        self._count = 0
        self._of_user: Counter[str] = Counter()

    def has_room(self) -> bool:
        """Whether there may be one more request of the present user."""
        return self._reason_against(_user()) is None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Count a request; MESH-A429 if there are as many as may be, of all or of its user."""
        user = _user()
        if (reason := self._reason_against(user)) is not None:
            raise MeshError("MESH-A429", reason, hint="Try again in a moment.")
        self._count += 1
        self._of_user[user] += 1
        try:
            yield
        finally:
            self._count -= 1
            self._of_user[user] -= 1
            if not self._of_user[user]:
                del self._of_user[user]

    def _reason_against(self, user: str) -> str | None:
        if self._count >= self._most:
            return f"{self._count} {self._what}"
        # Without users all requests are of one.
        user_count = self._of_user[user] if user else 0
        if user_count >= max(1, self._most // 2):
            return f"{user_count} {self._what} that user {user} has sent"
        return None


def _user() -> str:
    """The user of the present request; empty for the mesh itself, and without users."""
    identity = current.get()
    return identity.user if identity is not None else ""
