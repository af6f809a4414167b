"""Faults and risks of evidence that only several servers, time and running readers give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mesh.control.lifecycle import InstanceView, cure_of
from mesh.control.verification import Evidence, Severity, StreamEvidence, findings
from mesh.model.cluster import AppRecord
from mesh.plan.build import plan

RECORD = AppRecord(
    plan("@App:name('A') define stream S (a int); from S[a > 1] select a insert into T;").spec,
    "i1",
    0,
)


def stream(name: str, **more: Any) -> StreamEvidence:
    js_stream = f"mesh-A-{name}"
    subjects = (f"mesh.A.{name}", f"mesh._marker.{js_stream}.>")
    values = {"subjects": subjects, "first": 1, "last": 100, "messages": 100, "bytes": 1000}
    return StreamEvidence(js_stream, **{**values, **more})


def seen(taken: int = 100, *, replicas: int = 1, **more: Any) -> list[tuple[str, str]]:
    streams = {"mesh-A-S": stream("S", **more), "mesh-A-T": stream("T")}
    evidence = Evidence(RECORD, streams, (), (), {}, {}, {("default", "mesh-A-S"): taken}, replicas)
    return [(one.kind, one.text) for one in findings(evidence)]


def test_a_healthy_app_has_no_findings() -> None:
    assert seen() == []
    assert seen(taken=40, max_age_s=604800.0, max_bytes=10_000, lag=10) == []
    # Read before they were deleted.
    assert seen(taken=60, deleted=(3, 59), deleted_count=2) == []
    assert seen(taken=50, first=51, messages=50) == []


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"away": ("n2",)}, ("copy-away", "copies on n2 are away")),
        ({"lag": 20_000}, ("copy-behind", "a copy is 20,000 operations behind")),
        (
            {"taken": 10, "deleted": (12, 13, 14, 15)},
            (
                "messages-deleted",
                "messages 12, 13, 14 and others were deleted before group default had them",
            ),
        ),
        (
            {"taken": 49, "first": 50, "max_age_s": 86400.0, "first_age_s": 50_000.0},
            (
                "retention-near",
                "messages of 50000 s ago wait for group default, and go after 86400 s",
            ),
        ),
        (
            {"taken": 20, "first": 51},
            ("messages-expired", "messages 21 to 50 went before group default had them"),
        ),
        (
            {"taken": 5, "max_bytes": 1100},
            ("size-near", "messages that wait for group default fill its 1,100 bytes"),
        ),
    ],
)
def test_each_is_found(more: dict[str, Any], expected: tuple[str, str]) -> None:
    assert seen(**more) == [expected]


def test_faults_precede_risks_and_each_has_a_remedy() -> None:
    evidence = Evidence(
        RECORD,
        {"mesh-A-S": None, "mesh-A-T": replace(stream("T"), is_on_disk=False)},
        (),
        (),
        {},
        {},
        {},
    )
    first, second = findings(evidence)
    assert (first.severity, first.kind, first.app) == (Severity.FAULT, "stream-missing", "A")
    assert first.remedy == "restore a backup ('mesh backups A'), or undeploy and deploy the app"
    assert (second.severity, second.kind, second.where) == (
        Severity.RISK,
        "in-memory",
        "mesh-A-T",
    )


@pytest.mark.parametrize(("name", "is_own"), [("mesh-A-S", True), ("mesh-B-S", False)])
def test_an_app_that_fails_without_a_stream_of_its_own_has_a_remedy(
    name: str, is_own: bool
) -> None:
    error = f'JetStream stream "{name}" does not exist [PYSPARK-NATS-REFUSED]'
    failing = InstanceView("A-default-1", "default", "w1", 1, "retrying", error=error)
    remedy = "restore a backup ('mesh backups A'), or undeploy and deploy the app"
    assert cure_of(failing, RECORD) == (remedy if is_own else None)
