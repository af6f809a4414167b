"""All names used in NATS: subjects, JetStream streams, buckets, keys, producers.

App names are restricted to letters, digits, ``_`` and ``-`` (so that they may stand in a subject, a
JetStream stream's name and a key), and stream names are SiddhiQL identifiers, which have no ``-``;
so every name below can be parsed.  ``app_token`` makes such a name of any other one.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from mesh import mesh_name

#: Name of the mesh (``mesh.name``).
ROOT: Final = mesh_name.of_process()
#: The JetStream stream of all topics between apps; no app's stream ends in ``-``.
TOPICS: Final = f"{ROOT}-topics-"
CONTROL_BUCKET: Final = f"{ROOT}_control"
APPS_BUCKET: Final = f"{ROOT}_apps"
STATUS_BUCKET: Final = f"{ROOT}_status"
#: Object store with the snapshots of stateful instances.
STATE_BUCKET: Final = f"{ROOT}_state"
#: Key-value bucket with the manifests of those snapshots.
SNAPSHOTS_BUCKET: Final = f"{ROOT}_snapshots"
#: First part of the keys there that tasks on executors write.
TASK_RECORDS: Final = "tasks"
#: First part of the keys there of the states of forks that apps take over.
ADOPTED_RECORDS: Final = "adopted"
#: First part of the keys there, and of the names of pieces, of checkpoints of histories.
HISTORY_RECORDS: Final = "history"

#: Key-value bucket with a description of each backup; their contents are beside the snapshots.
BACKUPS_BUCKET: Final = f"{ROOT}_backups"

#: Key-value bucket of users, roles and tokens; managers alone read it.
USERS_BUCKET: Final = f"{ROOT}_users"
#: Key-value bucket of sessions at the pages; managers alone read it.
SESSIONS_BUCKET: Final = f"{ROOT}_sessions"
#: Key-value bucket of encrypted secrets.
SECRETS_BUCKET: Final = f"{ROOT}_secrets"
#: Key-value bucket of feeds and their files; managers alone read it.
SIMULATIONS_BUCKET: Final = f"{ROOT}_simulations"
#: JetStream stream of who asked the API for what.
AUDIT_STREAM: Final = f"{ROOT}_audit"
AUDIT_SUBJECT: Final = f"{ROOT}._audit"

#: Answers of another datacenter; the way between the two lets no subject of the mesh pass.
DATACENTER_ANSWERS: Final = "_DATACENTER"

#: JetStream stream of decisions and their causes.
JOURNAL_STREAM: Final = f"{ROOT}_journal"
#: JetStream stream of the history of metrics, by the minute and by ten minutes.
HISTORY_STREAM: Final = f"{ROOT}_history"

LEASE_KEY: Final = "lease"
EVENT_TIME_HEADER: Final = "Mesh-Timestamp"

#: Last token of the subject of an app's on-demand queries.
QUERY: Final = "_query"

#: Last token of the subject of queries that change tables.
CHANGE: Final = "_change"

#: Pattern of the names of apps, without anchors.
APP_NAME: Final = "[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*\Z")


def is_app_name(name: str) -> bool:
    """Whether ``name`` is valid in subjects, JetStream names and keys."""
    return re.fullmatch(APP_NAME, name) is not None


#: A character in a token that the app's name has, and a name can't: bytes of UTF-8, in hex each.
_ESCAPED: Final = re.compile(r"(?:--[0-9A-F]{2})+")
_TO_ESCAPE: Final = re.compile(r"[^A-Za-z0-9_-]")


def app_token(name: str) -> str:
    """The name of an app as it is in subjects and keys: ``a.b`` is ``a--2Eb``.

    A valid name is its own token, and so is a token: it is another spelling of the app's name.
    """
    return _TO_ESCAPE.sub(
        lambda match: "".join(f"--{byte:02X}" for byte in match[0].encode("utf-8", "replace")),
        name,
    )


def app_of_token(token: str) -> str:
    """The name of an app, of which ``token`` is the token."""
    return _ESCAPED.sub(
        lambda match: bytes.fromhex(match[0].replace("--", "")).decode("utf-8", "replace"), token
    )


def is_node_name(name: str) -> bool:
    """Whether ``name`` is valid as the end of a key and as a part of a path; dots are valid."""
    return len(name) <= 100 and _NODE_NAME.match(name) is not None


def subject(app: str, stream: str) -> str:
    """Subject of the events of ``stream``, without a key: ``mesh.{app}.{stream}``."""
    return f"{ROOT}.{app}.{stream}"


def keyed_subject(app: str, stream: str, key: str, partition: int) -> str:
    """Partition ``partition`` of the channel of ``stream`` keyed by ``key``."""
    return f"{ROOT}.{app}.{stream}.by.{key}.{partition}"


def history_subject(step: int | str) -> str:
    """Subject of the history of metrics in steps of ``step`` seconds; ``*`` for all."""
    return f"{ROOT}._history.{step}"


def js_stream(app: str, stream: str) -> str:
    """The JetStream stream that holds an unkeyed channel."""
    return f"{ROOT}-{app}-{stream}"


def is_mesh_stream(name: str) -> bool:
    """Whether a JetStream stream is one of the mesh: of an app, of a bucket, or of its records."""
    return re.match(rf"{re.escape(ROOT)}[-_]|(KV|OBJ)_{re.escape(ROOT)}_", name) is not None


def app_of_js_stream(name: str) -> str | None:
    """The app whose events a JetStream stream of the mesh holds; None for one of no app."""
    match = re.fullmatch(rf"{re.escape(ROOT)}-(.+?)-\w+(-by-\w+-[0-9]+)?", name)
    return match[1] if match is not None else None


def keyed_js_stream(app: str, stream: str, key: str, partition: int) -> str:
    """The JetStream stream that holds one partition of a keyed channel."""
    return f"{ROOT}-{app}-{stream}-by-{key}-{partition}"


#: Beginning of the subjects of markers: the sink's ``markerPrefix``.
MARKERS: Final = f"{ROOT}._marker"


def marker_subject(js_stream_name: str) -> str:
    """Prefix of the markers that writers leave in ``js_stream_name``; a producer's name follows.

    Outside ``mesh.{app}.>``, so that a listener to an app's events does not see bookkeeping:
    app names never start with ``_``.
    """
    return f"{MARKERS}.{js_stream_name}"


def is_marker(subject: str) -> bool:
    """Whether a message of a channel's stream is a marker: no event, and no change of a table."""
    return subject.startswith(f"{MARKERS}.") and f".{CHANGE}." not in subject


def change_subject(js_stream_name: str, exec_group: str) -> str:
    """Subject of on-demand changes of a group's tables, in a JetStream stream that it reads.

    It is beside the events like a marker, and no producer has such a name.
    """
    return f"{marker_subject(js_stream_name)}.{CHANGE}.{exec_group}"


def error_subject(app: str) -> str:
    """Subject of events that could not be read, with their reason."""
    return f"{ROOT}._errors.{app}"


def error_js_stream(app: str) -> str:
    """The JetStream stream of an app's errors; no stream's own name ends in ``-``."""
    return f"{ROOT}-{app}-errors-"


def app_of_error_js_stream(js_stream: str) -> str | None:
    """The app whose errors are in this JetStream stream; None for another stream."""
    start, end = f"{ROOT}-", "-errors-"
    is_one = js_stream.startswith(start) and js_stream.endswith(end)
    return js_stream[len(start) : -len(end)] if is_one else None


def producer(incarnation: str, group: str, edit: object, part: str) -> str:
    """Name of the markers of a part of a group.

    It survives moves and restarts.  It differs from that of an earlier app of the same name, and of
    an earlier text (``edit``) whose rows were numbered otherwise.
    """
    since = f"~{edit}" if edit else ""
    return f"{incarnation}-{group}{since}-{part}"


def journal_subject(app: str) -> str:
    """Subject of entries about ``app``; with an empty name, of those about the cluster."""
    return f"{ROOT}._journal.{app or '_'}"


def topic_subject(topic: str) -> str:
    """Subject of a topic between apps, by its hash."""
    return f"{ROOT}._topic.{topic}"


def answer_subject(source: str, number: str) -> str:
    """Subject of the answer to a request that waits, by the two parts of its id."""
    return f"{ROOT}._ask.http.{source}.{number}"


def call_subject(app: str, sink_id: str, status: int) -> str:
    """Subject of the answers with a status that a sink ``http-call`` gets; the id is hashed."""
    digest = hashlib.sha256(sink_id.encode()).hexdigest()[:16]
    return f"{ROOT}._ask.call.{app}.{digest}.{status}"


def connector_subject(app: str, group: str) -> str:
    """Subject of managers' replays to the source or sink that a group runs."""
    return f"{ROOT}._ask.connector.{app}.{group}"


def check_subject(worker: str) -> str:
    """Subject of managers' requests to a worker to open sources and sinks of an app."""
    return f"{ROOT}._ask.check.{worker}"


def question_subject(worker: str) -> str:
    """Subject of managers' questions to a worker about the states that it has stored."""
    return f"{ROOT}._ask.{worker}"


def query_subject(app: str) -> str:
    """Subject of clients' on-demand queries; ``*`` for those of every app.

    No stream has this name.
    """
    return f"{ROOT}.{app}.{QUERY}"


def table_change_subject(app: str) -> str:
    """Subject of clients' queries that read or change tables; ``*`` for those of every app.

    No stream has this name.
    """
    return f"{ROOT}.{app}.{CHANGE}"


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
    """Key in the apps bucket of the order for a worker; written by any manager."""
    return f"node.{node}"


def assignment_key(instance: str) -> str:
    """Key in the control bucket that places an instance; written by the leader only."""
    return f"assignment.{instance}"


def standby_key(instance: str) -> str:
    """Key in the control bucket of an instance's standby; written by the leader only.

    In the status bucket, that worker's report; written by the worker.
    """
    return f"standby.{instance}"


def form_key(app: str, exec_group: str) -> str:
    """Key in the control bucket of a group's form; written by the leader only."""
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
