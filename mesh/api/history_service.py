"""Calls of the REST API on the past of apps and on what NATS stores of them, as protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.model.history import HistoryInput


class Verification(Protocol):
    """Calls on what NATS stores of apps."""

    async def verify(self, app: str) -> Sequence[Any]:
        """Faults and risks of an app; MESH-A404."""
        ...


class Guarantees(Protocol):
    """Audit of what holds through which failures."""

    async def of_app(self, app: str) -> Any:
        """The rows of an app, with the facts of the cluster; MESH-A404."""
        ...


class WhatIfs(Protocol):
    """Needs of apps at rates."""

    async def what_if(self, text: str, at_rate: Sequence[str], keys: int, cores: int) -> Any:
        """Instances, workers and state for a rate; MESH-C170 for what can't be measured.

        MESH-L* and MESH-P* for faults of the text, MESH-C171 for rates that can't be used.
        """
        ...


class Forks(Protocol):
    """Forks of apps."""

    async def fork(
        self,
        app: str,
        other: str,
        *,
        text: str | None,
        begin: str,
        until: str | None,
        sinks: bool,
        by: str,
    ) -> Any:
        """Make app ``other`` over the input of ``app``.

        MESH-A409 for a name that is taken, MESH-A410 where retention has taken what it needs.
        """
        ...


class Backfills(Protocol):
    """Deploys of apps that begin with the states of their past."""

    async def backfill(self, text: str, inputs: Sequence[HistoryInput], *, by: str) -> Any:
        """Deploy a new app after its history.

        MESH-A409 for an app that is there, MESH-C160 to MESH-C162 for what can't be run.
        """
        ...


class Promotions(Protocol):
    """Promotions of forks; MESH-C154 for an app that is no fork."""

    def app_of(self, fork: str) -> str:
        """The app that a fork comes from."""
        ...

    async def promote(self, fork: str, *, replaces: str | None, by: str) -> Any:
        """Give the app of a fork the fork's text, and remove the fork."""
        ...


class Past(Protocol):
    """Questions about an app's past."""

    async def why(self, app: str, stream: str, sequence: int, index: int) -> Any:
        """The lineage of an event; MESH-A404 for one that isn't there."""
        ...

    async def compare(
        self, app: str, other: str, streams: Sequence[str], key: Sequence[str]
    ) -> Any:
        """The differences of the outputs of two apps; MESH-A404."""
        ...
