"""Handlers that show the cluster: nodes, placement, statistics, metrics.

Metrics of a manager, and of the cluster if it leads: values for people, and Prometheus' text.

    every manager   mesh_build_info, mesh_leader, mesh_api_request_seconds, mesh_history_bytes,
                    process_*, python_gc_*
    the leader      mesh_node_*, mesh_app_state, mesh_instance_*, mesh_channel_*, ..

The series of the cluster come from the leader alone, so two managers that are scraped count nothing
twice.  They are derived from the view that REST and the command line show.  Counters start again at
0 when an instance is placed again, which Prometheus accepts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import GCCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry
from starlette.responses import Response

import mesh
from mesh.api.routing import REQUEST_SECONDS, Json, serves, values_of, visible_apps, with_status
from mesh.control.lifecycle import AppState
from mesh.model.foreign_operations import OriginalOperations
from mesh.model.histogram import BATCH_BOUNDS_S, LATENCY_BOUNDS_S
from mesh.model.operation import parameter_error
from mesh.model.operations import AppOperations, ClusterOperations
from mesh.model.values import JsonMapping, JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prometheus_client import Metric
    from starlette.requests import Request

    from mesh.manager.service import ManagerService

#: Presence of a worker in the words of the system before this one.
_NODE_STATES: Final = {"alive": "ACTIVE", "suspect": "ACTIVE", "gone": "INACTIVE"}
_OF_WORKER: Final = ("id", "address", "pid", "presence", "ready", "labels")
#: Media types of pictures of a plan.
_PICTURES: Final = {"svg": "image/svg+xml", "dot": "text/vnd.graphviz"}


class Monitoring:
    """Handlers of monitoring."""

    def __init__(self, service: ManagerService) -> None:
        self._service = service

    @serves(AppOperations.statistics)
    async def statistics(self, request: Request) -> object:
        apps = [with_status(app) for app in await visible_apps(self._service)]
        return statistics(apps, self._service.now_ms())

    @serves(AppOperations.elements)
    async def elements(self, request: Request, app: str) -> object:
        return await self._service.plan_view(app, "elements")

    @serves(AppOperations.groups)
    async def groups(self, request: Request, app: str, output: str) -> object:
        view = await self._service.plan_view(app, output)
        kind = _PICTURES.get(output)
        return view if kind is None else Response(view, media_type=kind)

    @serves(ClusterOperations.nodes)
    async def nodes(self, request: Request) -> object:
        return await self._service.nodes()

    @serves(OriginalOperations.managers)
    async def managers(self, request: Request) -> object:
        nodes = values_of(await self._service.nodes())
        return [
            {**n, "haStatus": "Active" if n.get("leads") else "Passive", "groupId": "mesh"}
            for n in nodes
            if n["role"] == "manager"
        ]

    @serves(OriginalOperations.is_active)
    async def is_active(self, request: Request) -> object:
        leadership = await self._service.leadership()
        values = {
            "isActive": leadership.leads,
            "manager": leadership.manager,
            "leader": leadership.leader,
        }
        return Json(values, HTTPStatus.OK if leadership.leads else HTTPStatus.NOT_FOUND)

    @serves(OriginalOperations.parents)
    async def parents(self, request: Request) -> object:
        nodes = await self._by_name()
        return [
            {**_parent(app), "children": _children(app, nodes, self._service.now_ms())}
            for app in values_of(await visible_apps(self._service))
        ]

    @serves(OriginalOperations.children)
    async def children(self, request: Request, app: str) -> object:
        status = values_of(await self._service.status(app))
        texts = {group.name: group.text for group in (await self._service.app(app)).groups}
        children = _children(status, await self._by_name(), self._service.now_ms())
        return [{**one, "siddhiApp": texts.get(one["group"], "")} for one in children]

    @serves(OriginalOperations.execution)
    async def execution(self, request: Request, app: str) -> object:
        spec = await self._service.app(app)
        if "text/plain" in request.headers.get("accept", ""):
            return Response(spec.text, media_type="text/plain")
        return {"content": spec.text}

    @serves(OriginalOperations.workers_count)
    async def workers_count(self, request: Request, details: bool) -> object:
        workers = await self._workers()
        if not details:
            return len(workers)
        ready = sum(bool(node.get("ready")) for node in workers)
        return {"clusteredWorkers": len(workers), "ready": ready}

    @serves(OriginalOperations.workers)
    async def workers(self, request: Request) -> object:
        return [
            {
                "nodeId": n["id"],
                # No worker has an API.
                "https_host": "",
                "https_port": "",
                **{key: n.get(key) for key in _OF_WORKER},
            }
            for n in await self._workers()
        ]

    @serves(ClusterOperations.overview)
    async def overview(self, request: Request) -> object:
        values = values_of(await self._service.overview())
        return {**values, "flows": await self._service.flows()}

    @serves(ClusterOperations.history)
    async def history(
        self,
        request: Request,
        app: str | None,
        group: str | None,
        node: str | None,
        seconds: float,
        step: float,
    ) -> Any:
        kind, name = _history_key(app, group, node)
        return await self._service.telemetry.past(
            kind, name, max(1, int(seconds)), max(1, int(step))
        )

    @serves(ClusterOperations.metrics)
    async def metrics(self, request: Request) -> object:
        leadership = await self._service.leadership()
        manager = ManagerValues(leadership.manager, leadership.leads, self._service.telemetry.bytes)
        cluster = None
        if leadership.leads:
            apps = values_of(await visible_apps(self._service))
            nodes = values_of(await self._service.nodes())
            cluster = ClusterValues(apps, nodes, **await self._service.cluster_figures())
        return Response(exposition(manager, cluster), media_type=CONTENT_TYPE)

    async def _by_name(self) -> dict[str, JsonObject]:
        return {node["id"]: node for node in values_of(await self._service.nodes())}

    async def _workers(self) -> list[JsonObject]:
        nodes = values_of(await self._service.nodes())
        return [n for n in nodes if n["role"] == "worker" and n["presence"] != "gone"]


def _history_key(app: str | None, group: str | None, node: str | None) -> tuple[str, str]:
    """Kind and name in a history: of ``app`` and ``group``, or of ``node``."""
    if app:
        return ("group", f"{app}/{group}") if group else ("app", app)
    if node:
        return "node", node if "/" in node else f"worker/{node}"
    raise parameter_error("app", "", "the name of an app; or node that of a node")


def _parent(app: JsonObject) -> JsonObject:
    groups: dict[str, JsonObject] = {}
    for one in app["instances"]:
        group = groups.setdefault(
            one["group"], {"group": one["group"], "instances": 0, "running": 0}
        )
        group["instances"] += 1
        group["running"] += one["state"] == "running"
    return {
        "app": app["app"],
        "state": app["state"],
        "reason": app["reason"],
        "groups": list(groups.values()),
    }


def _children(app: JsonObject, nodes: dict[str, JsonObject], now_ms: int) -> list[JsonObject]:
    return [{"parentAppName": app["app"], **_child(one, nodes, now_ms)} for one in app["instances"]]


def _child(one: JsonObject, nodes: dict[str, JsonObject], now_ms: int) -> JsonObject:
    worker = nodes.get(one["worker"] or "")
    presence = worker["presence"] if worker is not None else None
    return {
        "groupName": one["group"],
        "childAppName": one["instance"],
        "deployedNodeId": one["worker"],
        "deployedNodeHost": "",
        "deployedNodePort": "",
        "deployedNodeState": _NODE_STATES.get(presence or "", "NEW"),
        "lastPingTimeStamp": (
            now_ms - round(worker["last_heartbeat_ago_s"] * 1000) if worker is not None else None
        ),
        "failedPingAttempts": int(presence != "alive"),
        "instance": one["instance"],
        "group": one["group"],
        "state": one["state"],
        "worker": one["worker"],
        "worker_presence": presence,
        "last_heartbeat_ago_s": worker.get("last_heartbeat_ago_s") if worker is not None else None,
        "error": one.get("error"),
        "reason": one.get("reason"),
    }


CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_OF_INSTANCE: Final = ("app", "group", "instance")
#: Name, help text, and key in an instance's values.
_COUNTERS: Final = (
    ("mesh_instance_events_in", "Events read since the instance was placed.", "events_in"),
    ("mesh_instance_events_out", "Events written since the instance was placed.", "events_out"),
    ("mesh_instance_events_failed", "Events recorded as errors since then.", "errors"),
    ("mesh_instance_restarts", "Restarts after failures since then.", "restarts"),
)
#: Name, help text, key in a node's values, and the factor to the base unit.
_OF_NODE: Final = (
    ("mesh_node_cpu_ratio", "CPU of the machine, 1 when all cores are busy.", "cpu_percent", 0.01),
    ("mesh_node_process_cpu_ratio", "CPU of the node, 1 for a core.", "process_cpu_percent", 0.01),
    ("mesh_node_memory_bytes", "Memory of the node's processes.", "memory_bytes", 1.0),
    ("mesh_node_memory_ratio", "Memory in use, of the limit.", "memory_percent", 0.01),
    ("mesh_node_memory_limit_bytes", "Of its container, or machine.", "memory_limit_bytes", 1.0),
    ("mesh_node_load1", "Load of the machine over a minute.", "load_1m", 1.0),
    ("mesh_node_instances", "Instances placed on the node.", "instances", 1.0),
)


@dataclass(frozen=True, slots=True)
class ManagerValues:
    """Figures of a manager about itself."""

    manager: str
    leads: bool
    history_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ClusterValues:
    """Figures of the cluster, as JSON values where REST has them."""

    apps: Sequence[JsonMapping]
    nodes: Sequence[JsonMapping]
    #: By instance: age of the oldest message that waits, seconds.
    backlog_s: Mapping[str, float] = field(default_factory=dict)
    #: By app.
    moves: Mapping[str, int] = field(default_factory=dict)
    #: JetStream streams: app, name, bytes, part of the bound (None without one), replica lag.
    channels: Sequence[tuple[str, str, int, float | None, int]] = ()
    #: By app and group: age of the newest snapshot, seconds.
    snapshot_ages_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    #: By app and group with bounds: the instances that its load needs.
    targets: Mapping[tuple[str, str], int] = field(default_factory=dict)
    #: By app, severity and kind: findings of the verification.
    findings: Mapping[tuple[str, str, str], int] = field(default_factory=dict)


def statistics(apps: Iterable[JsonMapping], now_ms: int = 0) -> list[JsonObject]:
    """A row for each app: sums over its instances since they were placed."""
    return [
        {
            "appName": app["app"],
            "status": app.get("status", app["state"]),
            "age": max(0, now_ms - app["deployed_at_ms"]) if app.get("deployed_at_ms") else 0,
            "isStatEnabled": app.get("statistics", "BASIC") != "OFF",
            "enabledSiddhiStatLevel": app.get("statistics", "BASIC"),
            "app": app["app"],
            "state": app["state"],
            "instances": len(app["instances"]),
            "running": sum(one["state"] == "running" for one in app["instances"]),
            "events_in": _sum(app, "events_in"),
            "events_out": _sum(app, "events_out"),
            "errors": _sum(app, "errors"),
            "behind": _sum(app, "behind"),
            "restarts": _sum(app, "restarts"),
            "batch_ms_p50": max(
                (one["batch_ms_p50"] for one in app["instances"] if one.get("batch_ms_p50")),
                default=None,
            ),
        }
        for app in apps
    ]


def exposition(manager: ManagerValues, cluster: ClusterValues | None) -> bytes:
    """A manager's metrics in Prometheus' text format; ``cluster`` is None if it does not lead."""
    registry = CollectorRegistry()
    registry.register(_ManagerCollector(manager))
    registry.register(REQUEST_SECONDS)
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    if cluster is not None:
        registry.register(_ClusterCollector(cluster))
    return generate_latest(registry)


class _ManagerCollector(Collector):
    def __init__(self, values: ManagerValues) -> None:
        self._values = values

    def collect(self) -> Iterator[Metric]:
        """The metric families, each complete, as the format requires."""
        values = self._values
        yield InfoMetricFamily("mesh_build", "Version.", {"version": mesh.__version__})
        leader = GaugeMetricFamily(
            "mesh_leader", "1 if this manager leads, otherwise 0.", labels=("manager",)
        )
        leader.add_metric((values.manager,), float(values.leads))
        yield leader
        yield GaugeMetricFamily(
            "mesh_history_bytes", "Memory of the history of an hour.", float(values.history_bytes)
        )


class _ClusterCollector(Collector):
    def __init__(self, values: ClusterValues) -> None:
        self._values = values
        #: Apps whose statistics are not off.
        self._measured = [app for app in values.apps if app.get("statistics") != "OFF"]

    def collect(self) -> Iterator[Metric]:
        """The metric families, each complete, as the format requires."""
        yield from self._of_nodes()
        yield from self._of_apps()
        yield from self._of_instances()
        yield self._histogram(
            "mesh_instance_batch_seconds", "Duration of its batches.", "batches", BATCH_BOUNDS_S
        )
        yield self._histogram(
            "mesh_instance_latency_seconds",
            "Time from the storing of an event to the publishing of its effect.",
            "latencies",
            LATENCY_BOUNDS_S,
        )
        yield from self._elements()
        yield from self._of_channels()

    def _of_nodes(self) -> Iterator[Metric]:
        labels = ("node", "role")
        up = GaugeMetricFamily(
            "mesh_node_up", "1 when the node's heartbeats arrive.", labels=labels
        )
        for node in self._values.nodes:
            up.add_metric((node["id"], node["role"]), float(node["presence"] == "alive"))
        yield up
        for name, text, key, factor in _OF_NODE:
            gauge = GaugeMetricFamily(name, text, labels=labels)
            for node in self._values.nodes:
                gauge.add_metric((node["id"], node["role"]), float(node.get(key, 0)) * factor)
            yield gauge

    def _of_apps(self) -> Iterator[Metric]:
        states = GaugeMetricFamily(
            "mesh_app_state", "1 for the state of the app.", labels=("app", "state")
        )
        for app in self._values.apps:
            for state in AppState:
                states.add_metric((app["app"], state.value), float(app["state"] == state))
        yield states
        moves = CounterMetricFamily(
            "mesh_moves", "Changes of the worker of an instance.", labels=("app",)
        )
        for app in self._measured:
            moves.add_metric((app["app"],), float(self._values.moves.get(app["app"], 0)))
        yield moves
        age = GaugeMetricFamily(
            "mesh_snapshot_age_seconds",
            "Age of the newest stored snapshot of a group.",
            labels=("app", "group"),
        )
        for (name, group), age_s in self._values.snapshot_ages_s.items():
            age.add_metric((name, group), age_s)
        yield age
        instances = GaugeMetricFamily(
            "mesh_group_wanted_instances",
            "Instances that the load of a group with bounds needs.",
            labels=("app", "group"),
        )
        for (name, group), count in self._values.targets.items():
            instances.add_metric((name, group), float(count))
        yield instances
        findings = GaugeMetricFamily(
            "mesh_findings",
            "Faults and risks that the verification of apps found.",
            labels=("app", "severity", "kind"),
        )
        for labels, count in self._values.findings.items():
            findings.add_metric(labels, float(count))
        yield findings

    def _of_instances(self) -> Iterator[Metric]:
        info = InfoMetricFamily("mesh_instance", "The worker of the instance.", labels=_OF_INSTANCE)
        up = GaugeMetricFamily(
            "mesh_instance_running", "1 when the instance runs.", labels=_OF_INSTANCE
        )
        messages = GaugeMetricFamily(
            "mesh_instance_backlog_messages", "Messages that wait for it.", labels=_OF_INSTANCE
        )
        seconds = GaugeMetricFamily(
            "mesh_instance_backlog_seconds",
            "Age of the oldest message that waits for it.",
            labels=_OF_INSTANCE,
        )
        for labels, one in self._instances():
            info.add_metric(labels, {"worker": one["worker"] or ""})
            up.add_metric(labels, float(one["state"] == "running"))
            messages.add_metric(labels, float(one["behind"]))
            seconds.add_metric(labels, self._values.backlog_s.get(one["instance"], 0.0))
        yield from (info, up, messages, seconds)
        connectors = GaugeMetricFamily(
            "mesh_connector_up",
            "1 when the source, or the destination of a sink, works; 0 while it is tried again.",
            labels=(*_OF_INSTANCE, "connector"),
        )
        for labels, one in self._instances():
            for connector in one.get("connectors") or ():
                works = float(connector["state"] == "running")
                connectors.add_metric((*labels, connector["name"]), works)
        yield connectors
        for name, text, key in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=_OF_INSTANCE)
            for labels, one in self._instances():
                counter.add_metric(labels, float(one.get(key, 0)))
            yield counter

    def _histogram(self, name: str, text: str, key: str, bounds_s: tuple[float, ...]) -> Metric:
        family = HistogramMetricFamily(name, text, labels=_OF_INSTANCE)
        for labels, one in self._instances():
            counts = one.get(key) or ()
            # A worker of another version may count by other buckets.
            if len(counts) == len(bounds_s) + 1:
                buckets, seen = [], 0
                for bound, count in zip((*bounds_s, "+Inf"), counts, strict=True):
                    seen += count
                    buckets.append((str(bound), float(seen)))
                family.add_metric(labels, buckets, one[f"{key}_sum_s"])
        return family

    def _elements(self) -> Iterator[Metric]:
        """With statistics DETAIL; instances of other apps report no elements."""
        labels = (*_OF_INSTANCE, "kind", "element")
        entered = CounterMetricFamily(
            "mesh_element_events_in", "Events that entered a query or a window.", labels=labels
        )
        emitted = CounterMetricFamily(
            "mesh_element_events_out", "Events that it emitted.", labels=labels
        )
        rows = GaugeMetricFamily("mesh_element_rows", "Rows of a table.", labels=labels)
        for instance, one in self._instances():
            for element in one.get("elements") or ():
                at = (*instance, element["kind"], element["name"])
                if element["rows"] is not None:
                    rows.add_metric(at, float(element["rows"]))
                    continue
                entered.add_metric(at, float(element["events_in"]))
                emitted.add_metric(at, float(element["events_out"]))
        yield from (entered, emitted, rows)

    def _of_channels(self) -> Iterator[Metric]:
        labels = ("app", "stream")
        size = GaugeMetricFamily(
            "mesh_channel_bytes", "Size of the JetStream stream.", labels=labels
        )
        limit = GaugeMetricFamily(
            "mesh_channel_limit_ratio", "Used part of its bound in bytes.", labels=labels
        )
        lag = GaugeMetricFamily(
            "mesh_channel_replica_lag", "Operations its slowest replica lacks.", labels=labels
        )
        for app, stream, held, ratio, behind in self._values.channels:
            size.add_metric((app, stream), float(held))
            lag.add_metric((app, stream), float(behind))
            if ratio is not None:
                limit.add_metric((app, stream), ratio)
        yield from (size, limit, lag)

    def _instances(self) -> Iterator[tuple[tuple[str, ...], JsonMapping]]:
        for app in self._measured:
            for one in app["instances"]:
                yield (app["app"], one["group"], one["instance"]), one


def _sum(app: JsonMapping, key: str) -> int:
    return sum(one.get(key, 0) for one in app["instances"])
