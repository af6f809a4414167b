"""Metrics of apps, as Prometheus reads them."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from mesh.manager.nodes import Leadership
from tests.support.api import TEXT, FakeService
from tests.support.monitored import Cluster, ask


class Leading(Cluster):
    """The same, seen by the manager that leads."""

    async def leadership(self) -> Leadership:
        return Leadership("m1", "m1")


def test_metrics_are_read_by_prometheus() -> None:
    answer = ask("/metrics", service=Leading())
    assert answer.headers["content-type"].startswith("text/plain")
    families = {f.name: f for f in text_string_to_metric_families(answer.text)}
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    labels = ("Shop", "sums", "Shop-sums-1")
    assert samples["mesh_instance_events_in_total", *labels] == 10
    assert samples["mesh_instance_events_failed_total", *labels] == 1
    assert samples["mesh_instance_backlog_messages", *labels] == 2
    assert samples["mesh_instance_backlog_seconds", *labels] == 1.5
    assert samples["mesh_instance_batch_seconds_count", *labels] == 3
    assert samples["mesh_instance_batch_seconds_bucket", *labels, "0.005"] == 2
    assert ("mesh_instance_batch_seconds_count", "Shop", "sums", "Shop-sums-2") not in samples
    assert samples["mesh_instance_latency_seconds_count", *labels] == 3
    assert samples["mesh_instance_latency_seconds_bucket", *labels, "120.0"] == 2
    assert samples["mesh_instance_latency_seconds_sum", *labels] == 1.5
    assert samples["mesh_element_events_in_total", "Shop", "sums", *labels[1:], "query"] == 10
    assert samples["mesh_element_events_out_total", "Shop", "sums", *labels[1:], "query"] == 4
    assert samples["mesh_element_rows", "Shop", "T", *labels[1:], "table"] == 7
    assert ("mesh_element_rows", "Shop", "sums", *labels[1:], "query") not in samples
    assert samples["mesh_connector_up", "Shop", "sink http 1", *labels[1:]] == 1
    assert samples["mesh_connector_up", "Shop", "sink http 2", *labels[1:]] == 0
    assert samples["mesh_instance_running", "Idle", "default", "Idle-default-1"] == 0
    assert samples["mesh_instance_info", *labels, "w1"] == 1
    assert samples["mesh_app_state", "Shop", "failing"] == 1
    assert samples["mesh_app_state", "Shop", "running"] == 0
    assert samples["mesh_leader", "m1"] == 1
    assert samples["mesh_node_up", "w2", "worker"] == 0
    assert samples["mesh_node_cpu_ratio", "w1", "worker"] == 0.125
    assert samples["mesh_moves_total", "Shop"] == 3
    assert samples["mesh_channel_limit_ratio", "Shop", "mesh-Shop-Orders"] == 0.5
    assert samples["mesh_snapshot_age_seconds", "Shop", "sums"] == 4
    assert samples["mesh_group_wanted_instances", "Shop", "sums"] == 3
    assert samples["mesh_findings", "Shop", "input-lost", "fault"] == 2
    assert families["mesh_instance_restarts"].type == "counter"
    assert samples["mesh_history_bytes",] == 4096


def test_findings_of_an_app_are_counted_by_severity() -> None:
    found = ask("/siddhi-apps/Shop/verification", service=FakeService(texts={"Shop": TEXT})).json()
    assert (found["app"], found["faults"], found["risks"]) == ("Shop", 0, 1)
    assert found["findings"][0]["kind"] == "copies-few"
    assert ask("/siddhi-apps/Nothing/verification").status_code == 404
    assert ask("/siddhi-apps/Nothing/guarantees").status_code == 404


def test_an_app_without_statistics_has_its_state_alone() -> None:
    service = Leading()
    service.statuses = tuple(replace(one, statistics="OFF") for one in service.statuses)
    text = ask("/metrics", service=service).text
    assert 'mesh_app_state{app="Shop",state="failing"} 1.0' in text
    assert "mesh_instance_events_in_total{" not in text
    assert "mesh_leader" in ask("/metrics").text
    assert "mesh_app_state" not in ask("/metrics").text
