"""Calls of the REST API on simulations, as protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class FeedStatus(Protocol):
    """The state of a feed."""

    @property
    def state(self) -> str:
        """``RUN``, ``PAUSE`` or ``STOP``."""
        ...

    @property
    def events(self) -> int:
        """Number of the events of its last run."""
        ...

    @property
    def reason(self) -> str:
        """The failure that ended its last run; empty without one."""
        ...


class Feeds(Protocol):
    """Calls on simulations; MESH-A404 for one that is not there."""

    async def create(self, values: Any, *, by: str) -> str:
        """Store a new one; its name."""
        ...

    async def update(self, name: str, values: Any, *, by: str) -> None:
        """Replace one."""
        ...

    async def delete(self, name: str) -> None:
        """Delete one."""
        ...

    async def configuration(self, name: str) -> dict[str, Any]:
        """The configuration of one."""
        ...

    async def known(self) -> Sequence[tuple[dict[str, Any], str]]:
        """All configurations, each with the reason why it can't run."""
        ...

    async def status(self, name: str) -> FeedStatus:
        """The state of one."""
        ...

    async def operate(self, name: str, action: str, *, by: str) -> tuple[int, str]:
        """Change the state of one: the HTTP status, and what is said about it."""
        ...

    async def files(self) -> Sequence[str]:
        """The names of files."""
        ...

    async def put_file(self, name: str, data: bytes, *, is_new: bool) -> None:
        """Store a file."""
        ...

    async def delete_file(self, name: str) -> None:
        """Delete a file."""
        ...
