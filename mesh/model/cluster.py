"""KV records of the cluster: nodes, lease, desired state, assignments and reports.

Each is one key-value entry, JSON by ``mesh.model.codec``.  Writers: a node its own
``NodeRecord``, the leader ``Assignment`` and ``Standby`` (fenced by the lease's revision), any
manager ``AppRecord`` and ``NodeOrder`` (guarded by the key's own revision), a worker the
``InstanceStatus`` of its assignments and the ``StandbyStatus`` of its standbys.

A fork: another app over the input of an app, from a place in the past.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mesh.model.app import AppSpec, Channel, GroupSpec
from mesh.model.values import JsonMapping


@dataclass(frozen=True, slots=True)
class ForkOrigin:
    """The origin of a fork, as its record keeps it."""

    #: The app whose input it reads, and that app's incarnation.
    app: str
    incarnation: str
    #: Revision of the backup whose state it began with; empty for none.
    backup: str = ""
    #: By JetStream stream of its input: the last sequence that it does not read.  Streams that are
    #: not named are read from their oldest message.
    begins: Mapping[str, int] = field(default_factory=dict, hash=False)
    #: By JetStream stream of its input: the last sequence that it reads; empty for no end.
    until: Mapping[str, int] = field(default_factory=dict, hash=False)
    #: SiddhiQL as it was given, with sources and sinks; empty for that of the app.
    text: str = ""


@dataclass(frozen=True, slots=True)
class Forked:
    """Result of a fork."""

    app: str
    of: str
    #: As ``ForkOrigin``.
    backup: str
    begins: Mapping[str, int]
    until: Mapping[str, int]
    #: Messages of the app's inner channels that were copied for it.
    copied: int
    #: Sentences that a person has to know about its beginning.
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Promoted:
    """Result of a promotion: the app has the fork's text, and the fork is being removed."""

    app: str
    fork: str
    #: The changes of the app, as ``mesh diff --output json`` prints them; None without any.
    changes: JsonMapping | None


class NodeRole(StrEnum):
    """Role of a node."""

    MANAGER = "manager"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The value of the lease key; its revision is the fencing token and the epoch."""

    holder: str
    #: Grows by one with each change of holder; renewals keep it.
    term: int
    #: Of the holder's process: another process with the same id does not hold the lease.
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class NodeMetrics:
    """A node's load, as the operating system reports it."""

    #: Of the whole machine, 100 when every core is busy.
    cpu_percent: float = 0.0
    #: Of the node's own processes, children among them: 100 is one core.
    process_cpu_percent: float = 0.0
    #: Of the node's own processes.
    memory_bytes: int = 0
    #: Of what the node may have: the limit of its container, or the memory of the machine.
    memory_percent: float = 0.0
    memory_limit_bytes: int = 0
    load_1m: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A heartbeat: the node is alive, and this is its state."""

    id: str
    role: NodeRole
    #: Random, of each start; distinguishes a second process with the same id from a restart.
    incarnation: str
    #: ``host:port`` of the REST API, empty for a worker.
    address: str
    #: Grows by one with each heartbeat.
    beat: int
    pid: int = 0
    #: A worker is ready when its Spark session is warm.
    ready: bool = False
    metrics: NodeMetrics = field(default_factory=NodeMetrics)
    #: Time for which its session has been starting, seconds by its own clock; 0: it is ready.
    starting_s: float = 0.0
    #: Set until its process has had a warm session.  Instances of an earlier process are placed
    #: elsewhere, since that is quicker than the start of a session.
    cold: bool = False
    #: Set on shutdown: it waits a while for its instances to be moved away.
    leaving: bool = False
    #: ``key=value`` each, for groups that require them.
    labels: tuple[str, ...] = ()
    #: Maximum number of instances, 0 for no limit.
    capacity: int = 0
    #: Whether it runs groups with user-given sources, and whether it runs all others.
    takes_receivers: bool = True
    takes_queries: bool = True
    #: ``source http`` and the like: the connectors that it can run.
    connectors: tuple[str, ...] = ()
    #: Whether it has a Spark session; without one it runs groups of connectors only.
    has_spark: bool = True
    #: Identifies the machine and its process table.  With ``pid`` and the start time of the process
    #: it shows whether the process is alive; empty if unknown.
    machine: str = ""
    #: In the machine's own ticks.
    process_started: int = 0


class Admission(StrEnum):
    """The instances that an operator allows on a worker."""

    OPEN = "open"
    #: It keeps its instances and gets no new ones.
    CORDONED = "cordoned"
    #: Everything is to be moved away.
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """An operator's order for a worker; a worker without one is open."""

    node: str
    admission: Admission
    by: str = ""
    #: When it was asked for, milliseconds since 1970.
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Skip:
    """Messages of a channel that readers skip: output from before the app was restored."""

    js_stream: str
    #: Those above this sequence,
    after: int
    #: up to this one, itself among them.
    to: int


@dataclass(frozen=True, slots=True)
class Retired:
    """Channels and groups that an edit took out of an app."""

    channels: tuple[Channel, ...] = ()
    #: execGroup names.
    groups: tuple[str, ...] = ()
    #: Set before the first removal; from then on nothing of it can be reused.
    removing: bool = False


class StatisticsLevel(StrEnum):
    """Metrics of an app."""

    #: None, and no history.
    OFF = "OFF"
    #: Of its instances.
    BASIC = "BASIC"
    #: Also of its queries, windows and tables.
    DETAIL = "DETAIL"


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
    #: Set by DELETE; the leader stops the instances, removes channels and state, then this key.
    deleting: bool = False
    #: Nothing of it runs while this says why; "" for an app that runs.
    held: str = ""
    #: Messages that its groups skip in the channels between them.
    skips: tuple[Skip, ...] = ()
    #: Number of changes of its text.
    edits: int = 0
    #: Channels and groups of earlier texts; the leader removes them when nothing uses them.
    retired: Retired | None = None
    #: Instances by group, as scaled since the deploy; ``spec`` has them already, and a text that
    #: is deployed later gets them.
    scaled: Mapping[str, int] = field(default_factory=dict, hash=False)
    #: A manager is making its channels; ``held`` is set as well.
    making: bool = False
    #: Its instances are stopped until it is resumed; channels, states and positions stay.
    paused: bool = False
    #: Its metrics.
    statistics: StatisticsLevel = StatisticsLevel.BASIC
    #: Of a fork: where it comes from.
    fork: ForkOrigin | None = None
    #: Groups of a promoted text that stay stopped until the fork's state of theirs is stored.
    adopting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """An instance's place; with ``stop``, the place that it is to leave."""

    instance: str
    app: str
    #: execGroup name.
    group: str
    #: 1 to ``parallel``.
    index: int
    app_incarnation: str
    worker: str
    #: Grows each time the instance is placed or withdrawn; a writer with an older one is stale.
    epoch: int
    #: The lease revision that the deciding leader held.
    lease_revision: int
    #: The process that it is for.  A process that starts later under the same name doesn't run it
    #: until it is placed again.  Empty means any.
    worker_incarnation: str = ""
    #: The worker is to stop it, and to report ``STOPPED`` in this epoch when it has.
    stop: bool = False
    #: The worker that gets it once it has stopped; None if it is to end, or not known yet.
    next_worker: str | None = None
    #: Why the leader wrote this.
    cause: str = ""
    #: The app's.
    skips: tuple[Skip, ...] = ()
    #: The number of the ``GroupForm`` that it is an instance of.
    form: int = 0
    #: By JetStream stream: the last sequence that earlier forms of the group processed.  The
    #: instance begins after it, or after its own snapshot if that is later.
    start: Mapping[str, int] = field(default_factory=dict, hash=False)
    #: By JetStream stream: the last sequence to process before the instance drains and stops; a
    #: stream that isn't named ends at once.  None for an instance that runs until it is stopped.
    until: Mapping[str, int] | None = field(default=None, hash=False)
    #: With ``stop``: the epoch in which it was placed.
    placed_epoch: int = 0
    #: The worker that it was placed on before this one; empty for the first.
    former: str = ""


@dataclass(frozen=True, slots=True)
class GroupForm:
    """The plan of a group that its current assignments run; written by the leader.

    If it differs from the desired plan, the group is about to change: instances of this form are
    stopped, then the form is replaced, then instances of the next form are placed.
    """

    app: str
    group: str
    app_incarnation: str
    spec: GroupSpec
    #: Grows with each form of the group.
    number: int
    #: See ``Assignment.start``.
    start: Mapping[str, int] = field(default_factory=dict, hash=False)
    #: No instance of it has a lower epoch: it is above all of earlier forms.
    epoch: int = 0
    #: Whether all earlier forms had drained: an instance that has not run yet need not drain then.
    is_settled: bool = True
    #: Whether all before it had done ``start`` and nothing more.
    is_at_start: bool = True
    #: Why the leader wrote this.
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Standby:
    """A worker that holds an instance's shared state ready; it runs nothing of it."""

    instance: str
    app: str
    #: execGroup name.
    group: str
    #: 1 to ``parallel``; with it, it determines the instance's share of the group's state.
    index: int
    parallel: int
    app_incarnation: str
    worker: str
    #: The process that it is for; copies of an earlier process of its name are gone.
    worker_incarnation: str
    #: The lease revision that the deciding leader held.
    lease_revision: int
    #: Why the leader wrote this.
    cause: str = ""


class InstanceState(StrEnum):
    """State of an instance, as its worker reports it."""

    STARTING = "starting"
    RUNNING = "running"
    #: Failed and will be started again by the worker, after a pause.
    RETRYING = "retrying"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """State of one source, sink or destination of a sink."""

    #: ``source http``, ``sink http 2``: the connector and the number of its destination.
    name: str
    #: RUNNING, or RETRYING with the reason.
    state: InstanceState
    #: Address at which it accepts or to which it sends, without credentials.
    endpoint: str = ""
    #: Last sequence of the channel that is done, of a sink.
    position: int = 0
    #: Messages that wait for a sink.
    behind: int = 0
    error: str | None = None
    #: When it tries again, milliseconds since 1970.
    retry_at_ms: int | None = None
    #: Since when it has failed: number of attempts.
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class ElementCounts:
    """Events of a query, a named window or a table of an instance since it was placed."""

    #: ``query``, ``window`` or ``table``.
    kind: str
    name: str
    events_in: int = 0
    events_out: int = 0
    #: Rows that a table has now; None for other elements.
    rows: int | None = None


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
    #: Messages read since this epoch started here, in the unit of ``behind``.
    messages_in: int = 0
    #: Events in them, and events written, since then; a message may have many.
    events_in: int = 0
    events_out: int = 0
    #: Events recorded in the app's error stream since then.
    errors: int = 0
    #: Messages that wait in the input channels.
    behind: int = 0
    batch_ms_p50: float | None = None
    #: Durations of its batches by bucket (``mesh.model.histogram``), and their sum, seconds.
    batches: tuple[int, ...] = ()
    batches_sum_s: float = 0.0
    #: Times from the broker's storing of an event to the publishing of its effect, likewise.
    latencies: tuple[int, ...] = ()
    latencies_sum_s: float = 0.0
    #: Size of its stored state; 0 for a group without state.
    state_bytes: int = 0
    #: With statistics DETAIL alone.
    elements: tuple[ElementCounts, ...] = ()
    #: It stopped at the end of a batch, with a snapshot of that position, and no output stems from
    #: input after it.
    settled: bool = False
    #: Where that was: last sequence taken, by JetStream stream.
    position: Mapping[str, int] = field(default_factory=dict, hash=False)
    #: When it is started again while it is retrying, milliseconds since 1970; None where that is
    #: not known, as it is not when its session has ended.
    retry_at_ms: int | None = None
    #: Epoch of the marker or snapshot that has refused it; 0 if it was not refused.
    newer_epoch: int = 0
    #: Its source, or its sink's destinations, where it is one of the connector host.
    connectors: tuple[ConnectorStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class StandbyStatus:
    """A worker's report on the copies that it holds as a standby of an instance."""

    instance: str
    app: str
    worker: str
    #: Wall clock of the worker, milliseconds since 1970.
    at_ms: int
    #: Snapshots held, one for each part that the instance owns and that has been shared.
    snapshots: int = 0
    #: Of the pieces held.
    bytes: int = 0
