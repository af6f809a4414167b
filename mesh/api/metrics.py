"""Metrics of a cluster: values for people, and Prometheus' text.

Both are derived from the view of any manager, as JSON values: the status of each app with its
instances, and the nodes.  Counters start again at 0 when an instance is placed again, which
Prometheus accepts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prometheus_client import Metric

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_STATES: Final = (
    "waiting", "starting", "running", "failing", "restoring", "rescaling", "paused", "undeploying",
)  # fmt: skip
_OF_INSTANCE: Final = ("app", "group", "instance", "worker")
#: Name, help text, and key in an instance's values.
_COUNTERS: Final = (
    ("mesh_instance_messages_in", "Messages read since the instance was placed.", "messages_in"),
    ("mesh_instance_rows_out", "Events written since the instance was placed.", "rows_out"),
    ("mesh_instance_errors", "Events recorded as errors since then.", "errors"),
    ("mesh_instance_restarts", "Restarts after failures since then.", "restarts"),
)
_GAUGES: Final = (
    ("mesh_node_cpu_percent", "CPU of the machine, 100 when all cores are busy.", "cpu_percent"),
    ("mesh_node_process_cpu_percent", "CPU of the node, 100 for a core.", "process_cpu_percent"),
    ("mesh_node_memory_bytes", "Memory of the node's processes.", "memory_bytes"),
    ("mesh_node_memory_percent", "Memory in use of the machine.", "memory_percent"),
    ("mesh_node_load_1m", "Load of the machine over a minute.", "load_1m"),
    ("mesh_node_instances", "Instances placed on the node.", "instances"),
)


def statistics(apps: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each app: sums over its instances since they were placed."""
    return [
        {
            "app": app["app"],
            "state": app["state"],
            "instances": len(app["instances"]),
            "running": sum(one["state"] == "running" for one in app["instances"]),
            "messages_in": _sum(app, "messages_in"),
            "rows_out": _sum(app, "rows_out"),
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


def exposition(apps: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> bytes:
    """All of it in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Collected(apps, nodes))
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(
        self, apps: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]
    ) -> None:
        self._apps = apps
        self._nodes = nodes

    def collect(self) -> Iterator[Metric]:
        """The metric families, each complete, as the format requires."""
        yield from self._of_nodes()
        states = GaugeMetricFamily(
            "mesh_app_state", "1 for the state of the app.", labels=("app", "state")
        )
        for app in self._apps:
            for state in _STATES:
                states.add_metric((app["app"], state), float(app["state"] == state))
        yield states
        up = GaugeMetricFamily(
            "mesh_instance_running", "1 when the instance runs.", labels=_OF_INSTANCE
        )
        behind = GaugeMetricFamily(
            "mesh_instance_behind", "Messages that wait for it.", labels=_OF_INSTANCE
        )
        batch = GaugeMetricFamily(
            "mesh_instance_batch_seconds", "Median length of its batches.", labels=_OF_INSTANCE
        )
        for labels, one in self._instances():
            up.add_metric(labels, float(one["state"] == "running"))
            behind.add_metric(labels, float(one["behind"]))
            if one.get("batch_ms_p50") is not None:
                batch.add_metric(labels, one["batch_ms_p50"] / 1000)
        yield from (up, behind, batch)
        for name, text, key in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=_OF_INSTANCE)
            for labels, one in self._instances():
                counter.add_metric(labels, float(one.get(key, 0)))
            yield counter

    def _of_nodes(self) -> Iterator[Metric]:
        there = GaugeMetricFamily(
            "mesh_node_alive", "1 when the node's heartbeats come.", labels=("node", "role")
        )
        leads = GaugeMetricFamily(
            "mesh_manager_leads", "1 for the manager that leads.", labels=("node",)
        )
        for node in self._nodes:
            there.add_metric((node["id"], node["role"]), float(node["presence"] == "alive"))
            if node["role"] == "manager":
                leads.add_metric((node["id"],), float(node["leads"]))
        yield from (there, leads)
        for name, text, key in _GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=("node", "role"))
            for node in self._nodes:
                gauge.add_metric((node["id"], node["role"]), float(node.get(key, 0)))
            yield gauge

    def _instances(self) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
        for app in self._apps:
            for one in app["instances"]:
                labels = (app["app"], one["group"], one["instance"], one["worker"] or "")
                yield labels, one


def _sum(app: Mapping[str, Any], key: str) -> int:
    return sum(one.get(key, 0) for one in app["instances"])
