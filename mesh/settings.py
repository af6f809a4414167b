"""Every setting with its default and its purpose.

The first of these sources that has a value counts: a command-line option, the environment
(``MESH_NATS_URL`` for ``nats.url``), the YAML file (``--config``), the default here.
``conf/mesh.yaml`` lists all settings; ``make conf`` writes it (``python -m mesh.settings``), and a
test compares it with this file.

The file is longer than 400 lines because it is one table.
"""

from __future__ import annotations

import math
import os
import sys
from dataclasses import Field, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import orjson
import yaml

from mesh import mesh_name
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def setting(
    default: object,
    help: str,
    *,
    least: float = 0,
    most: float = math.inf,
    is_positive: bool = False,
    choices: tuple[str, ...] = (),
    is_mesh_file: bool = False,
) -> Any:
    """A setting's default, its one sentence, the bounds of a number, and the choices of a text.

    ``is_mesh_file``: it names a file or a directory of the mesh, which no app may use.
    """
    bounds = Bounds(least, most, is_positive)
    metadata = {"help": help, "bounds": bounds, "choices": choices, "is_mesh_file": is_mesh_file}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The accepted values of a setting that is a number."""

    least: float
    most: float
    is_positive: bool

    def __str__(self) -> str:
        if self.is_positive:
            return "above 0"
        return (
            f"{self.least:g} or more"
            if math.isinf(self.most)
            else f"{self.least:g} to {self.most:g}"
        )

    def hold(self, value: float) -> bool:
        """Whether the setting may have this value; neither infinity nor NaN."""
        is_positive = value > 0 or not self.is_positive
        return math.isfinite(value) and self.least <= value <= self.most and is_positive


@dataclass(frozen=True, slots=True)
class MeshSettings:
    """The mesh."""

    name: str = setting(
        mesh_name.DEFAULT,
        "Beginning of all subjects, streams and buckets; several meshes on one NATS account have "
        "different ones.",
    )


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """Connection to NATS."""

    url: str = setting("nats://127.0.0.1:4222", "Servers, comma-separated.")
    user: str = setting("", "User name, empty for none.")
    password: str = setting("", "Password of the user.")
    creds: str = setting(
        "", "Path of a credentials file (JWT and seed), empty for none.", is_mesh_file=True
    )
    tls_ca: str = setting(
        "",
        "Path of the certificate authority's PEM file, empty for the system's.",
        is_mesh_file=True,
    )
    nkey_seed_file: str = setting(
        "", "Path of a file with the seed of an nkey, empty for none.", is_mesh_file=True
    )
    tls_cert: str = setting(
        "", "Path of the client certificate's PEM file, empty for none.", is_mesh_file=True
    )
    tls_key: str = setting("", "Path of the client certificate's key.", is_mesh_file=True)
    tls_first: bool = setting(
        False, "Begin with the TLS handshake; the servers need handshake_first."
    )
    inbox_prefix: str = setting(
        "", "Prefix of the subjects of answers, within _INBOX.; empty for _INBOX."
    )
    js_domain: str = setting("", "JetStream domain, empty for that of the servers.")
    connect_timeout_s: float = setting(
        5.0, "Time limit of one connection attempt, seconds.", is_positive=True
    )
    ping_interval_s: float = setting(
        0.5,
        "Interval of connection checks; three unanswered checks mean a lost connection.",
        is_positive=True,
    )


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """Creation of channels."""

    replicas: int = setting(
        1, "Copies of each JetStream stream and bucket, 1 to 5.", least=1, most=5
    )
    max_age_s: float = setting(
        604800.0, "Retention of a channel's messages, seconds; 0 for no limit."
    )
    keep_unread: bool = setting(
        True,
        "Keep messages that a group of the app has not processed for longer than that, up to "
        "max_bytes.",
    )
    partitions: int = setting(8, "Virtual partitions of a keyed channel.", least=1)
    max_bytes: int = setting(
        0,
        "Size of a channel's JetStream stream, bytes, above which its oldest messages are deleted; "
        "0 for no limit.",
    )
    errors_max_bytes: int = setting(
        4_000_000, "The same for the error stream of an app; 0 for no limit."
    )
    sync_interval_s: float = setting(
        -1.0,
        "The servers' jetstream.sync_interval, seconds, for the audit of guarantees: managers "
        "can't read it; 0 for always, -1 for unknown.",
        least=-1,
    )


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """A manager and its REST API."""

    id: str = setting("", "Name of this manager, empty for the host name and a number.")
    host: str = setting("127.0.0.1", "Address that the REST API listens on.")
    port: int = setting(9543, "Port of the REST API, 0 for a free one.", most=65535)
    tls_cert: str = setting(
        "", "Path of the certificate's PEM file, empty for plain HTTP.", is_mesh_file=True
    )
    tls_key: str = setting("", "Path of the certificate's key.", is_mesh_file=True)
    users_file: str = setting(
        "", "Path of the users file, which 'mesh user add' writes.", is_mesh_file=True
    )
    apps_dir: str = setting(
        "",
        "Folder of .siddhi files that the manager keeps deployed, empty for none.",
        is_mesh_file=True,
    )
    apps_variables: str = setting(
        "", "Environment variables that files of apps_dir may use as ${NAME}, comma-separated."
    )
    history_dir: str = setting(
        "",
        "Directory of the files of past events that 'mesh backfill' may name, empty for none.",
    )
    history_databases: str = setting(
        "",
        "Addresses of databases whose tables 'mesh backfill' may name by URL, as in "
        "receiver.listen; empty: none but those of stores.sources_file.",
    )
    history_catalogs: str = setting(
        "",
        "Iceberg catalogs whose tables 'mesh backfill' may name, by their names in PyIceberg's own "
        "configuration, separated by commas.",
    )
    autoscale: bool = setting(
        True,
        "Scale groups with @dist(min=.., max=..) by their load; false tells in the story what "
        "would be done.",
    )
    anonymous: bool = setting(
        False, "Accept REST requests without a user; only on a loopback address."
    )
    public_url: str = setting(
        "", "URL that browsers know this manager by, as in https://mesh.example; empty for its own."
    )
    trusted_proxies: str = setting(
        "",
        "Addresses of proxies, comma-separated, whose X-Forwarded-For and -Proto are believed.",
    )
    requests_per_s: float = setting(
        200.0, "Most requests a second of one address and of one user; 0 for no limit."
    )
    audit_bytes: int = setting(
        1_000_000_000,
        "Size of the audit's JetStream stream, bytes, above which its oldest entries are deleted.",
        least=1_000_000,
    )
    connections_max: int = setting(
        256, "Most connections to the REST API, half from one address.", least=1
    )
    head_timeout_s: float = setting(
        10.0,
        "Time limit of a TLS handshake and of the head of a request, seconds.",
        is_positive=True,
    )
    body_timeout_s: float = setting(
        60.0,
        "Time limit of the body of a request, and for a client to read the answer, seconds.",
        is_positive=True,
    )
    plan_timeout_s: float = setting(
        30.0, "Time limit of the plan of a deployed text, seconds.", is_positive=True
    )
    history_bytes_max: int = setting(
        64_000_000,
        "Memory for the history of apps, groups and nodes, bytes: half of it for an hour by the "
        "second, the rest for a day by the minute and a week by ten minutes; beyond it they are "
        "shorter.",
        least=1_000_000,
    )
    history_stored_bytes_max: int = setting(
        64_000_000,
        "Size of the JetStream stream with which the history of a week outlives managers, bytes; "
        "0: it is in memory alone.",
        least=0,
    )
    prometheus_url: str = setting(
        "", "URL of a Prometheus that scrapes the managers, for longer histories; empty for none."
    )
    lease_ttl_s: float = setting(
        1.5, "Validity of the leader's lease without renewal, seconds.", is_positive=True
    )
    min_workers: int = setting(1, "Number of ready workers below which no new instance is placed.")
    min_receivers: int = setting(
        1,
        "Number of ready workers that take receivers (worker.takes_receivers) below which no new "
        "instance of a source is placed.",
    )
    moves_at_once: int = setting(
        2,
        "Most instances that move at once to even out the load or to empty a worker; 0: none does.",
    )
    hold_s: float = setting(
        20.0, "Time that instances wait for their worker's next Spark session, seconds."
    )


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """A worker: an agent and its Spark session."""

    id: str = setting("", "Name of this worker, empty for the host name and a number.")
    ttl_s: float = setting(
        1.5, "Time without a heartbeat after which a worker is suspect, seconds.", is_positive=True
    )
    margin_s: float = setting(
        0.5, "Further time after which a suspect worker is gone and its instances move, seconds."
    )
    leave_s: float = setting(
        10.0, "Time that a worker waits for its instances to move when it ends, seconds."
    )
    stop_s: float = setting(
        30.0,
        "Time limit for an instance to stop; then its session is killed, seconds.",
        is_positive=True,
    )
    settle_s: float = setting(
        5.0, "Part of stop_s for finishing the batch and storing the state, seconds."
    )
    labels: str = setting("", "Labels that groups may require, like 'gpu=true,zone=a'.")
    capacity: int = setting(0, "Most instances that the worker accepts, 0 for any number.")
    takes_receivers: bool = setting(True, "Accept groups with their own sources.")
    takes_queries: bool = setting(True, "Accept all other groups.")
    probe_host: str = setting("127.0.0.1", "Address that the worker's probes listen on.")
    probe_port: int = setting(
        0,
        "Port of the worker's probes (/health/live, /health/ready) and /metrics; 0 for none.",
        most=65535,
    )
    spark: bool = setting(
        True,
        "Start a Spark session; without one the worker runs sources and sinks of connectors only, "
        "and is ready in a second.",
    )
    state_dir: str = setting(
        "",
        "Directory in which the worker makes one for local state, empty for the system's "
        "temporary directory.",
        is_mesh_file=True,
    )
    snapshot_interval_s: float = setting(
        2.0,
        "Interval of snapshots to the state store, seconds; of more than 200 busy instances on a "
        "worker it is longer, up to 10.",
        is_positive=True,
    )
    retry_s: float = setting(
        1.0, "Rest of a failed instance before its next start, seconds.", is_positive=True
    )
    retry_max_s: float = setting(
        30.0,
        "Longest rest; each is twice the last, until the instance has run for this time, seconds.",
        is_positive=True,
    )


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """Connectors of a worker: sources and sinks other than the mesh's own streams."""

    file_roots: str = setting(
        "", "Directories below which connectors read and write files, comma-separated; none: no."
    )
    files_closed: str = setting(
        "",
        "Files and directories below them that connectors do not use, comma-separated; those of "
        "the mesh that other settings name are closed as well.",
        is_mesh_file=True,
    )
    listen: str = setting(
        "127.0.0.1:1024-65535",
        "Addresses that sources may bind, 'host:port' or 'host:first-last', comma-separated; "
        "'*' is any host.",
    )
    egress: str = setting(
        "",
        "Addresses that sources and sinks may connect to, as in receiver.listen, and "
        "'*.example.org:443' for all below a domain; empty: all. Loopback and link-local addresses "
        "have to be named.",
    )
    refs_file: str = setting(
        "",
        "YAML file with options by reference, for @source and @sink with ref='name'; keeps "
        "passwords on this node. Managers read the types of references in theirs.",
        is_mesh_file=True,
    )
    nkey_seed_file: str = setting(
        "",
        "Path of a file with the seed of the nkey of the role connector, with which the connector "
        "host connects to NATS; empty: as the worker.",
        is_mesh_file=True,
    )
    retry_max_s: float = setting(
        60.0, "Longest delay before a sink tries again, seconds.", is_positive=True
    )
    connections_max: int = setting(
        800,
        "Most connections to one address of sources, half from one client; websocket-server has "
        "1,000, from any.",
        least=1,
    )
    head_timeout_s: float = setting(
        10.0,
        "Time limit of a TLS handshake and of the head of a request to a source, seconds.",
        is_positive=True,
    )
    body_timeout_s: float = setting(
        60.0,
        "Time limit of the body of a request to a source, and to read the answer, seconds.",
        is_positive=True,
    )


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """An identity provider: its tokens for the REST API, and sign-in to the dashboard."""

    issuer: str = setting("", "Issuer of the tokens, an https URL; empty for no provider.")
    audience: str = setting("", "Audience that tokens must have.")
    jwks_url: str = setting("", "URL of the provider's keys, empty for that of its discovery.")
    user_claim: str = setting("sub", "Claim with the name of the user.")
    roles_claim: str = setting("roles", "Claim with the roles, 'a.b' for one within another.")
    roles: str = setting(
        "",
        "Grants by value of that claim, comma-separated: 'admins=admin, shop=developer:Shop*'.",
    )
    leeway_s: float = setting(30.0, "Difference of clocks that is accepted, seconds.", most=300)
    client_id: str = setting(
        "", "Id of the dashboard's client at the provider, empty for no sign-in."
    )
    client_secret: str = setting("", "Secret of that client, empty for a public client.")
    client_secret_file: str = setting(
        "", "Path of a file with that secret, in place of it.", is_mesh_file=True
    )
    scopes: str = setting(
        "openid profile", "Scopes of a sign-in; many providers renew with 'offline_access' only."
    )
    recheck_s: float = setting(
        300.0,
        "Time after which a session asks the provider whether its user may still sign in, seconds.",
        is_positive=True,
    )
    provisioned_only: bool = setting(
        False, "Refuse users of the provider that it has not provisioned by SCIM."
    )
    command_client_id: str = setting(
        "", "Id of the public client of 'mesh login', empty for oidc.client_id."
    )


@dataclass(frozen=True, slots=True)
class SecretSettings:
    """Secrets of apps."""

    key_file: str = setting(
        "",
        "File with the key of secrets, 32 bytes in base64, the same on managers and workers; "
        "empty for systemd's credential mesh-secrets-key.",
        is_mesh_file=True,
    )


@dataclass(frozen=True, slots=True)
class StateSettings:
    """Storage of states."""

    store: str = setting(
        "jetstream",
        "Store of snapshots and backups: 'jetstream', or a path or URI that all workers and "
        "managers reach.",
        is_mesh_file=True,
    )
    backups_kept: int = setting(
        10, "Backups kept per app; a new backup deletes the oldest; 0 keeps all."
    )


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """On-demand queries; the same on managers and workers."""

    rows_max: int = setting(10_000, "Most rows of an answer.", least=1)
    bytes_max: int = setting(8_000_000, "Most bytes of an answer, in Arrow.", least=1000)
    timeout_s: float = setting(
        10.0, "Time limit of a query, with all waits, seconds.", is_positive=True
    )
    waiting_max: int = setting(32, "Most queries that a process lets wait.", least=1)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Tables in databases (@store)."""

    shard_id: str = setting(
        "",
        "Name of this mesh among those that write the tables of one database (@PartitionById); "
        "the same on all its nodes.",
    )
    sources_file: str = setting(
        "",
        "YAML file with databases by name (url, username, password), for @store with "
        "datasource='name'; keeps passwords on this node.",
        is_mesh_file=True,
    )
    cud_operations: bool = setting(
        False,
        "Let #rdbms:cud, and the sink rdbms-call, change databases: by any statement that the "
        "login may execute.",
    )


@dataclass(frozen=True, slots=True)
class FunctionSettings:
    """Functions of apps."""

    python: bool = setting(
        False,
        "Accept and run 'define function .. [python]': any code, as the worker's system user.",
    )


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The Spark session of a worker."""

    master: str = setting("local[2]", "Spark master URL; the worker is the driver.")
    driver_memory: str = setting("1g", "Heap of the driver's Java process.")
    conf_file: str = setting(
        "",
        "File of further settings of Spark on a cluster, like spark-defaults.conf; may hold "
        "spark.authenticate.secret.",
        is_mesh_file=True,
    )
    driver_host: str = setting(
        "",
        "Address at which executors of a cluster reach the worker, empty for that of the "
        "interface towards the master.",
    )
    driver_port: int = setting(0, "Port of the driver for executors, 0 for a free one.", most=65535)
    block_manager_port: int = setting(
        0, "Port of the driver's blocks for executors, 0 for a free one.", most=65535
    )
    slots_port: int = setting(
        0, "Port on which slots on executors connect to the worker, 0 for a free one.", most=65535
    )
    slots: int = setting(
        0, "Slots of the shared query on a cluster, 0 for half of the executors' cores."
    )
    archives: str = setting(
        "",
        "Archive of the Python environment for executors, which 'mesh pack' makes; a path or a "
        "URI that Spark reads.",
    )
    python: str = setting(
        "", "Python of executors, empty for that of spark.archives or the worker's own path."
    )
    trigger_rows_max: int = setting(
        100000, "Most messages that a micro-batch reads from one channel.", least=1
    )
    message_events_max: int = setting(
        1_000_000, "Most events in a message, below 2^20; others go to the error stream."
    )
    message_bytes_max: int = setting(
        64 << 20, "Most bytes of a message when decoded; others go to the error stream."
    )
    event_time_ahead_max_s: float = setting(
        86400.0,
        "How far an event's own time may be after the time at which NATS stored it, seconds.",
    )
    ui: bool = setting(False, "Run the Spark web UI.")
    ui_host: str = setting(
        "127.0.0.1", "Address that the web UI listens on; it has no login and shows data."
    )
    shared_query: bool = setting(
        True, "Run a worker's instances in one shared streaming query instead of one each."
    )


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Traces of managers and workers by OpenTelemetry."""

    endpoint: str = setting(
        "", "OTLP/HTTP URL for traces, like 'http://collector:4318/v1/traces'; empty for none."
    )
    sample_ratio: float = setting(
        1.0, "Part of the traces that begin here which is sent, 0 to 1.", most=1
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Logs of every mesh process."""

    level: str = setting(
        "INFO", "DEBUG, INFO, WARNING or ERROR.", choices=("DEBUG", "INFO", "WARNING", "ERROR")
    )
    style: str = setting(
        "text", "'text', or 'json' for one object per line.", choices=("text", "json")
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings."""

    mesh: MeshSettings = field(default_factory=MeshSettings)
    nats: NatsSettings = field(default_factory=NatsSettings)
    channels: ChannelSettings = field(default_factory=ChannelSettings)
    manager: ManagerSettings = field(default_factory=ManagerSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    receiver: ReceiverSettings = field(default_factory=ReceiverSettings)
    state: StateSettings = field(default_factory=StateSettings)
    oidc: OidcSettings = field(default_factory=OidcSettings)
    secrets: SecretSettings = field(default_factory=SecretSettings)
    queries: QuerySettings = field(default_factory=QuerySettings)
    stores: StoreSettings = field(default_factory=StoreSettings)
    functions: FunctionSettings = field(default_factory=FunctionSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    traces: TraceSettings = field(default_factory=TraceSettings)
    log: LogSettings = field(default_factory=LogSettings)


def load(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from a YAML file and the environment.

    Raises:
        MeshError: MESH-U100 for a file that is no YAML mapping, MESH-U101 for a setting that does
            not exist, MESH-U102 for a value of the wrong type, MESH-U103 for a number beyond
            its bounds, MESH-U104 for two logins to NATS, MESH-U105 for a name of the mesh.
    """
    document = _read(path) if path is not None else {}
    environment = os.environ if environment is None else environment
    settings = Settings()
    sections = {f.name for f in fields(Settings)}
    for section in document:
        if section not in sections:
            raise _unknown(section, sections)
    for section in sections:
        current = getattr(settings, section)
        values = dict(document.get(section) or {})
        names = {f.name for f in fields(current)}
        for name in values:
            if name not in names:
                raise _unknown(f"{section}.{name}", {f"{section}.{n}" for n in names})
        for name in names:
            variable = f"MESH_{section}_{name}".upper()
            if variable in environment:
                text = environment[variable]
                # A password of digits is text; only numbers and booleans are read as YAML.
                is_text = isinstance(getattr(current, name), str)
                values[name] = text if is_text else _value(variable, text)
        by_name = {f.name: f for f in fields(current)}
        checked = {n: _check(f"{section}.{n}", v, by_name[n]) for n, v in values.items()}
        settings = replace(settings, **{section: replace(current, **checked)})
    _check_login(settings.nats)
    mesh_name.checked(settings.mesh.name)
    return settings


def _check_login(nats: NatsSettings) -> None:
    """Refuse settings that give two logins, or half a one: MESH-U104."""
    candidates = {
        "nats.creds": nats.creds,
        "nats.nkey_seed_file": nats.nkey_seed_file,
        "nats.user": nats.user or nats.password,
    }
    logins = [name for name, value in candidates.items() if value]
    if len(logins) > 1:
        raise MeshError(
            "MESH-U104",
            f"settings {logins[0]} and {logins[1]} contradict each other",
            hint="Set one login: a credentials file, an nkey, or user and password.",
        )
    if bool(nats.tls_cert) != bool(nats.tls_key):
        raise MeshError("MESH-U104", "settings nats.tls_cert and nats.tls_key go together")
    if nats.inbox_prefix and not f"{nats.inbox_prefix}.".startswith("_INBOX."):
        raise MeshError(
            "MESH-U104",
            f'setting nats.inbox_prefix is "{nats.inbox_prefix}", which is not within _INBOX.',
            detail="Answers to questions of the mesh go to inboxes only.",
            hint='Choose a subject like "_INBOX.manager".',
        )


_KINDS: dict[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def _value(variable: str, text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise MeshError("MESH-U102", f"variable {variable} can't be read: {text!r}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise MeshError(
            "MESH-U100", f'settings file "{path}" can\'t be read', detail=f"{error}."
        ) from error
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(v, dict | None) for v in values.values()):
        raise MeshError(
            "MESH-U100",
            f'settings file "{path}" is no mapping of sections',
            hint="conf/mesh.yaml shows the form.",
        )
    return values


def _unknown(name: str, names: set[str]) -> MeshError:
    return MeshError(
        "MESH-U101",
        f'setting "{name}" does not exist',
        detail=f"Known here: {', '.join(sorted(names))}.",
        hint="conf/mesh.yaml lists every setting.",
    )


def _check(name: str, value: object, of: Field[object]) -> object:
    default = of.default
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not type(default):
        # A text may be a password, and YAML reads one of digits as a number.
        is_text = isinstance(default, str)
        shown = _KINDS.get(type(value), "something else") if is_text else repr(value)
        raise MeshError(
            "MESH-U102",
            f'setting "{name}" takes {_KINDS[type(default)]}, not {shown}',
            # YAML reads 0123 as 83, so a number is never taken for the text it was written as.
            hint="Put the value in quotes." if is_text else None,
        )
    bounds: Bounds = of.metadata["bounds"]
    if isinstance(value, int | float) and not bounds.hold(value):
        raise MeshError("MESH-U103", f'setting "{name}" is {value:g}; it has to be {bounds}')
    choices: tuple[str, ...] = of.metadata["choices"]
    if choices:
        # People write levels of logs in small letters, too.
        chosen = next((one for one in choices if one.casefold() == str(value).casefold()), None)
        if chosen is None:
            options = " or ".join(", ".join(choices).rsplit(", ", 1))
            raise MeshError("MESH-U103", f'setting "{name}" is "{value}"; it has to be {options}')
        return chosen
    return value


def to_yaml(settings: Settings) -> str:
    """All settings as a YAML file, each below its one sentence."""
    lines = [
        "# Every setting with its default.  A file for --config needs only the settings that",
        "# differ.  Environment variables take precedence: MESH_NATS_URL for nats.url.",
    ]
    for section in fields(settings):
        values = getattr(settings, section.name)
        lines += ["", f"# {type(values).__doc__}", f"{section.name}:"]
        for one in fields(values):
            shown = orjson.dumps(getattr(values, one.name)).decode()
            lines += [f"  # {one.metadata['help']}", f"  {one.name}: {shown}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(to_yaml(Settings()))
