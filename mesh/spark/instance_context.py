"""Services and options that an instance gets from its session, in either kind of query."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mesh.control.retries import Retries
from mesh.spark.repeated_failures import RepeatedFailures, TriedInstance
from pyspark_nats.decode.result import USUAL, MessageLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from mesh.clock import Clock
    from mesh.model.cluster import InstanceStatus
    from mesh.spark.instance_io import InstanceIO
    from mesh.spark.task_states import TaskStore


class SnapshotStore(Protocol):
    """Store that all workers share for snapshots.  Calls block."""

    def restore(self, part: str, piece_path: Callable[[str], Path]) -> bytes | None:
        """Fetch the pieces of the newest snapshot of ``part`` and return its manifest, if any.

        From then on an older epoch can't save one.
        """
        ...

    def save(self, part: str, manifest: bytes, pieces: Mapping[str, Path | str]) -> None:
        """Store a snapshot; MESH-S110 when a newer epoch has taken over.

        A piece is a local file, or the name of one that a task has stored.
        """
        ...

    def stored(self, part: str) -> Mapping[str, str]:
        """The names under which the pieces of the newest snapshot of ``part`` are stored."""
        ...

    def discard(self, part: str, names: Collection[str]) -> None:
        """Delete stored pieces, but for those of the newest snapshot."""
        ...

    def forget(self, part: str) -> None:
        """Treat no piece of ``part`` as stored: their names now denote other pieces."""
        ...

    def bounds(self, streams: Collection[str]) -> dict[str, tuple[int, int]]:
        """The first and the last sequence of each of these JetStream streams, soon or never."""
        ...

    def ends(self, streams: Collection[str]) -> dict[str, int]:
        """The last sequence of each of these JetStream streams."""
        ...


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    """Options shared by the instances of one worker."""

    worker: str
    #: Options of the source and the sink for the NATS connection.
    nats: dict[str, str]
    batch_rows_max: int
    snapshot_interval_s: float
    #: First and longest pause of a failed instance; seconds, as all times here.
    retry_s: float
    retry_max_s: float
    #: Time limit for a stopped instance to drain.
    settle_s: float
    #: Limits of one message.
    message: MessageLimits = USUAL
    #: Place of the states if the tasks run on other machines; None for the session's directory.
    task_store: TaskStore | None = None

    def retries(self) -> Retries:
        """The retries of an instance that has not failed yet."""
        return Retries(self.retry_s, self.retry_max_s)


@dataclass(frozen=True, slots=True)
class InstanceContext:
    """Environment of one instance: its services, options and directory."""

    io: InstanceIO
    options: InstanceOptions
    #: Directory for its state and scratch; exclusive to the instance.
    directory: Path
    store: SnapshotStore
    #: Receives its reports, from any thread.
    report: Callable[[InstanceStatus], None]
    clock: Clock
    #: The same in the shared query and in a dedicated one.
    failures: RepeatedFailures = field(default_factory=RepeatedFailures)

    def io_of(
        self,
        run: Path,
        starts: Mapping[str, dict[str, dict[str, int]]],
        restored: Collection[str],
        is_over: Callable[[], bool],
    ) -> InstanceIO:
        """See ``RepeatedFailures.io_of``."""
        options = self.options
        has_states = options.task_store is None or not self.io.group.stateful
        tried = TriedInstance(
            self.io,
            self.directory,
            options.nats,
            options.message,
            has_states,
            run,
            starts,
            restored,
        )
        return self.failures.io_of(tried, is_over)
