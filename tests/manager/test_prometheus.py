"""Histories of Prometheus."""

from __future__ import annotations

import asyncio
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from mesh.errors import MeshError
from mesh.manager.prometheus import expressions, query_range
from mesh.manager.telemetry import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator


class FakePrometheus(BaseHTTPRequestHandler):
    """Answers each query with one series; counts them."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self.asked.append(query["query"][0])
        start = int(query["start"][0])
        result = [{"metric": {}, "values": [[start, "1.5"], [start + 60, "NaN"]]}]
        body = json.dumps({"status": "success", "data": {"result": result}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def prometheus_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakePrometheus)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_longer_histories_are_those_of_prometheus(prometheus_url: str) -> None:
    found = asyncio.run(query_range(prometheus_url, "app", "Shop", 600, 780, 60))
    assert found["events_in"] == [1.5, None, None]
    assert set(found) == set(FIELDS["app"])
    assert 'sum(rate(mesh_instance_events_in_total{app="Shop"}[60s]))' in FakePrometheus.asked
    group = expressions("group", 'Shop/a"b', 10)
    assert group["backlog"] == r'sum(mesh_instance_backlog_messages{app="Shop",group="a\"b"})'
    assert set(expressions("node", "worker/w1", 10)) == set(FIELDS["node"])
    with pytest.raises(MeshError, match="MESH-A502"):
        asyncio.run(query_range("http://127.0.0.1:1", "app", "Shop", 600, 780, 60))
