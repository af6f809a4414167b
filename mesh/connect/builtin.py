"""Declarations of the sources, sinks and distribution strategies of this project."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.connect import files
from mesh.connect.parts import SINK, SOURCE, TLS, file, headers, ignored, noted, secret
from mesh.connect.places import TEMPLATE, OptionPlace
from mesh.connect.spec import Guarantee, Kind, Option, Role, Spec

if TYPE_CHECKING:
    from collections.abc import Mapping

_NATS_LOGIN: Final = (
    Option("auth.type", choices=("user", "token", "tls"), doc="Kind of login."),
    secret("username", "User name."),
    secret("password", "Password."),
    secret("token", "Token."),
    file("creds", "Credentials file."),
    file("nkey", "File with the seed of an NKey."),
    *TLS,
)


def _is_on(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").strip().lower() == "true"


def _server_objection(options: Mapping[str, str]) -> str | None:
    login = options.get("basic.auth.username"), options.get("basic.auth.password")
    if _is_on(options, "basic.auth.enabled") and not all(login):
        return "basic.auth.enabled needs basic.auth.username and basic.auth.password"
    scheme = options.get("receiver.url", "http").partition("://")[0].lower()
    if scheme not in ("http", "https"):
        return f"receiver.url is http://host:port/path or https://.., and not {scheme}://.."
    if scheme == "https" and not (options.get("tls.cert") or options.get("tls.store")):
        return "https needs a certificate: tls.cert and tls.key, or tls.store"
    return None


def _client_objection(options: Mapping[str, str]) -> str | None:
    if options.get("basic.auth.username"):
        return None
    if _is_on(options, "basic.auth.enabled"):
        return "basic.auth.enabled needs basic.auth.username"
    if options.get("basic.auth.password"):
        return "basic.auth.password needs basic.auth.username"
    return None


_HTTP_SOURCE: Final = Spec(
    "http",
    Role.SOURCE,
    "Accepts POST requests; answers 200 once the broker has stored the events.",
    (
        Option(
            "receiver.url",
            Kind.URL,
            "http://0.0.0.0:8280/{app}/{stream}",
            doc="Address; another app can't have the same one.",
        ),
        Option("basic.auth.enabled", Kind.SWITCH, "false",
               doc="Require the login of the next two options."),
        secret("basic.auth.username", "User of that login."),
        secret("basic.auth.password", "Its password."),
        Option(
            "ssl.verify.client",
            choices=("require", "optional"),
            doc="With https: clients show a certificate of tls.ca.",
        ),
        *TLS,
        Option(
            "allow.origin",
            doc="Origins whose pages may post, comma-separated, * for all; none by default.",
        ),
        Option(
            "max.body", Kind.SIZE, "1 MB", doc="Largest body, unpacked; larger ones: 413."
        ),
        Option(
            "max.concurrent",
            Kind.NUMBER,
            "256",
            doc="Requests that wait for the broker; more are answered 429.",
        ),
        *ignored(
            "worker.count", "socket.idle.timeout", "request.size.validation.configuration",
            "request.size.validation.configurations", "header.validation.configuration",
            "header.validation.configurations", "server.bootstrap.configuration",
            "server.bootstrap.configurations", "ssl.protocol", "ssl.configuration",
            "ssl.configurations", "trace.log.enabled", "server.bootstrap.socket.timeout",
            "server.bootstrap.boss.group.size", "server.bootstrap.worker.group.size",
            "server.bootstrap.nodelay", "server.bootstrap.keepalive",
            "server.bootstrap.sendbuffersize", "server.bootstrap.recievebuffersize",
            "server.bootstrap.connect.timeout", "server.bootstrap.socket.reuse",
            "server.enable.session.creation", "parameters", "ciphers", "ssl.enabled.protocols",
        ),
        *SOURCE,
    ),
    "mesh.receiver.types.http_source:HttpSource",
    Guarantee.AT_LEAST_ONCE_WITH_KEY,
    "Exactly once for requests with an Idempotency-Key, within the channel's duplicate window.",
    ("*",),
    is_shared=True,
    address="receiver.url",
    objection=_server_objection,
)  # fmt: skip
_HTTP_SINK: Final = Spec(
    "http",
    Role.SINK,
    "Sends each payload in a request; Idempotency-Key is the event's position.",
    (
        Option("publisher.url", Kind.URL, is_required=True, place=OptionPlace.URL, doc="Address."),
        Option("method", default="POST", place=OptionPlace.METHOD, doc="Method of the request."),
        headers("Headers: 'name:value','name:value'."),
        Option("basic.auth.enabled", Kind.SWITCH,
               doc="False sends no user and password; by default they are sent if given."),
        secret("basic.auth.username", "User name for basic authentication."),
        secret("basic.auth.password", "Password for basic authentication."),
        Option("token.url", Kind.URL, doc="Where OAuth 2 gives a token; a new one after a 401."),
        secret("consumer.key", "Client of token.url, as its basic authentication."),
        secret("consumer.secret", "Its secret."),
        secret("body.consumer.key", "Client of token.url, in the body."),
        secret("body.consumer.secret", "Its secret."),
        secret("oauth.username", "User; the grant is password."),
        secret("oauth.password", "Password of the user."),
        secret("refresh.token", "The grant is refresh_token; without a user and it: client_"
                "credentials."),
        Option("oauth.scope", doc="Scope of the token."),
        Option("proxy.host", doc="Proxy of the requests."),
        Option("proxy.port", Kind.NUMBER, "8080", doc="Its port."),
        secret("proxy.username", "User name at the proxy."),
        secret("proxy.password", "Password at the proxy."),
        Option("socket.idle.timeout", Kind.DURATION, "6000", doc="Time limit of a request."),
        Option(
            "max.concurrent",
            Kind.NUMBER,
            "1",
            doc="Requests at a time; more than 1 gives up the order of events.",
        ),
        Option("ssl.verification.disabled", Kind.SWITCH, "false", doc="Accept any certificate."),
        Option("hostname.verification.enabled", Kind.SWITCH, "true",
               doc="False accepts a certificate of another host."),
        *TLS,
        *ignored(
            "chunk.disabled", "ssl.protocol", "ssl.configuration", "ssl.configurations",
            "client.bootstrap.configuration", "client.bootstrap.configurations",
            "max.pool.active.connections", "min.pool.idle.connections",
            "max.pool.idle.connections", "max.wait.time", "exhausted.action",
            "min.evictable.idle.time", "time.between.eviction.runs", "test.on.borrow",
            "test.while.idle", "executor.service.threads", "client.threadpool.configuration",
            "client.threadpool.configurations", "client.bootstrap.nodelay",
            "client.bootstrap.keepalive", "client.bootstrap.sendbuffersize",
            "client.bootstrap.recievebuffersize", "client.bootstrap.connect.timeout",
            "client.bootstrap.socket.reuse", "client.bootstrap.socket.timeout",
            "client.connection.pool.count", "client.min.eviction.idle.time",
            "client.enable.session.creation", "parameters",
            "ciphers", "ssl.enabled.protocols",
        ),
        *noted(
            "requests are sent one after the other; max.concurrent sends several at a time",
            "blocking.io",
        ),
        *noted("a redirect is a refusal: write the address that it leads to", "follow.redirect",
               "max.redirect.count"),
        *SINK,
    ),
    "mesh.receiver.types.http_sink:HttpSink",
    Guarantee.AT_LEAST_ONCE_WITH_KEY,
    "Exactly once where the receiver drops repeats of an Idempotency-Key, as our http source does.",
    objection=_client_objection,
)  # fmt: skip
#: Options of NATS Streaming, whose servers JetStream has replaced.
_STREAMING: Final = (
    "cluster.id", "streaming.cluster.id", "server.id", "durable.name", "subscription.sequence",
    "ack.wait",
)  # fmt: skip


#: A subject to publish to.
_SUBJECT: Final = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")


def _subject_objection(options: Mapping[str, str]) -> str | None:
    subject = TEMPLATE.sub("x", options.get("destination") or "x")
    if _SUBJECT.fullmatch(subject):
        return None
    return f'destination is a subject such as orders.new, without wildcards, and not "{subject}"'


_NATS_SINK: Final = Spec(
    "nats",
    Role.SINK,
    "Publishes each payload to a subject; waits for the ack if a stream stores it.",
    (
        Option("destination", is_required=True, place=OptionPlace.SUBJECT, doc="The subject."),
        Option(
            "server.urls",
            default="nats://localhost:4222",
            aliases=("bootstrap.servers",),
            doc="Servers, comma-separated.",
        ),
        headers("Headers: 'name:value'."),
        Option("acks", Kind.SWITCH, "true", doc="A stream stores the subject: wait for its ack."),
        *_NATS_LOGIN,
        *ignored("client.id", "optional.configuration"),
        *noted(
            "NATS Streaming has ended, and JetStream serves: a stream that has the subject keeps "
            "the messages",
            *_STREAMING,
        ),
        *SINK,
    ),
    "mesh.receiver.types.nats_sink:NatsSink",
    Guarantee.AT_LEAST_ONCE_WITH_KEY,
    "Exactly once within the duplicate window of the stream that stores the subject.",
    objection=_subject_objection,
)
_NATS_SOURCE: Final = Spec(
    "nats",
    Role.SOURCE,
    "Reads a JetStream stream by sequence, or the messages of core subjects.",
    (
        Option("stream", doc="The JetStream stream; without it core subjects are read."),
        Option(
            "destination",
            doc="Subjects to read, with wildcards; all of a stream's by default. Core subjects "
            "need it.",
        ),
        Option(
            "server.urls",
            aliases=("bootstrap.servers",),
            doc="Servers, comma-separated. Without it a stream is the mesh's own servers', and "
            "core subjects are those of nats://localhost:4222.",
        ),
        Option("queue.group.name", doc="Of core subjects: one of its subscribers gets a message."),
        *_NATS_LOGIN,
        *ignored("client.id", "optional.configuration"),
        *noted(
            "NATS Streaming has ended, and JetStream serves: name its stream by the option stream, "
            "or messages that arrive while the source is away are lost",
            *_STREAMING,
        ),
        *SOURCE,
    ),
    "mesh.receiver.types.nats_source:NatsSource",
    Guarantee.EXACTLY_ONCE,
    "With stream; core subjects: at most once, since NATS does not keep their messages.",
    ("*",),
)

_SINK_ID: Final = Option("sink.id", is_required=True, doc="Joins calls and their answers.")
_SOURCE_ID: Final = Option("source.id", is_required=True, doc="Name of the service in the app.")
_HTTP_SERVICE: Final = replace(
    _HTTP_SOURCE,
    name="http-service",
    doc="Accepts POST requests; an event of the sink http-service-response answers each.",
    options=(
        _SOURCE_ID,
        Option("connection.timeout", Kind.DURATION, "120000", doc="Then it answers 504."),
        *_HTTP_SOURCE.options,
    ),
    implementation="mesh.receiver.types.http_source:HttpServiceSource",
    guarantee=Guarantee.AT_LEAST_ONCE,
    condition="trp:messageId is the id of the request.",
    is_shared=True,
)
_HTTP_SERVICE_RESPONSE: Final = Spec(
    "http-service-response",
    Role.SINK,
    "Answers a request of the source http-service, on whichever worker it waits.",
    (
        _SOURCE_ID,
        Option("message.id", is_required=True, place=OptionPlace.SUBJECT, doc="Id: trp:messageId."),
        headers("Headers: 'name:value'."),
        *SINK,
    ),
    "mesh.receiver.types.http_source:HttpServiceResponse",
    Guarantee.AT_MOST_ONCE,
    "A late answer is recorded in the error stream.",
)


def _call_objection(options: Mapping[str, str]) -> str | None:
    if _is_on(options, "downloading.enabled") and not options.get("download.path"):
        return "downloading.enabled needs download.path"
    return _client_objection(options)


_HTTP_CALL: Final = replace(
    _HTTP_SINK,
    name="http-call",
    doc="Sends each payload in a request; the source http-call-response gets the answer.",
    options=(
        _SINK_ID,
        Option("downloading.enabled", Kind.SWITCH, "false",
               doc="Write the body of an answer 2xx to a file; the payload is then its path."),
        Option("download.path", place=OptionPlace.PATH, doc="Path of that file."),
        *_HTTP_SINK.options,
    ),
    implementation="mesh.receiver.types.http_sink:HttpCall",
    objection=_call_objection,
)  # fmt: skip
_HTTP_CALL_RESPONSE: Final = Spec(
    "http-call-response",
    Role.SOURCE,
    "Answers that the sink http-call gets; trp:NAME is an attribute of the request's event.",
    (
        _SINK_ID,
        Option("http.status.code", default="200", doc="Regular expression of the statuses."),
        *ignored("allow.streaming.responses"),
        *SOURCE,
    ),
    "mesh.receiver.types.http_sink:HttpCallResponse",
    Guarantee.AT_LEAST_ONCE_WITH_KEY,
    "An answer is stored once within the channel's duplicate window.",
    ("*",),
)

_IN_MEMORY: Final = (
    Spec(
        "inMemory",
        Role.SOURCE,
        "Events of a topic, from this app or another one.",
        (Option("topic", default="input inMemory source", doc="Any text."), *SOURCE),
        "mesh.receiver.types.in_memory:InMemorySource",
        Guarantee.EXACTLY_ONCE,
        "It begins with the events after its first start.",
        ("*",),
    ),
    Spec(
        "inMemory",
        Role.SINK,
        "Publishes each payload to a topic, which keeps it as channels do.",
        (Option("topic", is_required=True, place=OptionPlace.TEXT, doc="Any text."), *SINK),
        "mesh.receiver.types.in_memory:InMemorySink",
        Guarantee.AT_LEAST_ONCE_WITH_KEY,
        "Exactly once within the duplicate window of the topics.",
    ),
)

_HISTORY: Final = Spec(
    "history",
    Role.SOURCE,
    "Past events that a new app has seen when it starts; see docs/time.md.",
    (
        Option(
            "path",
            is_required=True,
            doc="Files of the manager's machine, a table, or a stream: as 'mesh backfill' takes "
            "them.",
        ),
        Option(
            "time",
            doc="Column with the times of events; of a stream, by default, those of its messages.",
        ),
        Option(
            "until",
            doc="The last sequence of the live stream that they include, or a time before which "
            "they are read; by default they end before its first message.",
        ),
    ),
    guarantee=Guarantee.EXACTLY_ONCE,
    condition="Read once, by the deploy of a new app; an edit of the app reads nothing.",
)

SPECS: Final = (
    *_IN_MEMORY,
    _HTTP_SERVICE,
    replace(_HTTP_SERVICE, name="http-request"),
    _HTTP_SERVICE_RESPONSE,
    replace(_HTTP_SERVICE_RESPONSE, name="http-response"),
    _HTTP_CALL,
    replace(_HTTP_CALL, name="http-request"),
    _HTTP_CALL_RESPONSE,
    replace(_HTTP_CALL_RESPONSE, name="http-response"),
    _HTTP_SOURCE,
    _HTTP_SINK,
    *files.SPECS,
    _NATS_SOURCE,
    _HISTORY,
    _NATS_SINK,
    Spec(
        "log",
        Role.SINK,
        "Writes each payload to the log of the connector host.",
        (
            Option(
                "priority",
                default="INFO",
                choices=("INFO", "DEBUG", "WARN", "FATAL", "ERROR", "OFF", "TRACE"),
                doc="Level of the log line.",
            ),
            Option("prefix", doc="Begins the line; default {app} : {stream}."),
            *SINK,
        ),
        "mesh.receiver.types.log_sink:LogSink",
    ),
    Spec(
        "roundRobin",
        Role.DISTRIBUTION,
        "Each batch goes to the next destination that answers.",
    ),
    Spec("broadcast", Role.DISTRIBUTION, "Each destination gets every event, in its own time."),
    Spec(
        "partitioned",
        Role.DISTRIBUTION,
        "Events with one key go to one destination, by Java's hash of the key's text.",
        (Option("partitionKey", is_required=True, is_attribute=True, doc="An attribute."),),
    ),
)
