"""A collector of OTLP over HTTP, which decodes what it gets and keeps the spans."""

from __future__ import annotations

import contextlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Collector(ThreadingHTTPServer):
    """Keeps the spans that it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Any] = []
        self.changed = Condition()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"

    def until(self, wanted: Callable[[list[Any]], bool]) -> list[Any]:
        """The spans, as soon as they are those."""
        with self.changed:
            assert self.changed.wait_for(lambda: wanted(self.spans), 30), self.spans
            return list(self.spans)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        asked = ExportTraceServiceRequest.FromString(data)
        assert isinstance(self.server, Collector)
        with self.server.changed:
            self.server.spans += [
                span
                for resource in asked.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]
            self.server.changed.notify_all()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """A collector in a thread."""
    server = Collector()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def attributes(span: Any) -> dict[str, str]:
    """The attributes that are texts."""
    return {one.key: one.value.string_value for one in span.attributes}
