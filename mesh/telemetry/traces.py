"""Spans of a process by OpenTelemetry, sent by OTLP over HTTP; off by default.

    messages with traceparent ──▶ span of the run ──▶ span of the publishing ──▶ messages
                          └ links, 128 at most                     └ traceparent of that span

    messages with traceparent ──▶ span of the sink's write ──▶ requests, with its traceparent

Settings reach the processes of Spark and of connectors as their environment.  Without an endpoint
nothing of OpenTelemetry is imported.  The collector is never waited for.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import mesh
from mesh.errors import MeshError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mesh.settings import TraceSettings

ENDPOINT_VARIABLE: Final = "MESH_TRACES_ENDPOINT"
RATIO_VARIABLE: Final = "MESH_TRACES_SAMPLE_RATIO"
NAME_VARIABLE: Final = "MESH_TRACES_INSTANCE"
#: Time limit of a request to the collector, and of the last one when the process ends, seconds.
EXPORT_S: Final = 3.0
#: Time that a span waits for others, seconds.
DELAY_S: Final = 1.0
#: Messages that a span refers to.
LINKS_MAX: Final = 128
HEADER: Final = "traceparent"
#: ``traceparent`` of the span around what this task sends; empty for none.
_sending: Final = ContextVar("mesh_traceparent", default="")
_PARENT: Final = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def are_on() -> bool:
    """Whether this process sends spans."""
    return bool(os.environ.get(ENDPOINT_VARIABLE))


def is_parent(text: str) -> bool:
    """Whether a text from outside is a ``traceparent``."""
    return _PARENT.fullmatch(text) is not None


def outgoing(headers: Iterable[tuple[str, str]] = ()) -> tuple[tuple[str, str], ...]:
    """The header to add to ``headers`` of what a sink sends: the ``traceparent`` of its span.

    Empty without a trace, and if ``headers`` has one already.  Tasks and threads that the sink
    starts by ``asyncio`` have the same one.
    """
    parent = _sending.get()
    if not parent or any(name.lower() == HEADER for name, _ in headers):
        return ()
    return ((HEADER, parent),)


def variables(settings: TraceSettings, name: str) -> dict[str, str]:
    """The environment of the processes of worker ``name``; empty without an endpoint."""
    if not settings.endpoint:
        return {}
    return {
        ENDPOINT_VARIABLE: settings.endpoint,
        RATIO_VARIABLE: str(settings.sample_ratio),
        NAME_VARIABLE: name,
    }


def provider_of(endpoint: str, ratio: float, service: str, name: str) -> Any:
    """The provider of tracers of a process; MESH-C115 without the packages of the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise MeshError(
            "MESH-C115",
            "traces.endpoint is set, and OpenTelemetry is not installed",
            detail=f"{error}.",
            hint="pip install 'nats-event-mesh[traces]', or leave traces.endpoint empty.",
        ) from error
    parent = {"service.name": service, "service.instance.id": name}
    resource = Resource.create({**parent, "service.version": mesh.__version__})
    sampler = ParentBased(TraceIdRatioBased(ratio))
    provider = TracerProvider(resource=resource, sampler=sampler, shutdown_on_exit=False)
    provider.add_span_processor(
        BatchSpanProcessor(
            OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_S),
            schedule_delay_millis=DELAY_S * 1000,
            export_timeout_millis=EXPORT_S * 1000,
        )
    )
    return provider


class Trace:
    """The spans of one run: of its messages, and of the publishing of its output."""

    def __init__(self, tracer: Any, name: str, attributes: dict[str, Any]) -> None:
        self._tracer = tracer
        self._name = name
        self._attributes = {k.replace("_", "."): v for k, v in attributes.items()}
        self._began_ns = time.time_ns()
        self._parents: dict[str, Any] = {}
        self._span: Any = None
        self._publishing: Any = None

    def look(self, parents: Iterable[str | None]) -> None:
        """Refer to messages by their ``traceparent``; what is none is left out."""
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        read = TraceContextTextMapPropagator()
        for parent in parents:
            if parent is None or parent in self._parents or len(self._parents) >= LINKS_MAX:
                continue
            context = trace.get_current_span(read.extract({HEADER: parent})).get_span_context()
            if context.is_valid:
                self._parents[parent] = context
                if self._span is not None:
                    self._span.add_link(context)

    def _begin(self, *, sends: bool = False) -> Any:
        """The span of the run, in the trace of its first message, with links to all.

        The first call tells whether the run itself ``sends`` the messages, as a sink does.
        """
        from opentelemetry import trace

        if self._span is None:
            contexts = list(self._parents.values())
            first = None
            if contexts:
                first = trace.set_span_in_context(trace.NonRecordingSpan(contexts[0]))
            self._span = self._tracer.start_span(
                self._name,
                first,
                kind=trace.SpanKind.PRODUCER if sends else trace.SpanKind.CONSUMER,
                attributes=self._attributes,
                links=[trace.Link(one) for one in contexts],
                start_time=self._began_ns,
            )
        return self._span

    def header_line(self) -> bytes:
        """The header line of the output; empty as ``publishing_parent``."""
        parent = self.publishing_parent()
        return f"{HEADER}: {parent}\r\n".encode() if parent else b""

    def publishing_parent(self) -> str:
        """The ``traceparent`` of the output, which belongs to the span of its publishing.

        Empty for messages without ``traceparent`` of which no trace is made.
        """
        from opentelemetry import trace

        if self._publishing is None:
            within = trace.set_span_in_context(self._begin())
            name = self._name.replace("process", "publish", 1)
            self._publishing = self._tracer.start_span(
                name, within, kind=trace.SpanKind.PRODUCER, attributes=self._attributes
            )
        return self._parent_text(self._publishing)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Let ``outgoing`` give the ``traceparent`` of this run's own span to the body."""
        token = _sending.set(self._parent_text(self._begin(sends=True)))
        try:
            yield
        finally:
            _sending.reset(token)

    def _parent_text(self, span: Any) -> str:
        """The ``traceparent`` of a span; empty if its trace begins here and is not sampled."""
        context = span.get_span_context()
        if not self._parents and not span.is_recording():
            return ""
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"

    def end(self, error: BaseException | None = None, **attributes: Any) -> None:
        """End the spans; an error marks that of the run as failed."""
        from opentelemetry.trace import Status, StatusCode

        span = self._begin()
        span.set_attributes({k.replace("_", "."): v for k, v in attributes.items()})
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"[:500]))
        for one in (self._publishing, span):
            if one is not None:
                one.end()


def begin(name: str, **attributes: Any) -> Trace | None:
    """The spans of a run that begins now; None if this process sends none.

    Args:
        name: like ``process GROUP``.
        attributes: with ``_`` in the place of ``.``.
    """
    if not are_on():
        return None
    return Trace(_tracer(os.getpid()), name, {"messaging_system": "nats", **attributes})


def flush() -> None:
    """Send what is queued, in ``EXPORT_S``, when the process ends."""
    if os.environ.get(ENDPOINT_VARIABLE) and _provider.cache_info().currsize:
        _provider(os.getpid()).force_flush(int(EXPORT_S * 1000))


def close() -> None:
    """End the sending of spans; another trace begins it again."""
    if _provider.cache_info().currsize:
        _provider(os.getpid()).shutdown()
    _provider.cache_clear()
    _tracer.cache_clear()


@lru_cache(maxsize=1)
def _provider(pid: int) -> Any:
    # By process: a forked one has no thread that sends.
    environment = os.environ
    return provider_of(
        environment[ENDPOINT_VARIABLE],
        float(environment.get(RATIO_VARIABLE, "1.0")),
        "mesh-worker",
        environment.get(NAME_VARIABLE, ""),
    )


@lru_cache(maxsize=1)
def _tracer(pid: int) -> Any:
    return _provider(pid).get_tracer("mesh")
