"""Permissions in NATS of each role: what a credential may publish to and subscribe to.

Managers, workers and receivers share the account of the mesh, each role with inboxes of its own.  A
client has an account of its own, into which only its subjects are imported: the server then
replaces the subject of its replies, so a client can't have an answer stored on a subject that it
may not publish to.

    manager     makes streams and buckets, writes the desired state
    worker      runs instances with Spark; writes reports, states and events
    receiver    a worker of sources and sinks alone, which makes no stream but that of topics
    connector   the connector host of a worker: channels and topics, no bucket but values of secrets
    operator    the commands of this machine's user (``mesh dev``): events, never records
    publisher   a client that publishes events of its streams, and gets their acknowledgements
    reader      a client that reads its streams, live and as they are stored

A client may be publisher and reader at once, and may ask tables of apps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mesh.model import names

#: Where a client's imports of the JetStream API are: ``$JS.API`` is its own account's.
CLIENT_API: Final = "MESH.API"
#: Of the mesh's subjects, those that are no events.
INTERNAL: Final = tuple(
    f"{names.ROOT}.{kind}.>" for kind in ("_marker", "_journal", "_errors", "_ask", "_topic")
)
#: Subjects of records that only managers write and read.
_OF_MANAGERS: Final = (f"{names.AUDIT_SUBJECT}.>", names.history_subject(">"))
_API: Final = "$JS.API"
_BUCKETS: Final = (
    names.CONTROL_BUCKET, names.APPS_BUCKET, names.STATUS_BUCKET, names.SNAPSHOTS_BUCKET,
    names.BACKUPS_BUCKET, names.USERS_BUCKET, names.SESSIONS_BUCKET, names.SECRETS_BUCKET,
    names.SIMULATIONS_BUCKET,
)  # fmt: skip
#: Streams of buckets that only managers read.
PRIVATE: Final = (
    f"KV_{names.USERS_BUCKET}",
    f"KV_{names.SESSIONS_BUCKET}",
    f"KV_{names.SIMULATIONS_BUCKET}",
    names.AUDIT_STREAM,
    names.HISTORY_STREAM,
)
#: Streams that only managers remove.
_MANAGER_STREAMS: Final = (
    *(f"KV_{bucket}" for bucket in _BUCKETS),
    f"OBJ_{names.STATE_BUCKET}",
    names.JOURNAL_STREAM,
    names.AUDIT_STREAM,
    names.HISTORY_STREAM,
)
#: Subjects that any reader of a stream's description and messages uses.
_READS: Final = ("STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET")


class NatsRole(StrEnum):
    """A role in the account of the mesh."""

    MANAGER = "manager"
    WORKER = "worker"
    RECEIVER = "receiver"
    CONNECTOR = "connector"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Permissions:
    """Subjects, with wildcards; a denial counts before what is allowed."""

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    no_publish: tuple[str, ...] = ()
    no_subscribe: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamGrant:
    """A stream of an app; ``*`` for every app, and for every stream."""

    app: str
    stream: str

    @property
    def is_any(self) -> bool:
        """Whether it stands for several streams."""
        return "*" in (self.app, self.stream)


@dataclass(frozen=True, slots=True)
class ClientGrant:
    """Streams and apps of a client; it may do nothing with all three empty."""

    publish: tuple[StreamGrant, ...] = ()
    read: tuple[StreamGrant, ...] = ()
    #: Apps whose tables and windows it may ask; ``*`` for every one.
    query: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shared:
    """A subject of the mesh's account that a client imports."""

    #: ``service``: the client publishes to it.  ``stream``: it subscribes to it.
    kind: str
    subject: str
    #: Its subject in the client's account, if another.
    to: str = ""
    #: Whether one request has several answers.
    is_many: bool = False


def inbox(role: NatsRole) -> str:
    """The prefix of a role's inboxes: no role hears what another one is answered."""
    return f"_INBOX.{role}"


#: Subjects of events, plain and by key, and of markers.
_NEWS: Final = (f"{names.ROOT}.*.*", f"{names.ROOT}.*.*.by.>", f"{names.MARKERS}.>")


def permissions(role: NatsRole, sinks: tuple[str, ...] = ()) -> Permissions:
    """The permissions of a role in the account of the mesh.

    Args:
        role: of a process.
        sinks: further subjects that apps publish to: of ``nats`` sinks that use this connection.
    """
    inboxes = f"{inbox(role)}.>"
    match role:
        case NatsRole.MANAGER:
            return Permissions(
                (
                    *(f"{_API}.{calls}" for calls in ("STREAM.>", "CONSUMER.>", "DIRECT.GET.>")),
                    "$JS.FC.>",
                    *(f"$KV.{bucket}.>" for bucket in _BUCKETS),
                    f"$O.{names.STATE_BUCKET}.>",
                    f"{names.ROOT}.*.>",
                    # Answers to queries, of this account and of clients in others.
                    "_INBOX.>",
                    "_R_.>",
                    # Streams of the other datacenter that it mirrors.
                    "$JS.*.API.STREAM.INFO.*",
                ),
                (
                    inboxes,
                    f"{names.DATACENTER_ANSWERS}.*",
                    names.query_subject("*"),
                    names.table_change_subject("*"),
                    "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*",
                    "$JS.EVENT.ADVISORY.STREAM.QUORUM_LOST.*",
                ),
            )
        case NatsRole.WORKER | NatsRole.RECEIVER:
            return Permissions(
                (
                    *_of_workers(role),
                    f"{names.ROOT}.*.>",
                    inboxes,
                    f"{inbox(NatsRole.MANAGER)}.>",
                    f"{inbox(NatsRole.CONNECTOR)}.>",
                    *sinks,
                ),
                # Events and markers notify it of news in streams that it reads in any case.
                (
                    inboxes,
                    names.question_subject("*"),
                    names.check_subject("*"),
                    # Replays, and answers that wait for a request or for a call's source.
                    names.connector_subject("*", "*"),
                    names.answer_subject("*", "*"),
                    f"{names.ROOT}._ask.call.*.*.*",
                    *(_NEWS if role is NatsRole.WORKER else ()),
                ),
                (*_private(), *_OF_MANAGERS, *_removal(_MANAGER_STREAMS)),
                (names.query_subject("*"), names.table_change_subject("*"), *_OF_MANAGERS),
            )
        case NatsRole.CONNECTOR:
            return _of_connectors(inboxes, sinks)
        case NatsRole.OPERATOR:
            return Permissions(
                # The servers report the hops of a traced event to an inbox, as its publisher.
                (f"{names.ROOT}.*.*", *_consuming("*"), f"{_API}.STREAM.NAMES", inboxes),
                (inboxes, f"{names.ROOT}.>"),
                (*INTERNAL, *_OF_MANAGERS, *_private()),
                _OF_MANAGERS,
            )


def _of_connectors(inboxes: str, sinks: tuple[str, ...]) -> Permissions:
    """Permissions of the connector host of a worker."""
    return Permissions(
        (
            *_consuming("*"),
            f"{_API}.STREAM.NAMES",
            f"{_API}.STREAM.PURGE.*",
            f"{_API}.STREAM.CREATE.{names.TOPICS}",
            f"{names.ROOT}.*.*",
            f"{names.ROOT}.*.*.by.>",
            f"{names.MARKERS}.>",
            names.answer_subject("*", "*"),
            f"{names.ROOT}._ask.call.>",
            # Hosts answer each other, also those of workers with one login.
            inboxes,
            *(f"{inbox(one)}.>" for one in (NatsRole.MANAGER, NatsRole.WORKER, NatsRole.RECEIVER)),
            *sinks,
        ),
        (
            inboxes,
            names.connector_subject("*", "*"),
            names.answer_subject("*", "*"),
            f"{names.ROOT}._ask.call.*.*.*",
        ),
        (
            *_no_buckets(),
            *_OF_MANAGERS,
            names.journal_subject("*"),
            names.question_subject("*"),
            names.query_subject("*"),
            names.table_change_subject("*"),
        ),
        _OF_MANAGERS,
    )


def _of_workers(role: NatsRole) -> tuple[str, ...]:
    """Records of workers, and their calls of the JetStream API."""
    buckets = (names.STATUS_BUCKET, names.SNAPSHOTS_BUCKET)
    both = (
        *_consuming("*"),
        f"{_API}.STREAM.NAMES",
        # Writers drop their own markers, and snapshots that were replaced.
        f"{_API}.STREAM.PURGE.*",
        f"$KV.{names.CONTROL_BUCKET}.node.worker.>",
        *(f"$KV.{bucket}.>" for bucket in buckets),
        f"$O.{names.STATE_BUCKET}.>",
    )
    if role is NatsRole.RECEIVER:
        # The first source or sink of a topic makes the stream of all topics.
        return (*both, f"{_API}.STREAM.CREATE.{names.TOPICS}")
    # A session warms up with a small app, whose channels it makes and removes.
    return (*both, f"{_API}.STREAM.CREATE.*", f"{_API}.STREAM.DELETE.*")


def _consuming(stream: str) -> tuple[str, ...]:
    """Calls that read a stream, with a consumer or without."""
    reads = [f"{_API}.{call}.{stream}" for call in _READS]
    consumer = [f"{_API}.CONSUMER.{call}.{stream}.>" for call in ("CREATE", "INFO", "DELETE")]
    return (
        *reads,
        f"{_API}.DIRECT.GET.{stream}.>",
        # A consumer with a name, and one without.
        f"{_API}.CONSUMER.CREATE.{stream}",
        *consumer,
        f"{_API}.CONSUMER.MSG.NEXT.{stream}.>",
        "$JS.FC.>",
    )


#: Calls, with what follows the stream, that read or change a stream.
_CALLS: Final = (
    ("STREAM.MSG.GET", ""), ("DIRECT.GET", ""), ("DIRECT.GET", ".>"),
    ("CONSUMER.CREATE", ""), ("CONSUMER.CREATE", ".>"), ("CONSUMER.MSG.NEXT", ".>"),
    ("CONSUMER.DELETE", ".>"), ("STREAM.CREATE", ""), ("STREAM.PURGE", ""), ("STREAM.INFO", ""),
)  # fmt: skip


def _private() -> tuple[str, ...]:
    """Calls that would read or change what only managers read."""
    return _calls_of(PRIVATE)


def _no_buckets() -> tuple[str, ...]:
    """Calls that would read or change the mesh's records; values of secrets are read by name."""
    secret = f"KV_{names.SECRETS_BUCKET}"
    # A value is read by its name in the body of a call, or in the subject of another one.
    calls = ("STREAM.INFO", ""), ("STREAM.MSG.GET", ""), ("DIRECT.GET", ".>")
    by_name = [f"{_API}.{call}.{secret}{rest}" for call, rest in calls]
    return tuple(one for one in _calls_of(_MANAGER_STREAMS) if one not in by_name)


def _calls_of(streams: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{_API}.{call}.{stream}{rest}" for stream in streams for call, rest in _CALLS)


def _removal(streams: tuple[str, ...]) -> tuple[str, ...]:
    removals = tuple(f"{_API}.STREAM.DELETE.{stream}" for stream in streams)
    # States and snapshots are purged when they are replaced.
    state_streams = (f"KV_{names.SNAPSHOTS_BUCKET}", f"OBJ_{names.STATE_BUCKET}")
    return (
        *removals,
        *(f"{_API}.STREAM.PURGE.{one}" for one in streams if one not in state_streams),
    )


def imports(client: ClientGrant) -> tuple[Shared, ...]:
    """Subjects of the mesh that the account of a client imports."""
    shares = [Shared("service", names.subject(one.app, one.stream)) for one in client.publish]
    for grant in client.read:
        subject = names.subject(grant.app, grant.stream)
        shares += [Shared("stream", subject), Shared("stream", f"{subject}.by.>")]
        shares += [
            Shared("service", f"{_API}.{call}", f"{CLIENT_API}.{call}", is_many)
            for call, is_many in _stored(grant)
        ]
    shares += [Shared("service", names.query_subject(app)) for app in client.query]
    return tuple(dict.fromkeys(shares))


def client_permissions(client: ClientGrant) -> Permissions:
    """The permissions of a client in its own account."""
    publish = [names.subject(grant.app, grant.stream) for grant in client.publish]
    publish += [names.query_subject(app) for app in client.query]
    read: list[str] = []
    for grant in client.read:
        subject = names.subject(grant.app, grant.stream)
        read += [subject, f"{subject}.by.>"]
        publish += [f"{CLIENT_API}.{call}" for call, _ in _stored(grant)]
    unasked = [names.table_change_subject("*")]
    unasked += [names.query_subject("*")] if not client.query else []
    return Permissions(
        tuple(dict.fromkeys(publish)),
        ("_INBOX.>", *dict.fromkeys(read)),
        # A grant of every app includes names that are no apps'.
        (*INTERNAL, *_OF_MANAGERS, *unasked)
        if any(grant.is_any for grant in client.publish)
        else (),
        (*INTERNAL, *_OF_MANAGERS) if any(grant.is_any for grant in client.read) else (),
    )


def _stored(grant: StreamGrant) -> tuple[tuple[str, bool], ...]:
    """Calls that read what a stream has stored; none for several streams.

    A wildcard stands for a whole stream's name: that of every app would be that of every bucket.
    """
    if grant.is_any:
        return ()
    stream = names.js_stream(grant.app, grant.stream)
    return (f"STREAM.INFO.{stream}", False), (f"DIRECT.GET.{stream}", True)
