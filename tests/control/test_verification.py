"""Faults and risks of evidence that only several servers, time and running readers give.

Retention that follows the groups of an app, decided from evidence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mesh.control.lifecycle import InstanceView, cure_of
from mesh.control.verification import (
    Evidence,
    MarkerEvidence,
    Producer,
    Retention,
    Severity,
    StreamEvidence,
    findings,
    needed,
    retentions,
)
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


DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
TEXT = """@App:name('A')
define stream S (a int);
@dist(execGroup='sums') from S select sum(a) as total insert into T;
"""
NAME = "mesh-A-S"


def evidence(
    taken: int | None,
    age_s: float,
    first: int = 1,
    max_age_s: float = WEEK_S,
    before_s: float = 0.0,
) -> Evidence:
    stream = StreamEvidence(
        NAME, max_age_s=max_age_s, max_age_before_s=before_s, messages=10, first=first,
        last=first + 9, first_age_s=age_s,
    )  # fmt: skip
    read = {} if taken is None else {("sums", NAME): taken}
    return Evidence(AppRecord(plan(TEXT).spec, "i1", 0), {NAME: stream}, [], (), {}, {}, read)


@pytest.mark.parametrize(
    ("taken", "age_s", "first", "wanted"),
    [
        # The oldest message waits, and half of its time is over.
        (0, 4 * DAY_S, 1, [Retention(NAME, 8 * DAY_S, "sums")]),
        # Some were lost already.
        (0, 4 * DAY_S, 5, [Retention(NAME, 8 * DAY_S, "sums")]),
        (0, 3 * DAY_S, 1, []),
        (1, 6 * DAY_S, 1, []),
        (None, 6 * DAY_S, 1, []),
    ],
)
def test_a_stream_keeps_what_a_group_has_not_processed(
    taken: int | None, age_s: float, first: int, wanted: list[Retention]
) -> None:
    assert retentions(evidence(taken, age_s, first), {}) == wanted


def test_an_extension_ends_when_the_first_message_that_waits_is_young() -> None:
    found = evidence(5, 12 * DAY_S, max_age_s=4 * WEEK_S, before_s=WEEK_S)
    assert needed(found) == {NAME: 6}
    assert retentions(found, {NAME: 4 * DAY_S}) == []
    assert retentions(found, {NAME: 3 * DAY_S}) == [Retention(NAME, WEEK_S)]
    # Nothing waits.
    assert retentions(found, {}) == [Retention(NAME, WEEK_S)]
    # The oldest waits, and would go at once.
    found = evidence(0, 12 * DAY_S, max_age_s=4 * WEEK_S, before_s=WEEK_S)
    assert retentions(found, {NAME: 12 * DAY_S}) == []


def test_a_retention_without_end_or_set_by_a_person_stays() -> None:
    assert retentions(evidence(0, 90 * DAY_S, max_age_s=0.0), {}) == []
    assert retentions(evidence(5, 12 * DAY_S, max_age_s=4 * WEEK_S), {}) == []
    assert needed(evidence(5, 12 * DAY_S, max_age_s=4 * WEEK_S)) == {}


def test_a_group_without_state_that_does_not_run_is_where_its_output_is() -> None:
    found = replace(
        evidence(None, 4 * DAY_S),
        markers=[MarkerEvidence("mesh-A-T", p, n, 1) for p, n in (("x", 0), ("y", 7), ("z", 9))],
        producers={("mesh-A-T", p): Producer("copy", (NAME,)) for p in ("x", "y")},
    )
    assert retentions(found, {}) == [Retention(NAME, 8 * DAY_S, "copy")]
    # It reports more than it has emitted.
    assert retentions(replace(found, read={("copy", NAME): 9}), {}) == []
