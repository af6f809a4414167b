"""Outcomes of the matrix, by version."""

from __future__ import annotations

import pytest

from tests.support.paths import ROOT
from tools import matrix
from tools.matrix import Outcome, Variant

REPORT = """<?xml version="1.0"?>
<testsuites><testsuite errors="1" failures="2" skipped="3" tests="10"/></testsuites>"""


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("nats-server: v2.15.0-binary", "2.15.0"),
        ("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)", "15.14"),
        ("mariadbd  Ver 10.11.14-MariaDB-0+deb12u2", "10.11.14"),
        ('openjdk version "17.0.16" 2025-07-15', "17.0.16"),
        ('openjdk version "25" 2025-09-16 LTS', "25"),
        ("Python 3.12.1", "3.12.1"),
    ],
)
def test_a_version_is_found_in_what_its_program_prints(printed: str, version: str) -> None:
    assert matrix.version_in(printed) == version


def test_counts_are_those_of_the_report() -> None:
    variant = Variant(matrix.NATS, "2.15.0")
    assert matrix.outcome_of(variant, REPORT, "2026-01-02") == Outcome(
        matrix.NATS, "2.15.0", passed=4, failed=3, skipped=3, day="2026-01-02"
    )


def test_a_run_replaces_the_outcomes_of_its_versions_alone() -> None:
    old = Outcome(matrix.POSTGRESQL, "9.6", 1, 0, 0, "2026-01-01")
    before = [Outcome(matrix.POSTGRESQL, "15.14", 1, 1, 0, "2026-01-01"), old]
    now = Outcome(matrix.POSTGRESQL, "15.14", 2, 0, 0, "2026-01-02")
    server = Outcome(matrix.NATS, "2.15.0", 3, 0, 0, "2026-01-02")
    assert matrix.merged(before, [now, server]) == [server, old, now]


def test_the_tests_of_each_program_are_there() -> None:
    for tests in matrix.TESTS.values():
        assert all((ROOT / one).exists() for one in tests if one.startswith("tests/"))
