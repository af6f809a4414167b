"""Every name that NATS sees: subjects, JetStream streams, buckets, keys, producers.

App names are restricted to letters, digits, ``_`` and ``-`` (so that they may stand in a subject, a
JetStream stream's name and a key), and stream names are SiddhiQL identifiers, which have no ``-``;
so every name below can be taken apart again.
"""

from __future__ import annotations

import re
from typing import Final

ROOT: Final = "mesh"
CONTROL_BUCKET: Final = "mesh_control"
APPS_BUCKET: Final = "mesh_apps"
STATUS_BUCKET: Final = "mesh_status"
#: Object store with the snapshots of stateful instances.
STATE_BUCKET: Final = "mesh_state"
#: Key-value bucket with the manifests of those snapshots.
SNAPSHOTS_BUCKET: Final = "mesh_snapshots"

#: Key-value bucket with what is known of each backup; what it holds is beside the snapshots.
BACKUPS_BUCKET: Final = "mesh_backups"

#: JetStream stream of what was decided, and why.
JOURNAL_STREAM: Final = "mesh_journal"

LEASE_KEY: Final = "lease"
EVENT_TIME_HEADER: Final = "Mesh-Timestamp"

_APP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")


def is_app_name(name: str) -> bool:
    """Whether ``name`` may stand in subjects, JetStream names and keys as it is."""
    return _APP_NAME.match(name) is not None


def subject(app: str, stream: str) -> str:
    """Where the events of ``stream`` go, unkeyed: ``mesh.{app}.{stream}``."""
    return f"{ROOT}.{app}.{stream}"


def keyed_subject(app: str, stream: str, key: str, partition: int) -> str:
    """Partition ``partition`` of the channel of ``stream`` keyed by ``key``."""
    return f"{ROOT}.{app}.{stream}.by.{key}.{partition}"


def js_stream(app: str, stream: str) -> str:
    """The JetStream stream that holds an unkeyed channel."""
    return f"{ROOT}-{app}-{stream}"


def keyed_js_stream(app: str, stream: str, key: str, partition: int) -> str:
    """The JetStream stream that holds one partition of a keyed channel."""
    return f"{ROOT}-{app}-{stream}-by-{key}-{partition}"


def marker_subject(js_stream_name: str) -> str:
    """Prefix of the markers that writers leave in ``js_stream_name``; a producer's name follows.

    Outside ``mesh.{app}.>``, so that a listener to an app's events does not see bookkeeping:
    app names never start with ``_``.
    """
    return f"{ROOT}._marker.{js_stream_name}"


def error_subject(app: str) -> str:
    """Where events go that could not be read, with their reason."""
    return f"{ROOT}._errors.{app}"


def error_js_stream(app: str) -> str:
    """The JetStream stream of an app's errors; no stream's own name ends in ``-``."""
    return f"{ROOT}-{app}-errors-"


def journal_subject(app: str) -> str:
    """Where entries about ``app`` go; with an empty name, those about the cluster."""
    return f"{ROOT}._journal.{app or '_'}"


def group_name(app: str, exec_group: str) -> str:
    """``{app}-{execGroup}``."""
    return f"{app}-{exec_group}"


def instance_name(app: str, exec_group: str, index: int) -> str:
    """``{app}-{execGroup}-{1..n}``."""
    return f"{app}-{exec_group}-{index}"


def node_key(role: str, node: str) -> str:
    """Key in the control bucket that a node renews: ``node.{role}.{node}``."""
    return f"node.{role}.{node}"


def order_key(node: str) -> str:
    """Key in the apps bucket with what an operator asked for a worker; written by any manager."""
    return f"node.{node}"


def assignment_key(instance: str) -> str:
    """Key in the control bucket that places an instance; written by the leader only."""
    return f"assignment.{instance}"


def standby_key(instance: str) -> str:
    """Key in the control bucket with who stands by for an instance; written by the leader only.

    In the status bucket, what that worker holds of it; written by the worker.
    """
    return f"standby.{instance}"


def form_key(app: str, exec_group: str) -> str:
    """Key in the control bucket with what a group's instances are; written by the leader only."""
    return f"form.{app}.{exec_group}"


def app_key(app: str) -> str:
    """Key in the apps bucket with an app's desired state; written by any manager."""
    return f"app.{app}"


def backup_key(app: str, revision: str) -> str:
    """Key in the backups bucket of one backup; written by any manager."""
    return f"backup.{app}.{revision}"


def status_key(instance: str) -> str:
    """Key in the status bucket with an instance's last report; written by its worker."""
    return f"instance.{instance}"
