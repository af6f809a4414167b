"""Every setting with its default and its purpose.

The first of these sources that has a value counts: a command-line option, the environment
(``MESH_NATS_URL`` for ``nats.url``), the YAML file (``--config``), the default here.
``conf/mesh.yaml`` lists all settings; ``make conf`` writes it (``python -m mesh.settings``), and a
test compares it with this file.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import orjson
import yaml

from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def setting(default: Any, help: str) -> Any:
    """A setting's default and its one sentence."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """Connection to NATS."""

    url: str = setting("nats://127.0.0.1:4222", "Servers, comma-separated.")
    user: str = setting("", "User name, empty for none.")
    password: str = setting("", "Password of the user.")
    creds: str = setting("", "Path of a credentials file (JWT and seed), empty for none.")
    tls_ca: str = setting(
        "", "Path of the certificate authority's PEM file, empty for the system's."
    )
    connect_timeout_s: float = setting(5.0, "Time limit of one connection attempt, seconds.")
    ping_interval_s: float = setting(
        0.5,
        "Interval of connection checks; three unanswered checks mean a lost connection.",
    )


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """Creation of channels."""

    replicas: int = setting(1, "Copies of each JetStream stream and bucket, 1 to 5.")
    max_age_s: float = setting(
        604800.0, "Retention of a channel's messages, seconds; 0 for no limit."
    )
    partitions: int = setting(8, "Virtual partitions of a keyed channel.")
    max_bytes: int = setting(
        0,
        "Size of a channel's JetStream stream, bytes, above which its oldest messages are deleted; "
        "0 for no limit.",
    )
    errors_max_bytes: int = setting(
        32_000_000, "The same for the error stream of an app; 0 for no limit."
    )


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """A manager and its REST API."""

    id: str = setting("", "Name of this manager, empty for the host name and a number.")
    host: str = setting("127.0.0.1", "Address that the REST API listens on.")
    port: int = setting(9543, "Port of the REST API, 0 for a free one.")
    tls_cert: str = setting("", "Path of the certificate's PEM file, empty for plain HTTP.")
    tls_key: str = setting("", "Path of the certificate's key.")
    users_file: str = setting("", "Path of the users file, which 'mesh user add' writes.")
    apps_dir: str = setting(
        "", "Folder of .siddhi files that the manager keeps deployed, empty for none."
    )
    apps_variables: str = setting(
        "", "Environment variables that files of apps_dir may use as ${NAME}, comma-separated."
    )
    anonymous: bool = setting(
        False, "Accept REST requests without a user; only on a loopback address."
    )
    connections_max: int = setting(256, "Most connections to the REST API, half from one address.")
    head_timeout_s: float = setting(
        10.0, "Time limit of a TLS handshake and of the head of a request, seconds."
    )
    plan_timeout_s: float = setting(30.0, "Time limit of the plan of a deployed text, seconds.")
    lease_ttl_s: float = setting(1.5, "Validity of the leader's lease without renewal, seconds.")
    min_workers: int = setting(1, "Number of ready workers below which no new instance is placed.")
    moves_at_once: int = setting(
        2, "Most instances that move at once to even out the load or to empty a worker."
    )
    hold_s: float = setting(
        20.0, "Time that instances wait for their worker's next Spark session, seconds."
    )


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """A worker: an agent and its Spark session."""

    id: str = setting("", "Name of this worker, empty for the host name and a number.")
    ttl_s: float = setting(
        1.5, "Time without a heartbeat after which a worker is suspect, seconds."
    )
    margin_s: float = setting(
        0.5, "Further time after which a suspect worker is gone and its instances move, seconds."
    )
    leave_s: float = setting(
        10.0, "Time that a worker waits for its instances to move when it ends, seconds."
    )
    stop_s: float = setting(
        30.0, "Time limit for an instance to stop; then its session is killed, seconds."
    )
    settle_s: float = setting(
        5.0, "Part of stop_s for finishing the batch and storing the state, seconds."
    )
    labels: str = setting("", "Labels that groups may require, like 'gpu=true,zone=a'.")
    capacity: int = setting(0, "Most instances that the worker accepts, 0 for any number.")
    takes_receivers: bool = setting(True, "Accept groups with their own sources.")
    takes_queries: bool = setting(True, "Accept all other groups.")
    state_dir: str = setting(
        "", "Directory of local state, empty for one in the system's temporary directory."
    )
    snapshot_interval_s: float = setting(2.0, "Interval of snapshots to the state store, seconds.")
    retry_s: float = setting(1.0, "Rest of a failed instance before its next start, seconds.")
    retry_max_s: float = setting(
        30.0,
        "Longest rest; each is twice the last, until the instance has run for this time, seconds.",
    )


@dataclass(frozen=True, slots=True)
class StateSettings:
    """Storage of states."""

    store: str = setting(
        "jetstream",
        "Store of snapshots and backups: 'jetstream', or a path or URI that all workers and "
        "managers reach.",
    )
    backups_kept: int = setting(
        10, "Backups kept per app; a new backup deletes the oldest; 0 keeps all."
    )


@dataclass(frozen=True, slots=True)
class FunctionSettings:
    """Functions of apps."""

    python: bool = setting(
        True,
        "Accept and run 'define function .. [python]': any code, as the worker's system user.",
    )


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The Spark session of a worker."""

    master: str = setting("local[2]", "Spark master URL; the worker is the driver.")
    driver_memory: str = setting("1g", "Heap of the driver's Java process.")
    trigger_rows_max: int = setting(
        100000, "Most messages that a micro-batch reads from one channel."
    )
    ui: bool = setting(False, "Run the Spark web UI.")
    shared_query: bool = setting(
        True, "Run a worker's instances in one shared streaming query instead of one each."
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Logs of every mesh process."""

    level: str = setting("INFO", "DEBUG, INFO, WARNING or ERROR.")
    style: str = setting("text", "'text', or 'json' for one object per line.")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings."""

    nats: NatsSettings = field(default_factory=NatsSettings)
    channels: ChannelSettings = field(default_factory=ChannelSettings)
    manager: ManagerSettings = field(default_factory=ManagerSettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    state: StateSettings = field(default_factory=StateSettings)
    functions: FunctionSettings = field(default_factory=FunctionSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    log: LogSettings = field(default_factory=LogSettings)


def load(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from a YAML file and the environment.

    Raises:
        MeshError: MESH-U100 for a file that is no YAML mapping, MESH-U101 for a setting that does
            not exist, MESH-U102 for a value of the wrong type.
    """
    given = _read(path) if path is not None else {}
    environment = os.environ if environment is None else environment
    settings = Settings()
    known = {f.name for f in fields(Settings)}
    for section in given:
        if section not in known:
            raise _unknown(section, known)
    for section in known:
        current = getattr(settings, section)
        values = dict(given.get(section) or {})
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
        checked = {n: _check(f"{section}.{n}", v, getattr(current, n)) for n, v in values.items()}
        settings = replace(settings, **{section: replace(current, **checked)})
    return settings


_KINDS: dict[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def _value(variable: str, text: str) -> Any:
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


def _unknown(name: str, known: set[str]) -> MeshError:
    return MeshError(
        "MESH-U101",
        f'setting "{name}" does not exist',
        detail=f"Known here: {', '.join(sorted(known))}.",
        hint="conf/mesh.yaml lists every setting.",
    )


def _check(name: str, value: Any, default: Any) -> Any:
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(default):
        raise MeshError(
            "MESH-U102",
            f'setting "{name}" takes {_KINDS[type(default)]}, not {value!r}',
            # YAML reads 0123 as 83, so a number is never taken for the text it was written as.
            hint="Put the value in quotes." if isinstance(default, str) else None,
        )
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
