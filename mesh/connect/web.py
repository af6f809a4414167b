"""Declarations for browsers and services: SSE, WebSocket, gRPC, Prometheus, email, S3."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mesh.connect import grpc_specs
from mesh.connect.parts import SINK, SOURCE, TLS, ignored, noted, of_event, required, secret, switch
from mesh.connect.places import OptionPlace
from mesh.connect.spec import Guarantee, Kind, Option, Role, Spec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.connect.contract import Options


_ORIGIN: Final = Option(
    "allow.origin",
    doc="Origins whose pages may connect, comma-separated, * for all; none by default.",
)


_WEBSOCKET: Final = (
    Option("url", Kind.URL, is_required=True, doc="ws://host/path or wss://host/path."),
    Option("sub.protocol", doc="Subprotocols, comma-separated."),
    Option("headers", Kind.PAIRS, is_secret=True, doc="Headers: 'name:value'."),
    *TLS,
    *ignored("idle.timeout"),
)


_WEBSOCKET_SERVER: Final = (
    Option("host", default="127.0.0.1", doc="Address to bind."),
    Option("port", Kind.NUMBER, is_required=True, doc="Port to bind."),
    Option("sub.protocol", doc="Subprotocols, comma-separated."),
    _ORIGIN,
    switch("tls.enabled", "false", "Serve wss with tls.cert or tls.store."),
    *TLS,
    *ignored("idle.timeout"),
)


_KEYS: Final = ("subject", "from", "to", "cc", "bcc")
#: Texts that a quoted string of IMAP has.
_QUOTED: Final = re.compile(r"[\x20-\x7e]*\Z")


def quoted(text: str) -> str:
    """A text as a quoted string of IMAP; ValueError for one that is not ASCII."""
    if not _QUOTED.match(text):
        raise ValueError(f'has "{text[:40]}", and IMAP takes ASCII there')
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def criteria_of(terms: str | None) -> str:
    """The criteria of IMAP of a search term, such as ``subject:Stock, from:a@x``.

    Raises:
        ValueError: it is no search term.
    """
    criteria = []
    for term in (terms or "").replace("'", "").split(","):
        key, colon, value = (part.strip() for part in term.partition(":"))
        if not term.strip():
            continue
        if key.lower() not in _KEYS or not colon or not value:
            raise ValueError(f'has "{term.strip()[:40]}" instead of one of {", ".join(_KEYS)}:text')
        criteria.append(f"{key.upper()} {quoted(value)}")
    return " ".join(criteria)


def objection(options: Options) -> str | None:
    """The reason against options as they are written; None if they are valid."""
    if str(options.get("store") or "imap").lower() != "imap":
        return "store is imap: POP3 has no place in a folder to continue from"
    action = str(options.get("action.after.processed") or "").upper()
    if action == "MOVE" and not options.get("folder.to.move"):
        return "action.after.processed='MOVE' needs folder.to.move"
    for name, check in (("search.term", criteria_of), ("folder", quoted),
                        ("folder.to.move", quoted)):  # fmt: skip
        try:
            check(str(options.get(name) or ""))
        except ValueError as error:
            return f"{name} {error}"
    return None


def _metric_objection(options: Mapping[str, str]) -> str | None:
    is_gauge = options.get("metric.type", "").lower() == "gauge"
    return None if is_gauge or "gauge.operation" not in options else "gauge.operation is of a gauge"


def _syslog_objection(options: Mapping[str, str]) -> str | None:
    is_tls = options.get("protocol", "").lower() == "tls"
    if is_tls and not (options.get("tls.cert") or options.get("tls.store")):
        return "tls needs a certificate: tls.cert and tls.key, or tls.store"
    return None


def _mail_objection(options: Mapping[str, str]) -> str | None:
    if options.get("address") or "@" in options.get("username", ""):
        return None
    return "it needs address, or a username that is an address"


SPECS: Final = (
    *grpc_specs.SPECS,
    Spec(
        "tcp",
        Role.SOURCE,
        "Receives the messages of the original's TCP protocol, which its sink tcp sends.",
        (
            Option("context", doc="Channel of the messages, APP/STREAM by default: sources with"
                   " others may share host and port."),
            Option("host", default="0.0.0.0", doc="Address to bind; a system parameter of the"
                   " original."),
            Option("port", Kind.NUMBER, "9892", doc="Port to bind; a system parameter there."),
            *ignored("receiver.threads", "worker.threads", "tcp.no.delay", "keep.alive"),
            *SOURCE,
        ),
        "mesh.receiver.types.tcp:TcpSource",
        Guarantee.AT_MOST_ONCE,
        "No message is acknowledged: what is on its way when the source stops is lost.",
    ),
    Spec(
        "tcp",
        Role.SINK,
        "Sends each payload as a message of the original's TCP protocol.",
        (
            Option("url", Kind.URL, is_required=True, doc="tcp://host:port/context."),
            *ignored("sync", "worker.threads", "tcp.no.delay", "keep.alive"),
            *SINK,
        ),
        "mesh.receiver.types.tcp:TcpSink",
        Guarantee.BEST_EFFORT,
        "No message is acknowledged: what is on its way when the connection breaks is lost, and the"
        " last ones come again after a kill of the sink.",
    ),
    Spec(
        "syslog",
        Role.SOURCE,
        "Receives messages of syslog (RFC 5424, RFC 3164): an event has the parts of a message.",
        (
            Option("protocol", default="udp", choices=("udp", "tcp", "tls"),
                   doc="udp; tcp with frames by size or by line; tls with tls.cert or tls.store."),
            Option("host", default="127.0.0.1", doc="Address to bind."),
            Option("port", Kind.NUMBER, is_required=True,
                   doc="Port to bind; programs send to 514, and by TLS to 6514."),
            Option("max.size", Kind.SIZE, "64 KB", doc="Largest message; a larger one is dropped."),
            Option("ssl.verify.client", choices=("require", "optional"),
                   doc="With tls: clients show a certificate of tls.ca."),
            *TLS,
            *SOURCE,
        ),
        "mesh.receiver.types.syslog:SyslogSource",
        Guarantee.AT_MOST_ONCE,
        "No message is acknowledged: what is on its way when the source stops is lost.",
        objection=_syslog_objection,
    ),
    Spec(
        "sse-server",
        Role.SINK,
        "Serves server-sent events: browsers listen to the stream with EventSource.",
        (
            Option(
                "server.url",
                Kind.URL,
                "http://0.0.0.0:8280/{app}/{stream}",
                doc="Address, http or https; another app can't have the same one.",
            ),
            _ORIGIN,
            *TLS,
            Option("kept.events", Kind.NUMBER, "1000",
                   doc="Events for listeners that come back with a Last-Event-ID."),
            *ignored("worker.count", "socket.idle.timeout", "trace.log.enabled"),
            *SINK,
        ),
        "mesh.receiver.types.listeners:SseServerSink",
        Guarantee.AT_MOST_ONCE,
        "A listener that comes back with its Last-Event-ID gets the events that are still kept, and"
        " none again. Without it the last ones come again after a kill of the sink.",
        address="server.url",
    ),
    Spec(
        "sse",
        Role.SOURCE,
        "Listens to the server-sent events of a server: the data of each is a payload.",
        (
            Option("event.source.url", Kind.URL, is_required=True, aliases=("receiver.url",),
                   doc="Address of the stream."),
            Option("method", default="GET", doc="Method of the request."),
            Option("headers", Kind.PAIRS, is_secret=True, doc="Headers: 'name:value'."),
            secret("basic.auth.username", "User name for basic authentication."),
            secret("basic.auth.password", "Its password."),
            *TLS,
            *ignored(
                "worker.count", "socket.idle.timeout", "client.bootstrap.configuration",
                "client.bootstrap.configurations", "max.pool.active.connections",
                "min.pool.idle.connections", "max.pool.idle.connections", "max.wait.time",
            ),
            *SOURCE,
        ),
        "mesh.receiver.types.sse_source:SseSource",
        Guarantee.EXACTLY_ONCE,
        "If each event has an id, and the server sends what follows the Last-Event-ID; otherwise"
        " what it sends while the source is away is lost.",
    ),
    Spec(
        "websocket-server",
        Role.SOURCE,
        "Serves a WebSocket: each message of a client is a payload.",
        (*_WEBSOCKET_SERVER, *SOURCE),
        "mesh.receiver.types.websocket:WebSocketServerSource",
        Guarantee.AT_MOST_ONCE,
        "No message is acknowledged: what is on its way when the source stops is lost.",
        extra="websocket",
        library="websockets",
    ),
    Spec(
        "websocket-server",
        Role.SINK,
        "Serves a WebSocket: each payload is a message to all that listen.",
        (*_WEBSOCKET_SERVER, *SINK),
        "mesh.receiver.types.listeners:WebSocketServerSink",
        Guarantee.BEST_EFFORT,
        "A listener gets no event twice in a connection. After a kill of the sink the last ones"
        " come again.",
        extra="websocket",
        library="websockets",
    ),
    Spec(
        "websocket",
        Role.SOURCE,
        "Receives the messages of a WebSocket server.",
        (*_WEBSOCKET, *SOURCE),
        "mesh.receiver.types.websocket:WebSocketSource",
        Guarantee.AT_MOST_ONCE,
        "What the server sends while the source is away is lost.",
        extra="websocket",
        library="websockets",
    ),
    Spec(
        "websocket",
        Role.SINK,
        "Sends each payload as a message to a WebSocket server.",
        (*_WEBSOCKET, *SINK),
        "mesh.receiver.types.websocket:WebSocketSink",
        Guarantee.AT_LEAST_ONCE,
        "A message has arrived once the server has answered the ping after it.",
        extra="websocket",
        library="websockets",
    ),
    Spec(
        "prometheus",
        Role.SOURCE,
        "Scrapes a target: an event for each sample of one metric, with its labels.",
        (
            Option("target.url", Kind.URL, is_required=True, doc="Address of the metrics."),
            Option("metric.name", doc="Metric; that of the stream's name by default."),
            Option("metric.type", is_required=True,
                   choices=("counter", "gauge", "histogram", "summary"), doc="Its type."),
            Option("scrape.interval", Kind.SECONDS, "60", doc="Interval of a scrape."),
            Option("scrape.timeout", Kind.SECONDS, "10", doc="Time limit of a request."),
            Option("headers", Kind.PAIRS, is_secret=True, doc="Headers: 'name:value'."),
            secret("username", "User name for basic authentication."),
            secret("password", "Its password."),
            Option("job", doc="Only samples with this label job."),
            Option("instance", doc="Only samples with this label instance."),
            Option("grouping.key", Kind.PAIRS, doc="Only samples with these labels."),
            *TLS,
            *ignored("scheme"),
            *SOURCE,
        ),
        "mesh.receiver.types.prometheus:PrometheusSource",
        Guarantee.AT_MOST_ONCE,
        "What a target showed between two scrapes, or while the source was away, is not seen.",
    ),
    Spec(
        "prometheus",
        Role.SINK,
        "Adds up the events as a metric, which Prometheus reads or a gateway gets.",
        (
            Option("metric.type", is_required=True,
                   choices=("counter", "gauge", "histogram", "summary"), doc="Type."),
            Option("gauge.operation", default="add", choices=("add", "set"),
                   doc="Of a gauge: add each value, as the reference engine does, or set it."),
            Option("metric.name", doc="Name; that of the stream by default."),
            Option("metric.help", doc="Text beside it."),
            Option("value.attribute", default="value", doc="Attribute with the value; the others"
                   " are labels."),
            Option("buckets", doc="Bounds of a histogram, comma-separated."),
            Option("publish.mode", default="server", choices=("server", "pushgateway"),
                   doc="Serve the metric, or push it."),
            Option("server.url", Kind.URL, "http://0.0.0.0:9080", doc="Address; path /metrics."),
            Option("push.url", Kind.URL, "http://localhost:9091", doc="Address of the gateway."),
            Option("push.operation", default="pushadd", choices=("push", "pushadd"),
                   doc="push replaces the metrics of the job."),
            Option("job", default="siddhiJob", doc="Job at the gateway."),
            Option("grouping.key", Kind.PAIRS, doc="Further labels at the gateway."),
            *ignored("quantiles", "quantile.error"),
            *SINK,
        ),
        "mesh.receiver.types.prometheus:PrometheusSink",
        Guarantee.EXACTLY_ONCE,
        "Totals are stored with the position. The mapper is keyvalue.",
        objection=_metric_objection,
    ),
    Spec(
        "email",
        Role.SOURCE,
        "Reads the texts of the messages of a folder of an IMAP server.",
        (
            required("username", "User of the login."),
            Option("password", is_required=True, is_secret=True, doc="Its password."),
            required("host", "IMAP server."),
            Option("port", Kind.NUMBER, "993", doc="Its port."),
            switch("ssl.enable", "true", "TLS from the start; else STARTTLS if it is offered."),
            Option("store", default="imap", doc="imap."),
            Option("folder", default="INBOX", doc="Folder."),
            Option("search.term", doc="Only messages with a text in a header: subject:Stock,"
                   " from:a@x; of subject, from, to, cc, bcc."),
            Option("polling.interval", Kind.SECONDS, "600", doc="Interval of a look."),
            Option("action.after.processed", default="NONE",
                   choices=("NONE", "SEEN", "FLAGGED", "ANSWERED", "DELETE", "MOVE"),
                   doc="Once the events of a message are stored."),
            Option("folder.to.move", doc="Folder to move to."),
            Option("content.type", default="text/plain", choices=("text/plain", "text/html"),
                   doc="Part of a message that is the payload."),
            *TLS,
            *SOURCE,
        ),
        "mesh.receiver.types.email_source:EmailSource",
        Guarantee.EXACTLY_ONCE,
        "By the UIDs of the folder; it begins with all messages that are there.",
        ("*",),
        objection=objection,
    ),
    Spec(
        "email",
        Role.SINK,
        "Sends each payload as an email.",
        (
            Option("address", doc="Address of the sender; the username by default."),
            Option("username", doc="User of the login; the address by default."),
            secret("password", "Password of the login."),
            required("host", "SMTP server."),
            Option("port", Kind.NUMBER, "465", doc="Its port."),
            switch("ssl.enable", "true", "TLS from the start; else STARTTLS if it is offered."),
            switch("auth", "true", "Log in."),
            of_event("subject", "Subject.", OptionPlace.LINE, is_required=True),
            Option("to", is_required=True, place=OptionPlace.ADDRESSES,
                   doc="Addresses, comma-separated; an {{attribute}} is one of them."),
            of_event("cc", "Addresses of copies.", OptionPlace.ADDRESSES),
            of_event("bcc", "Addresses of copies that others don't see.", OptionPlace.ADDRESSES),
            of_event("attachments", "Files, comma-separated.", OptionPlace.PATHS),
            Option("content.type", default="text/plain", place=OptionPlace.TEXT,
                   choices=("text/plain", "text/html"), doc="Kind of the text."),
            *TLS,
            *ignored("connection.pool.size"),
            *SINK,
        ),
        "mesh.receiver.types.email_sink:EmailSink",
        Guarantee.AT_LEAST_ONCE_WITH_KEY,
        "The Message-ID is the key.",
        objection=_mail_objection,
        extra="email",
        library="aiosmtplib",
    ),
    Spec(
        "s3",
        Role.SINK,
        "Stores each payload as an object of a bucket.",
        (
            required("bucket.name", "Bucket, which must exist."),
            Option("object.path", is_required=True, place=OptionPlace.PATH,
                   doc="Name of the object; one that ends in / gets the event's position."),
            secret("aws.access.key", "Access key; that of the node's environment by default."),
            secret("aws.secret.key", "Secret key."),
            Option("aws.region", default="us-east-1", doc="Region."),
            Option("endpoint", Kind.URL, doc="Address of another service than AWS."),
            Option("content.type", doc="By default that of the mapper."),
            Option("storage.class", default="standard", doc="Storage class."),
            *ignored("versioning.enabled", "node.id", "bucket.acl", "credential.provider",
                     "credential.provider.class"),
            *noted("each event is an object of its own; a sink file gathers events in files",
                   "flush.size", "rotate.interval.ms", "rotate.scheduled.interval.ms"),
            *SINK,
        ),
        "mesh.receiver.types.s3_sink:S3Sink",
        Guarantee.EXACTLY_ONCE,
        "A repeat writes the same object with the same content.",
        extra="s3",
        library="aiobotocore",
    ),
)  # fmt: skip
