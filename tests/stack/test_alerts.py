"""Metrics, alerts and charts agree: names exist, each alert fires once, a healthy cluster is quiet.

``promtool`` of Prometheus reads the same files as the development stack.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from mesh.api.monitoring import ClusterValues, ManagerValues, exposition
from mesh.api.routing import REQUEST_SECONDS
from mesh.manager.history import EXPRESSIONS
from mesh.model.cluster import StatisticsLevel
from mesh.model.histogram import BATCH_BOUNDS_S, LATENCY_BOUNDS_S
from mesh.worker import metrics as worker
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

RULES = ROOT / "conf" / "prometheus" / "rules.yml"
GRAFANA = ROOT / "conf" / "grafana" / "mesh.json"
CASES = yaml.safe_load((ROOT / "tests" / "cases" / "alerts.yml").read_text("utf-8"))
NAME = re.compile(r"\bmesh_[a-z_0-9]+")
#: Series that are there in every cluster whose managers and apps are well.
QUIET = {'mesh_leader{manager="m1"}': "1x60", 'mesh_leader{manager="m2"}': "0x60"}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed"
)


def healthy() -> ClusterValues:
    counts = [0] * (len(BATCH_BOUNDS_S) + 1)
    counts[3] = 7
    instance = {
        "group": "g", "instance": "Shop-g-1", "worker": "w1", "state": "running", "behind": 3,
        "events_in": 100, "events_out": 50, "errors": 0, "restarts": 0, "batches": counts,
        "batches_sum_s": 0.05, "latencies": [*[0] * len(LATENCY_BOUNDS_S), 1],
        "latencies_sum_s": 700.0, "elements": [
            {"kind": "query", "name": "q", "events_in": 9, "events_out": 3, "rows": None},
            {"kind": "table", "name": "T", "events_in": 0, "events_out": 0, "rows": 4},
        ],
        "connectors": [{"name": "sink http", "state": "running"}],
    }  # fmt: skip
    node = {"presence": "alive", "cpu_percent": 20.0, "memory_bytes": 10**8, "instances": 1}
    return ClusterValues(
        apps=[{"app": "Shop", "state": "running", "instances": [instance], "statistics": "BASIC"}],
        nodes=[
            {"id": "m1", "role": "manager", **node},
            {"id": "m2", "role": "manager", **node},
            {"id": "w1", "role": "worker", **node},
        ],
        backlog_s={"Shop-g-1": 0.5},
        moves={"Shop": 1},
        channels=[("Shop", "mesh-Shop-S", 10**6, 0.1, 0)],
        snapshot_ages_s={("Shop", "g"): 2.0},
        # A risk is no fault.
        findings={("Shop", "risk", "copies-few"): 1},
        targets={("Shop", "g"): 1},
    )


def scrape(manager: str, leads: bool) -> str:
    # A process that has served no request has no sample of one.
    REQUEST_SECONDS.labels("GET", "/nodes").observe(0.001)
    return exposition(ManagerValues(manager, leads, 4096), healthy() if leads else None).decode()


def series_of(text: str) -> dict[str, float]:
    """Samples by their name with labels."""
    return {
        sample.name + _selector(sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _selector(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def known_names() -> set[str]:
    text = scrape("m1", True) + scrape_worker()
    return {one.partition("{")[0] for one in series_of(text)}


def scrape_worker() -> str:
    figures = dict.fromkeys(
        ("heap_used", "heap_max", "threads", "queries", "stages", "gc_s", "gc_count"), 1.0
    )
    placed = [worker.Placed("Shop", "g", "Shop-g-1", 5, StatisticsLevel.DETAIL)]
    with TemporaryDirectory() as directory:
        state = Path(directory, "Shop-g-1", "5-0", "0")
        state.mkdir(parents=True)
        (state / "tables%2FSeen%2Frows.arrow").write_bytes(b"x" * 100)
        found = worker.WorkerValues("w1", True, placed, Path(directory), None, figures)
        return worker.exposition(found).decode()


def test_a_follower_reports_itself_and_nothing_of_the_cluster() -> None:
    leader, follower = series_of(scrape("m1", True)), series_of(scrape("m2", False))
    ours = {one.partition("{")[0] for one in follower if one.startswith("mesh_")}
    assert ours <= {
        *("mesh_build_info", "mesh_leader", "mesh_history_bytes"),
        *(f"mesh_api_request_seconds_{part}" for part in ("bucket", "count", "sum", "created")),
    }
    assert follower['mesh_leader{manager="m2"}'] == 0
    assert leader['mesh_leader{manager="m1"}'] == 1
    both = [one for one in leader if one in follower and one.startswith("mesh_")]
    assert {one.partition("{")[0] for one in both} <= ours
    assert leader['mesh_instance_info{app="Shop",group="g",instance="Shop-g-1",worker="w1"}'] == 1


def test_every_metric_of_rules_charts_and_histories_is_in_a_scrape() -> None:
    known = known_names()
    rules = yaml.safe_load(RULES.read_text("utf-8"))["groups"][0]["rules"]
    board = json.loads(GRAFANA.read_text("utf-8"))
    queries = {rule["alert"]: rule["expr"] for rule in rules}
    queries |= {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in board["panels"]
        for target in panel["targets"]
    }
    queries |= {
        one["name"]: one["query"]["query"]
        for one in board["templating"]["list"]
        if one["name"] == "app"
    }
    queries |= {f"history {f}": q for kind in EXPRESSIONS.values() for f, q in kind.items()}
    assert len(queries) > 30
    for name, query in queries.items():
        used = set(NAME.findall(query))
        assert used or name == "MeshProcessIsNotScraped", name
        assert used <= known, name


def test_the_page_lists_every_alert_and_every_metric() -> None:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    rules = yaml.safe_load(RULES.read_text("utf-8"))["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules if f"`{rule['alert']}`" not in page] == []
    families = {
        sample.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        for sample in known_names()
        if sample.startswith("mesh_") and not sample.endswith("_created")
    }
    assert sorted(one for one in families if f"`{one}`" not in page) == []


@needs_promtool
@pytest.mark.parametrize(
    "text", [scrape("m1", True), scrape("m2", False), scrape_worker()], ids=("m1", "m2", "w1")
)
def test_promtool_accepts_a_scrape(text: str) -> None:
    said = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True
    )
    # Of the client library: "_created" beside histograms and counters.
    ours = [line for line in (said.stdout + said.stderr).splitlines() if "_created" not in line]
    assert [line for line in ours if "mesh_" in line] == []


@needs_promtool
def test_promtool_accepts_rules_and_configuration(tmp_path: Path) -> None:
    said = subprocess.run(
        ["promtool", "check", "rules", str(RULES)], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    text = (ROOT / "compose" / "prometheus.yml").read_text("utf-8")
    path = tmp_path / "prometheus.yml"
    path.write_text(text.replace("/etc/prometheus/rules.yml", str(RULES)))
    said = subprocess.run(
        ["promtool", "check", "config", "--syntax-only", str(path)], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr


@pytest.mark.slow
@needs_promtool
def test_each_alert_fires_once_and_a_healthy_cluster_with_two_managers_is_quiet(
    tmp_path: Path,
) -> None:
    alerts = [r["alert"] for r in yaml.safe_load(RULES.read_text("utf-8"))["groups"][0]["rules"]]
    assert [case["alert"] for case in CASES] == alerts
    tests = [_fires(case, alerts) for case in CASES]
    tests.append(_is_quiet(alerts))
    path = tmp_path / "test.yml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "10s", "tests": tests})
    )
    said = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr


def _fires(case: Mapping[str, Any], alerts: list[str]) -> dict[str, Any]:
    """A test in which this alert fires, and no other one."""
    summary = next(
        rule["annotations"]["summary"]
        for rule in yaml.safe_load(RULES.read_text("utf-8"))["groups"][0]["rules"]
        if rule["alert"] == case["alert"]
    )
    for label, value in case["labels"].items():
        summary = summary.replace(f"{{{{ $labels.{label} }}}}", value)
    expected = [{"exp_labels": case["labels"], "exp_annotations": {"summary": summary}}]
    return {
        "interval": "10s",
        "input_series": [
            {"series": series, "values": values}
            for series, values in (QUIET | case["series"]).items()
        ],
        "alert_rule_test": [
            {
                "eval_time": case["at"],
                "alertname": alert,
                "exp_alerts": expected if alert == case["alert"] else [],
            }
            for alert in alerts
        ],
    }


def _is_quiet(alerts: list[str]) -> dict[str, Any]:
    """A test with the scrapes of two managers, counters growing, in which none fires."""
    series = {}
    for manager, leads in (("m1", True), ("m2", False)):
        for name, value in series_of(scrape(manager, leads)).items():
            # honor_labels: a label of ours stays; otherwise Prometheus adds the target's.
            target = f'instance="{manager}:9543",job="mesh"'
            if 'instance="' in name:
                target = 'job="mesh"'
            labelled = name[:-1] + ("," if not name.endswith("{}") else "") + target + "}"
            grows = "events_in_total" in name or "events_out_total" in name
            series[labelled] = f"{value:g}+{10 if grows else 0}x90"
        series[f'up{{instance="{manager}:9543",job="mesh"}}'] = "1x90"
    return {
        "interval": "10s",
        "input_series": [{"series": name, "values": v} for name, v in series.items()],
        "alert_rule_test": [
            {"eval_time": at, "alertname": alert, "exp_alerts": []}
            for alert in alerts
            for at in ("1m", "5m", "14m")
        ],
    }
