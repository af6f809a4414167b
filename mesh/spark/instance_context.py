"""What an instance is given by its worker's session, in a query of its own or in a carrier's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mesh.control.retries import Retries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from mesh.clock import Clock
    from mesh.model.cluster import InstanceStatus
    from mesh.spark.instance_io import InstanceIO


class SnapshotStore(Protocol):
    """Where all workers find snapshots.  Calls block."""

    def restore(self, part: str, piece_path: Callable[[str], Path]) -> bytes | None:
        """Fetch the pieces of the newest snapshot of ``part`` and return its manifest, if any.

        From then on an older epoch can't save one.
        """
        ...

    def save(self, part: str, manifest: bytes, pieces: Mapping[str, Path]) -> None:
        """Store a snapshot; MESH-S110 when a newer epoch has taken over."""
        ...

    def forget(self, part: str) -> None:
        """Take no piece of ``part`` for stored any more: what they are called means other ones."""
        ...

    def behind(self, consumed: Mapping[str, int]) -> int:
        """How many messages the JetStream streams hold above these sequences."""
        ...

    def ends(self, streams: Collection[str]) -> dict[str, int]:
        """The last sequence of each of these JetStream streams."""
        ...


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    """What instances of one worker have in common."""

    worker: str
    #: Options of the source and the sink that say how to reach NATS.
    nats: dict[str, str]
    batch_rows_max: int
    snapshot_interval_s: float
    #: How long one that has failed rests, and how long at most; seconds, as the others here.
    retry_s: float
    retry_max_s: float
    #: How long an instance that is stopped may take to settle.
    settle_s: float

    def retries(self) -> Retries:
        """Those of an instance that has not failed yet."""
        return Retries(self.retry_s, self.retry_max_s)


@dataclass(frozen=True, slots=True)
class InstanceContext:
    """What one instance needs of its surroundings."""

    io: InstanceIO
    options: InstanceOptions
    #: For its state and scratch; its own.
    directory: Path
    store: SnapshotStore
    #: Takes its statuses, from any thread.
    report: Callable[[InstanceStatus], None]
    clock: Clock
