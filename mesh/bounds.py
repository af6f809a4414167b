"""Bound of the requests that a process serves at a time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Bound:
    """A bound of the requests that do the same at a time.

    Args:
        most: number of requests.
        what: what they do, for the message: "requests wait".
    """

    def __init__(self, most: int, what: str) -> None:
        self._most, self._what = most, what
        self._count = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Count a request; MESH-A429 if there are as many as may be."""
        if self._count >= self._most:
            raise MeshError(
                "MESH-A429", f"{self._count} {self._what}", hint="Try again in a moment."
            )
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
