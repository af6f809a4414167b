"""The cluster's records: who is there, who leads, what is wanted, what runs where.

Each is one key-value entry, JSON by ``mesh.model.codec``.  Who writes what: a node its own
``NodeRecord``, the leader ``Assignment`` (fenced by the lease's revision), any manager
``AppRecord`` (guarded by the key's own revision), a worker the ``InstanceStatus`` of what it was
assigned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from mesh.model.app import AppSpec


class Role(StrEnum):
    """What a node is for."""

    MANAGER = "manager"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The value of the lease key; its revision is the fencing token and the epoch."""

    holder: str
    #: Grows by one with each change of holder; renewals keep it.
    term: int


@dataclass(frozen=True, slots=True)
class NodeMetrics:
    """A node's load, as the operating system tells it."""

    cpu_percent: float = 0.0
    memory_bytes: int = 0
    load_1m: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A heartbeat: the node is there and this is how it is."""

    id: str
    role: Role
    #: Drawn at each start, so that a second process with the same id is told from a restart.
    incarnation: str
    #: ``host:port`` of the REST API, empty for a worker.
    address: str
    #: Grows by one with each heartbeat.
    beat: int
    pid: int = 0
    #: A worker is ready when its Spark session is warm.
    ready: bool = False
    metrics: NodeMetrics = field(default_factory=NodeMetrics)


@dataclass(frozen=True, slots=True)
class AppRecord:
    """Desired state of one app."""

    spec: AppSpec
    #: Drawn when the app is first deployed, so that markers and snapshots of an earlier app of the
    #: same name are never taken for its own.
    incarnation: str
    #: When it was asked for, milliseconds since 1970.
    deployed_at_ms: int
    deployed_by: str = ""
    #: Set by DELETE; the leader stops the instances, removes what it made, and then this key.
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """An instance's place."""

    instance: str
    app: str
    #: execGroup name.
    group: str
    #: 1 to ``parallel``.
    index: int
    app_incarnation: str
    worker: str
    #: Grows by one each time the instance is placed; a writer with an older one is stale.
    epoch: int
    #: The lease revision that the deciding leader held.
    lease_revision: int


class InstanceState(StrEnum):
    """What a worker makes of an assignment."""

    STARTING = "starting"
    RUNNING = "running"
    #: Failed and will be started again by the worker, after a pause.
    RETRYING = "retrying"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """A worker's report on one instance."""

    instance: str
    app: str
    worker: str
    epoch: int
    state: InstanceState
    #: Wall clock of the worker, milliseconds since 1970.
    at_ms: int
    #: Why it is retrying.
    error: str | None = None
    restarts: int = 0
    #: Messages read and rows written since this epoch started here.
    messages_in: int = 0
    rows_out: int = 0
    #: Events recorded in the app's error stream since then.
    errors: int = 0
    #: Messages that wait in the input channels.
    behind: int = 0
    batch_ms_p50: float | None = None
