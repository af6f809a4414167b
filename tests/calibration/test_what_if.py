"""Needs of an app, measured with a server of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest
from typer.testing import CliRunner

from mesh.calibration import groups, measure
from mesh.calibration.measure import answer, rates_of
from mesh.cli.commands import app
from mesh.errors import MeshError
from mesh.manager.previews import running_rates
from mesh.model.cluster import InstanceState, InstanceStatus
from mesh.plan.build import plan

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.nats

TEXT = """@App:name('Shop')
define stream Orders (k string, v double);
@dist(execGroup='clean')
from Orders[v > 1.0] select k, v insert into Clean;
@dist(execGroup='means', parallel='2')
partition with (k of Clean) begin
from Clean#window.length(10) select k, v, avg(v) as mean insert into Means; end;
"""
STORED = """@store(type='rdbms', jdbc.url='jdbc:postgresql://h/d') @PrimaryKey('a')
define table K (a int);
define stream S (a int); from S select a insert into K;"""
EVENTS = 4000


@pytest.mark.slow
def test_groups_are_measured_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # All messages rather than the first ones: their sizes depend on the runs.
    monkeypatch.setattr(groups, "_LOOKS", EVENTS)
    found = answer(plan(TEXT).spec, ["100"], 100, {}, cores=4, events=EVENTS)
    by_group = {one["group"]: one for one in found["groups"]}
    assert [one for one in by_group if "partition" not in one] == ["clean", "means"]
    clean, means = by_group["clean"], by_group["means"]
    assert (clean["events"], clean["source"]) == (100.0, "calibrated")
    assert clean["rows"] == {"Clean": pytest.approx(0.5, abs=0.05)}
    # Arrow messages of several events each are between the two.
    assert means["events"] == pytest.approx(50, rel=0.1)
    assert means["rows"] == {"Means": pytest.approx(1.0, rel=0.01)}
    assert means["messages"] < means["events"]
    assert means["state_bytes"] > 100 * 10 * 8
    assert all(one["worker_cores"] > 0 and one["limit"] > 0 for one in by_group.values())
    assert found["cores"] == 4
    assert found["notes"] == [
        "events were random: a share of rows that is not that of yours changes all"
    ]


@pytest.mark.thorough
def test_the_command_shows_them_and_takes_events_of_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "EVENTS", EVENTS)
    (tmp_path / "shop.siddhi").write_text(TEXT)
    line = {"time": 1, "stream": "Orders", "event": {"k": "a", "v": 0.5}}
    (tmp_path / "events.jsonl").write_bytes(orjson.dumps(line) + b"\n")
    command = ["plan", str(tmp_path / "shop.siddhi"), "--at-rate", "20", "--keys", "1e2"]
    events = ["--events", str(tmp_path / "events.jsonl")]
    shown = CliRunner().invoke(app, [*command, *events])
    assert shown.exit_code == 0, shown.output
    assert "note: clean emitted nothing" in shown.output
    assert "20 events a second need 1 worker of" in shown.output
    refused = CliRunner().invoke(app, [*command, "--at-rate", "Gone=5", "--output", "json"])
    assert refused.exit_code == 1
    assert "MESH-C171" in refused.output


def test_each_stream_has_a_rate() -> None:
    assert rates_of(["A", "B"], ["B=2", "10"]) == {"A": 10.0, "B": 2.0}
    assert rates_of(["A", "B"], ["1e3"]) == {"A": 1000.0, "B": 1000.0}
    for wrong in (["A=2"], ["0", "B=1"], ["many"], ["C=1"], []):
        with pytest.raises(MeshError) as refused:
            rates_of(["A", "B"], wrong)
        assert refused.value.code == "MESH-C171"


@pytest.mark.parametrize(
    "text",
    [
        "define trigger T at every 1 sec; from T select triggered_time insert into U;",
        STORED,
    ],
)
def test_what_can_not_be_calibrated_is_refused_before_anything_runs(text: str) -> None:
    with pytest.raises(MeshError) as refused:
        answer(plan(f"@App:name('X') {text}").spec, ["10"], 10, {})
    assert refused.value.code == "MESH-C170"


def report(instance: str, messages: int, batches: int, took_s: float) -> InstanceStatus:
    return InstanceStatus(
        instance, "Shop", "w1", 1, InstanceState.RUNNING, 0,
        events_in=messages, batches=(batches,), batches_sum_s=took_s,
    )  # fmt: skip


def test_groups_that_run_in_large_batches_have_the_rate_of_their_reports() -> None:
    spec = plan(TEXT).spec
    reports = [
        report("Shop-clean-1", 90_000, 90, 2.0),
        report("Shop-means-1", 3000, 600, 1.0),
        report("Shop-means-2", 3000, 700, 1.0),
    ]
    assert running_rates(spec, spec, reports) == {"clean": 45_000.0}
    other = plan(TEXT.replace("v > 1.0", "v > 2.0")).spec
    assert running_rates(other, spec, reports) == {}
