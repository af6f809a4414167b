"""Spans of a manager by OpenTelemetry, sent by OTLP over HTTP; off by default.

    request with traceparent ──▶ span of the call ──┐
    decision of the leader ────▶ span of the action ├──▶ queue ──▶ collector (traces.endpoint)

Without ``traces.endpoint`` nothing of OpenTelemetry is imported, and a span is a null context.  The
collector is never waited for: spans that it does not take are dropped.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from mesh.telemetry.traces import provider_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from mesh.settings import TraceSettings


class Tracer:
    """Makes no spans; the base of the one that does."""

    def span(
        self, name: str, parent: Mapping[str, str] | None = None, **attributes: Any
    ) -> AbstractContextManager[None]:
        """A span around the body; an error of the body marks it as failed.

        Args:
            name: of the span, without values of users.
            parent: headers with a ``traceparent``, if the span belongs to another trace.
            attributes: with ``_`` in the place of ``.``; None for an unknown one.
        """
        return nullcontext()

    def close(self) -> None:
        """Send what is queued, in ``EXPORT_S``."""


class OtlpTracer(Tracer):
    """Sends spans to a collector."""

    def __init__(self, settings: TraceSettings, name: str) -> None:
        """A tracer of process ``name``; MESH-C115 without the packages of the extra."""
        self._provider = provider_of(settings.endpoint, settings.sample_ratio, "mesh-manager", name)
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = self._provider.get_tracer("mesh")
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def span(
        self, name: str, parent: Mapping[str, str] | None = None, **attributes: Any
    ) -> Iterator[None]:
        """See ``Tracer.span``."""
        context = self._propagator.extract(dict(parent)) if parent is not None else None
        tags = {
            key.replace("_", "."): value for key, value in attributes.items() if value is not None
        }
        with self._tracer.start_as_current_span(name, context, attributes=tags):
            yield

    def close(self) -> None:
        """See ``Tracer.close``."""
        self._provider.shutdown()


def open_tracer(settings: TraceSettings, name: str) -> Tracer:
    """The tracer that the settings ask for."""
    return OtlpTracer(settings, name) if settings.endpoint else Tracer()
