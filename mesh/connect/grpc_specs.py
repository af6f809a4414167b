"""Declarations of the sources and sinks of gRPC, and the place that their URLs name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from mesh.connect.parts import SINK, SOURCE, TLS, headers, ignored, noted, of_event, switch
from mesh.connect.places import OptionPlace
from mesh.connect.spec import Guarantee, Kind, Option, Role, Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Service of the original, whose messages are ``Event``: a text and headers.
EVENT_SERVICE: Final = "EventService"
#: Its methods, without and with an answer.
CONSUME: Final = "consume"
PROCESS: Final = "process"


class Method(NamedTuple):
    """A method of a service at an address."""

    host: str
    port: int
    #: Full name of the service, with its package.
    service: str
    name: str

    @property
    def path(self) -> str:
        """Its name on the wire."""
        return f"/{self.service}/{self.name}"

    @property
    def is_of_events(self) -> bool:
        """Whether it is of the original's own service."""
        return self.service.rpartition(".")[2] == EVENT_SERVICE


def method_of(url: str, usual: str) -> Method:
    """The method that a URL names; ``usual``: that of ``EventService`` if it names none.

    Raises:
        ValueError: it names no method, with the reason.
    """
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    names = parts.path.removeprefix("/").removesuffix("/").split("/")
    if names[-1].rpartition(".")[2] == EVENT_SERVICE and len(names) == 1:
        names.append(usual)
    if parts.scheme != "grpc" or not host or port is None or len(names) != 2 or not all(names):
        raise ValueError(f"{url} is not of the form grpc://host:port/package.Service/method")
    return Method(host, port, *names)


def _objection(option: str) -> Callable[[Mapping[str, str]], str | None]:
    """The reason against a URL; one with a secret is read where it runs."""

    def objection(options: Mapping[str, str]) -> str | None:
        url = options.get(option, "")
        if not url or "${" in url:
            return None
        try:
            method_of(url, CONSUME)
        except ValueError as error:
            return str(error)
        return None

    return objection


_ENVELOPE: Final = Option(
    "event.envelope",
    Kind.SWITCH,
    doc="Payloads are in messages Event (payload, headers); by default for a service of the name "
    "EventService. Those of other services are the messages themselves: use the mapper protobuf.",
)
_TLS: Final = (
    switch("enable.ssl", "false", "TLS; also by tls.ca, tls.cert, tls.store or tls.truststore."),
    *TLS,
)
_SIZES: Final = (
    Option("max.inbound.message.size", Kind.SIZE, "4194304", doc="Largest message."),
    Option("max.inbound.metadata.size", Kind.SIZE, "8192", doc="Largest metadata of a call."),
)
_SOURCE: Final = (
    Option(
        "receiver.url",
        Kind.URL,
        is_required=True,
        doc="grpc://host:port/package.Service/method; other methods may share host and port.",
    ),
    _ENVELOPE,
    *_TLS,
    switch("mutual.auth.enabled", "false", "Clients show a certificate of tls.ca."),
    *_SIZES,
    Option("server.shutdown.waiting.time", Kind.SECONDS, "2",
           doc="Time for calls under way when the source stops."),
    Option("max.concurrent", Kind.NUMBER, "256",
           doc="Events that wait for the broker; a call beyond them is answered UNAVAILABLE."),
    *ignored("threadpool.size", "threadpool.buffer.size"),
    *SOURCE,
)  # fmt: skip
_SINK: Final = (
    Option("publisher.url", Kind.URL, is_required=True,
           doc="grpc://host:port/package.Service/method."),
    headers("Headers of the Event, 'name:value','name:value'; of other services metadata."),
    Option("sequence", doc="Header sequence: the one of a WSO2 integrator that handles events."),
    of_event("metadata", "Metadata of the call: 'name:value'.", OptionPlace.HEADERS, Kind.PAIRS),
    _ENVELOPE,
    *_TLS,
    *_SIZES,
    Option("call.timeout", Kind.DURATION, "10000", doc="Deadline of a call."),
    Option("max.concurrent", Kind.NUMBER, "1",
           doc="Calls at a time; more than 1 gives up the order of events."),
    Option("keep.alive.time", Kind.SECONDS, doc="Interval of pings; none by default."),
    Option("keep.alive.timeout", Kind.SECONDS, "20", doc="Time for the answer to a ping."),
    switch("keep.alive.without.calls", "false", "Pings between calls."),
    *ignored("mutual.auth.enabled", "idle.timeout", "channel.termination.waiting.time"),
    *noted(
        "the sink itself tries again, see on.error",
        "enable.retry", "max.retry.attempts", "retry.buffer.size",
    ),
    *SINK,
)  # fmt: skip
_SOURCE_ID: Final = Option("source.id", is_required=True, doc="Name of the service in the app.")
_SINK_ID: Final = Option("sink.id", is_required=True, doc="Joins calls and their answers.")
_CODES: Final = (
    "Again after UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, ABORTED, CANCELLED, UNKNOWN, "
    "INTERNAL and DATA_LOSS; any other status refuses the event. "
)

SPECS: Final = (
    Spec(
        "grpc",
        Role.SOURCE,
        "Serves a method of gRPC, with one message or a stream of them; answers an empty message"
        " once the broker has stored the events.",
        _SOURCE,
        "mesh.receiver.types.grpc_source:GrpcSource",
        Guarantee.AT_LEAST_ONCE_WITH_KEY,
        "Exactly once for calls with the metadata idempotency-key, within the channel's duplicate"
        " window.",
        ("*",),
        is_shared=True,
        address="receiver.url",
        objection=_objection("receiver.url"),
        extra="grpc",
        library="grpc",
    ),
    Spec(
        "grpc-service",
        Role.SOURCE,
        "Serves a method of gRPC; an event of the sink grpc-service-response answers each call.",
        (
            _SOURCE_ID,
            Option("service.timeout", Kind.DURATION, "10000",
                   doc="Then the answer is DEADLINE_EXCEEDED."),
            *_SOURCE,
        ),
        "mesh.receiver.types.grpc_source:GrpcServiceSource",
        Guarantee.AT_LEAST_ONCE,
        "trp:message.id is the id of the call.",
        ("*",),
        is_shared=True,
        address="receiver.url",
        objection=_objection("receiver.url"),
        extra="grpc",
        library="grpc",
    ),
    Spec(
        "grpc-service-response",
        Role.SINK,
        "Answers a call of the source grpc-service, on whichever worker it waits.",
        (
            _SOURCE_ID,
            Option("message.id", is_required=True, place=OptionPlace.SUBJECT,
                   doc="Id: trp:message.id."),
            headers("Headers of the Event: 'name:value'; of other services metadata."),
            *SINK,
        ),
        "mesh.receiver.types.grpc_sink:GrpcServiceResponse",
        Guarantee.AT_MOST_ONCE,
        "A late answer is recorded in the error stream.",
    ),
    Spec(
        "grpc",
        Role.SINK,
        "Calls a method of gRPC with each payload; the metadata idempotency-key is the event's"
        " position.",
        _SINK,
        "mesh.receiver.types.grpc_sink:GrpcSink",
        Guarantee.AT_LEAST_ONCE_WITH_KEY,
        f"{_CODES}Exactly once where the service drops repeats of an idempotency-key, as our source"
        " grpc does.",
        objection=_objection("publisher.url"),
        extra="grpc",
        library="grpc",
    ),
    Spec(
        "grpc-call",
        Role.SINK,
        "Calls a method of gRPC with each payload; the source grpc-call-response gets the answer.",
        (_SINK_ID, *_SINK),
        "mesh.receiver.types.grpc_sink:GrpcCall",
        Guarantee.AT_LEAST_ONCE_WITH_KEY,
        f"{_CODES}A call is repeated with its key until the source has stored the answer.",
        objection=_objection("publisher.url"),
        extra="grpc",
        library="grpc",
    ),
    Spec(
        "grpc-call-response",
        Role.SOURCE,
        "Answers that the sink grpc-call gets; trp:NAME is an attribute of the call's event, a"
        " header of the answer, or its metadata.",
        (_SINK_ID, *SOURCE),
        "mesh.receiver.types.calls:CallResponse",
        Guarantee.AT_LEAST_ONCE_WITH_KEY,
        "An answer is stored once within the channel's duplicate window.",
        ("*",),
    ),
)  # fmt: skip
