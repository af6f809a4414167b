"""Patterns whose matches are aggregated: bound, run, and equal to the reference engine's output."""

from __future__ import annotations

import pytest

from mesh.testing import cases
from tests.support import paths

CASES = cases.read(paths.CASES / "plan" / "pattern_aggregates.jsonl")


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_aggregates_over_matches_equal_the_reference_engines(case: cases.Case) -> None:
    assert sum(len(rows) for rows in case.expect.values()) >= 4
    assert cases.differences(case) == []
