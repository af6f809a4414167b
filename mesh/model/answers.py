"""Answers of the REST API, as clients read them: JSON objects, with the types of their values.

Each has the fields of the dataclass that a manager answers with, in mesh.control and mesh.manager;
a client needs neither.  Times are milliseconds since 1970 where a name ends in ``_ms``.
"""

from typing import Any, NotRequired, TypedDict

from mesh.model.values import JsonObject


class ConnectorAnswer(TypedDict):
    """A source, or a destination of a sink, of an instance."""

    name: str
    #: ``running``, or ``retrying`` with the error.
    state: str
    endpoint: str
    #: Last sequence of the channel that a sink has published, and messages that wait for it.
    position: int
    behind: int
    error: str | None
    retry_at_ms: int | None
    attempts: int


class InstanceAnswer(TypedDict):
    """An instance of a group of an app."""

    instance: str
    group: str
    #: None while it is not placed.
    worker: str | None
    epoch: int | None
    state: str
    error: str | None
    restarts: int
    events_in: int
    events_out: int
    errors: int
    #: Messages that wait.
    behind: int
    batch_ms_p50: float | None
    batches: list[int]
    batches_sum_s: float
    latencies: list[int]
    latencies_sum_s: float
    state_bytes: int
    elements: list[JsonObject]
    reason: str | None
    cure: str | None
    standby: str | None
    standby_snapshots: int
    standby_bytes: int
    standby_reason: str | None
    retry_at_ms: int | None
    connectors: list[ConnectorAnswer]


class StatusAnswer(TypedDict):
    """The state of an app and its instances."""

    app: str
    #: ``waiting``, ``starting``, ``running``, ``failing``, ``rescaling``, ``restoring``, ``paused``
    #: or ``undeploying``.
    state: str
    #: ``active``, ``waiting`` or ``inactive``.
    status: str
    #: Why it does not run; None when it does.
    reason: str | None
    #: Remedy: a change with which it runs.
    cure: str | None
    statistics: str
    deployed_at_ms: int
    instances: list[InstanceAnswer]


class DeployAnswer(TypedDict):
    """The outcome of a deploy."""

    app: str
    type: str
    message: str
    #: False if an app of this name was deployed already.
    is_new: bool
    replaced: bool
    #: Whether a running app continues with another plan, and the changes as ``mesh diff`` has them.
    edited: bool
    changes: JsonObject | None
    warnings: list[str]
    guarantees: list[str]
    #: The past events after which a new app begins; None without any.
    past: JsonObject | None


class PlanAnswer(TypedDict):
    """The effect that a text would have if it were deployed now."""

    app: str
    is_new: bool
    #: As ``mesh plan --output json`` prints it.
    plan: JsonObject
    changes: JsonObject | None
    #: The error with which it would be refused; None if it would not be.
    refused: JsonObject | None
    guarantees: JsonObject | None


class TextAnswer(TypedDict):
    """The text of an app, and the streams on the wire: types of SiddhiQL by attribute."""

    content: str
    streams: dict[str, dict[str, str]]


class ColumnAnswer(TypedDict):
    """A column of an answer."""

    name: str
    #: ``STRING``, ``INT``, ``LONG``, ``FLOAT``, ``DOUBLE``, ``BOOL`` or ``OBJECT``.
    dataType: str


class RowsAnswer(TypedDict):
    """The answer to an on-demand query."""

    #: Rows, each a list of values.
    records: list[list[Any]]
    #: By JetStream stream: the last sequence that the answer includes.
    positions: dict[str, int]
    details: NotRequired[list[ColumnAnswer]]
    #: Rows that a change has added, changed or removed.
    changed: NotRequired[int]
    #: Instances whose part is missing from a partial answer.
    missing: NotRequired[list[str]]


class NodeAnswer(TypedDict):
    """A manager or a worker."""

    id: str
    role: str
    #: ``alive``, ``suspect`` or ``gone``.
    presence: str
    leads: bool
    ready: bool
    address: str
    pid: int
    instances: int
    cpu_percent: float
    memory_bytes: int
    process_cpu_percent: float
    memory_percent: float
    memory_limit_bytes: int
    load_1m: float
    admits: str
    why: str
    capacity: int
    labels: list[str]
    takes_receivers: bool
    takes_queries: bool
    last_heartbeat_ago_s: float


class StoryAnswer(TypedDict):
    """An action of a process or a person, with its cause."""

    text: str
    cause: str
    by: str
    at_ms: int
    app: str
    instance: str
    worker: str
    epoch: int | None
    lease_revision: int


class BackupAnswer(TypedDict):
    """A backup of an app."""

    app: str
    revision: str
    at_ms: int
    by: str
    snapshots: int
    bytes: int


class RestoreAnswer(TypedDict):
    """The outcome of a restore."""

    app: str
    revision: str
    replays: bool
    #: Messages that the app reads again.
    behind: int
    snapshots: int
