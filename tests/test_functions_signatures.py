"""The catalogue against what the reference engine answered: tests/cases/signatures."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.functions.catalogue import AGGREGATORS, SCALARS, Resolution
from mesh.testing.signatures import RecordedCall, judge, read_cases

CASES = Path(__file__).parent / "cases" / "signatures"
FUNCTIONS = SCALARS | AGGREGATORS


def cases(*files: str) -> list[RecordedCall]:
    return [case for file in files for case in read_cases(CASES / f"{file}.txt")]


@pytest.mark.parametrize("case", cases("scalars", "aggregators"), ids=lambda case: case.call)
def test_a_call_has_the_engines_verdict_and_type(case: RecordedCall) -> None:
    verdict = judge(case.call, FUNCTIONS)
    if case.is_accepted:
        assert isinstance(verdict, Resolution), verdict
        assert str(verdict.type) == case.answer
    else:
        assert not isinstance(verdict, Resolution), verdict


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_has_an_accepted_and_a_refused_case(name: str) -> None:
    verdicts = {
        case.is_accepted
        for case in cases("scalars", "aggregators")
        if case.call.startswith(f"{name}(")
    }
    assert verdicts == {True, False}
