"""Retention that follows the groups of an app, decided from evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.control.retention import Retention, needed, retentions
from mesh.control.verification import Evidence, MarkerEvidence, Producer, StreamEvidence
from mesh.model.cluster import AppRecord
from mesh.plan.build import plan

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
