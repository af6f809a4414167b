"""Spans of calls and decisions reach a collector by OTLP over HTTP; off, nothing is loaded."""

from __future__ import annotations

import builtins
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mesh.errors import MeshError
from mesh.manager.manager import running
from mesh.manager.tracing import OtlpTracer, Tracer, open_tracer
from mesh.settings import ManagerSettings, NatsSettings, Settings, TraceSettings
from tests.support.api import OPEN, FakeService, served
from tests.support.collector import PARENT, TRACE, attributes, collecting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mesh.jetstream.server import NatsServer
    from tests.support.collector import Collector


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as server:
        yield server


def test_a_span_belongs_to_the_trace_of_its_caller_and_keeps_its_error(
    collector: Collector,
) -> None:
    tracer = open_tracer(TraceSettings(endpoint=collector.endpoint), "m1")
    with (
        pytest.raises(MeshError),
        tracer.span("GET /nodes", {"traceparent": PARENT}, http_route="/nodes", mesh_app=None),
    ):
        raise MeshError("MESH-A404", "not there")
    with tracer.span("Place", mesh_target="Shop-one-1"):
        pass
    with tracer.span("GET /nodes", {"traceparent": "no such thing"}):
        pass
    tracer.close()
    call, place, other = collector.spans
    assert call.trace_id.hex() == TRACE
    assert attributes(call) == {"http.route": "/nodes"}
    assert call.status.code == 2
    assert attributes(place) == {"mesh.target": "Shop-one-1"}
    assert TRACE not in (place.trace_id.hex(), other.trace_id.hex())


def test_only_a_part_of_the_traces_is_sent_and_a_caller_decides_for_its_own(
    collector: Collector,
) -> None:
    tracer = open_tracer(TraceSettings(endpoint=collector.endpoint, sample_ratio=0.0), "m1")
    with tracer.span("Place"):
        pass
    with tracer.span("GET /nodes", {"traceparent": PARENT}):
        pass
    tracer.close()
    assert [span.name for span in collector.spans] == ["GET /nodes"]


async def test_the_api_makes_a_span_for_each_request() -> None:
    service = FakeService(texts={"Shop": "text"})
    async with served(service, OPEN) as api, httpx.AsyncClient(base_url=api.url) as client:
        await client.get("/siddhi-apps/Shop/status", headers={"traceparent": PARENT})
    ((name, parent, told),) = service.tracer.spans
    assert (name, parent) == ("GET /siddhi-apps/{app}/status", PARENT)
    assert told["http_route"] == "/siddhi-apps/{app}/status"
    assert told["mesh_app"] == "Shop"


async def test_a_manager_sends_spans_of_its_decisions_when_it_ends(
    nats_server: NatsServer, collector: Collector
) -> None:
    settings = Settings(
        nats=NatsSettings(url=nats_server.url),
        manager=ManagerSettings(id="m1"),
        traces=TraceSettings(endpoint=collector.endpoint),
    )
    async with running(settings) as (manager, service):
        await service.deploy("@App:name('A') define stream S (a int); from S insert into T;")
        # Decided at once: no worker is needed for the revision of a group.
        while not manager.view.snapshot().forms:
            await manager.view.changed(manager.view.version, 5.0)
    assert "WriteGroupForm" in {span.name for span in collector.spans}


@pytest.mark.slow
def test_without_an_endpoint_nothing_is_imported_and_without_the_extra_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = (
        "import sys, mesh.manager.manager as m; from mesh.manager.tracing import *;"
        "from mesh.settings import TraceSettings; open_tracer(TraceSettings(), 'm');"
        "print(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.stdout.strip() == "False", said.stderr
    assert type(open_tracer(TraceSettings(), "m1")) is Tracer
    real = builtins.__import__

    def refuse(name: str, *more: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MeshError, match="MESH-C115") as error:
        OtlpTracer(TraceSettings(endpoint="http://127.0.0.1:1"), "m1")
    assert "nats-event-mesh[traces]" in (error.value.hint or "")
