"""Metrics of one worker, for Prometheus: its processes, its JVM and Spark, and its stored states.

Everything is read when Prometheus asks, but for the figures of the JVM and of Spark, which the
session reports every few seconds.  So a worker that is not scraped pays nothing, and the path
of the events is not touched.

Probes and metrics of a worker over HTTP: ``/health/live``, ``/health/ready``, ``/metrics``.

The agent's process answers, so a hanging Spark session does not end a live worker.  There is no
framework: a probe is one request line, one answer, and the end of the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import orjson
import psutil

import mesh
from mesh.control.readiness import worker_reasons
from mesh.errors import MeshError
from mesh.model.cluster import StatisticsLevel
from mesh.processes import machine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    from nats.aio.client import Client
    from prometheus_client import Metric

    from mesh.control.agent_state import AgentState
    from mesh.model.values import JsonObject
    from mesh.settings import WorkerSettings


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: Name, help text, and key of the session's figures.
_FIGURES: Final = (
    ("mesh_jvm_heap_used_bytes", "Used heap of Spark's JVM.", "heap_used"),
    ("mesh_jvm_heap_max_bytes", "Bound of the heap.", "heap_max"),
    ("mesh_jvm_threads", "Threads of the JVM.", "threads"),
    ("mesh_spark_active_queries", "Streaming queries that run.", "queries"),
    ("mesh_spark_active_stages", "Stages of Spark that run.", "stages"),
)
_FIGURE_COUNTERS: Final = (
    ("mesh_jvm_gc_seconds", "Time of garbage collections.", "gc_s"),
    ("mesh_jvm_gc_collections", "Number of garbage collections.", "gc_count"),
)


@dataclass(frozen=True, slots=True)
class Placed:
    """An instance on this worker."""

    app: str
    group: str
    instance: str
    epoch: int
    level: StatisticsLevel


@dataclass(frozen=True, slots=True)
class WorkerValues:
    """Input of an exposition."""

    worker: str
    is_ready: bool
    instances: Sequence[Placed] = ()
    #: Directory of the states of the session's instances; None without a session.
    directory: Path | None = None
    #: Process id of the session; None without one.
    session: int | None = None
    #: Of the session's last report.
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Processes:
    """Sums over the processes of a kind."""

    count: int = 0
    memory_bytes: int = 0
    cpu_s: float = 0.0
    threads: int = 0


def exposition(values: WorkerValues) -> bytes:
    """The metrics in Prometheus' text format; reads files and the process table."""
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import Collector, CollectorRegistry

    class Collected(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from _families(values)

    registry = CollectorRegistry()
    registry.register(Collected())
    return generate_latest(registry)


def _families(values: WorkerValues) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

    identity = {"worker": values.worker, "version": mesh.__version__}
    yield InfoMetricFamily("mesh_worker", "Name and version.", identity)
    yield GaugeMetricFamily(
        "mesh_worker_ready", "1 when instances can run.", float(values.is_ready)
    )
    for family, figures in ((GaugeMetricFamily, _FIGURES), (CounterMetricFamily, _FIGURE_COUNTERS)):
        for name, text, key in figures:
            if key in values.figures:
                yield family(name, text, values.figures[key])
    count = GaugeMetricFamily("mesh_worker_processes", "Processes of a kind.", labels=("kind",))
    memory = GaugeMetricFamily(
        "mesh_worker_memory_bytes",
        "Memory of its processes; a page that they share counts once.",
        labels=("kind",),
    )
    threads = GaugeMetricFamily("mesh_worker_threads", "Their threads.", labels=("kind",))
    cpu = CounterMetricFamily("mesh_worker_cpu_seconds", "Their CPU time.", labels=("kind",))
    for kind, sums in _processes(values.session).items():
        count.add_metric((kind,), sums.count)
        memory.add_metric((kind,), sums.memory_bytes)
        threads.add_metric((kind,), sums.threads)
        cpu.add_metric((kind,), sums.cpu_s)
    yield from (count, memory, threads, cpu)
    yield from _states(values)


def _states(values: WorkerValues) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    of_instance = ("app", "group", "instance")
    whole = GaugeMetricFamily(
        "mesh_instance_state_bytes", "Stored state on the worker's disk.", labels=of_instance
    )
    parts = GaugeMetricFamily(
        "mesh_element_state_bytes",
        "Stored state of a query, window, table or aggregation (DETAIL).",
        labels=(*of_instance, "kind", "element"),
    )
    for one in values.instances if values.directory is not None else ():
        if one.level is StatisticsLevel.OFF:
            continue
        assert values.directory is not None
        sizes = state_sizes(values.directory, one.instance, one.epoch)
        labels = (one.app, one.group, one.instance)
        whole.add_metric(labels, sum(sizes.values()))
        if one.level is StatisticsLevel.DETAIL:
            for (kind, element), size in sorted(sizes.items()):
                parts.add_metric((*labels, kind, element), size)
    yield from (whole, parts)


def state_sizes(directory: Path, instance: str, epoch: int) -> dict[tuple[str, str], int]:
    """Bytes by kind and name of the element, of the newest run of an instance in an epoch.

    They include pieces of the state before the present one, until these are dropped.
    """
    root = directory / instance
    runs = [*root.glob(f"{epoch}-*"), *root.glob(f"apart-*/{epoch}-*")]
    sizes: defaultdict[tuple[str, str], int] = defaultdict(int)
    for path in _newest(runs):
        try:
            sizes[element_of(unquote(path.stem))] += path.stat().st_size
        except FileNotFoundError:
            continue
    return dict(sizes)


def _newest(runs: Iterable[Path]) -> list[Path]:
    """The pieces of the run that was written last."""
    candidates: list[tuple[int, list[Path]]] = []
    for run in runs:
        try:
            pieces = list(run.glob("*/*.arrow"))
            written_ns = max((path.stat().st_mtime_ns for path in pieces), default=0)
        except FileNotFoundError:
            continue
        candidates.append((written_ns, pieces))
    return max(candidates, default=(0, []))[1]


def element_of(piece: str) -> tuple[str, str]:
    """Kind and name of the element that a piece belongs to."""
    first, _, rest = piece.partition("/")
    if first == "tables":
        return "table", rest.partition("/")[0]
    for kind in ("window", "aggregation"):
        if first.startswith(f"{kind}-"):
            return kind, first.removeprefix(f"{kind}-")
    return "query", first


def _processes(session: int | None) -> dict[str, _Processes]:
    """Sums by kind: the agent, the session, Spark's JVM, Spark's Python processes, and others."""
    by_kind: defaultdict[str, _Processes] = defaultdict(_Processes)
    agent = psutil.Process()
    for process in [agent, *agent.children(recursive=True)]:
        try:
            with process.oneshot():
                sums = by_kind[_kind(process, agent.pid, session)]
                times = process.cpu_times()
                sums.count += 1
                sums.memory_bytes += machine.memory_bytes(process)
                sums.cpu_s += times.user + times.system
                sums.threads += process.num_threads()
        except psutil.Error:
            continue
    return dict(by_kind)


def _kind(process: psutil.Process, agent_pid: int, session: int | None) -> str:
    if process.pid == agent_pid:
        return "agent"
    if process.pid == session:
        return "session"
    if process.name() == "java":
        return "jvm"
    # Spark's Python processes are forked from one that the JVM has started.
    if any(parent.name() == "java" for parent in process.parents()):
        return "python"
    return "other"


#: Bytes of a request's head, and the time that it may take.
_HEAD_MAX: Final = 8192
_HEAD_S: Final = 5.0


class Probes:
    """State that the probes report; ``state`` is None until the agent exists."""

    def __init__(self) -> None:
        self.state: AgentState | None = None
        #: Input of the worker's metrics; None until the agent exists.
        self.metrics: Callable[[], WorkerValues] | None = None
        #: The agent's connection; None until it exists.
        self.client: Client | None = None

    def answer(self, request_line: str) -> tuple[HTTPStatus, JsonObject]:
        """Status and values for a request line like ``GET /health/ready HTTP/1.1``."""
        method, _, rest = request_line.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if path not in ("/health", "/health/live", "/health/ready"):
            values = {"code": "MESH-A404", "message": "not found"}
            return HTTPStatus.NOT_FOUND, values
        if method != "GET":
            values = {"code": "MESH-A405", "message": "method not allowed"}
            return HTTPStatus.METHOD_NOT_ALLOWED, values
        if path != "/health/ready":
            if self.client is not None and self.client.is_closed:
                return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "down"}
            return HTTPStatus.OK, {"status": "up"}
        reasons = worker_reasons(self.state)
        if reasons:
            unready = {"status": "not ready", "reasons": list(reasons)}
            return HTTPStatus.SERVICE_UNAVAILABLE, unready
        return HTTPStatus.OK, {"status": "ready", "reasons": []}

    async def _answered(self, line: str) -> tuple[HTTPStatus, str, bytes]:
        """Status, type and body for a request line."""
        if line.startswith(("GET /metrics ", "GET /metrics?")) and self.metrics is not None:
            # It looks at files and processes.
            body = await asyncio.to_thread(exposition, self.metrics())
            return HTTPStatus.OK, CONTENT_TYPE, body
        status, values = self.answer(line)
        return status, "application/json", orjson.dumps(values) + b"\n"

    async def respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
                line = head.partition(b"\r\n")[0].decode("ascii", "replace")
                status, kind, body = await self._answered(line)
                writer.write(
                    f"HTTP/1.1 {status.value} {status.phrase}\r\n"
                    f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                    "Connection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        # A client that sends no request, too long a one, or leaves, gets no answer.
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            return
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def serving(settings: WorkerSettings) -> AsyncIterator[Probes]:
    """Probes that answer on ``worker.probe_port``; with port 0 nothing listens.

    Raises:
        MeshError: MESH-C113 when the address is taken or not this machine's.
    """
    probes = Probes()
    if not settings.probe_port:
        yield probes
        return
    try:
        server = await asyncio.start_server(
            probes.respond, settings.probe_host, settings.probe_port, limit=_HEAD_MAX
        )
    except OSError as error:
        raise MeshError(
            "MESH-C113",
            f"the worker's probes can't listen on {settings.probe_host}:{settings.probe_port}",
            detail=f"{error.strerror or error}.",
            hint="Set worker.probe_host and worker.probe_port; port 0 is for no probes.",
        ) from error
    async with server:
        yield probes
