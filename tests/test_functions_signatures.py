"""The catalogue against what the reference engine answered: tests/cases/signatures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mesh.functions.catalogue import STREAM_FUNCTIONS, WINDOWS, Refusal, Resolution
from mesh.testing.signatures import FUNCTIONS, RecordedCall, judge, read_cases

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.functions.catalogue import Signature

CASES = Path(__file__).parent / "cases" / "signatures"
TABLES: dict[str, Mapping[str, Signature]] = {
    "scalars": FUNCTIONS,
    "aggregators": FUNCTIONS,
    "windows": WINDOWS,
    "stream_functions": STREAM_FUNCTIONS,
}
CALLS = [(file, case) for file in TABLES for case in read_cases(CASES / f"{file}.txt")]


def answer_of(file: str, verdict: Resolution | Refusal) -> str:
    """The verdict in the words of a case file."""
    if isinstance(verdict, Refusal):
        return "refused"
    if file == "windows":
        return "accepted"
    if file == "stream_functions":
        return f"adds ({', '.join(f'{a.name} {a.type}' for a in verdict.overload.adds)})"
    return str(verdict.type)


@pytest.mark.parametrize(("file", "case"), CALLS, ids=[case.call for _, case in CALLS])
def test_a_call_has_the_engines_verdict_and_type(file: str, case: RecordedCall) -> None:
    verdict = judge(case.call, TABLES[file])
    assert answer_of(file, verdict) == case.answer.partition(":")[0], verdict


@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file, table in TABLES.items() for name in table]
)
def test_every_name_has_an_accepted_and_a_refused_case(file: str, name: str) -> None:
    files = {"scalars", "aggregators"} if TABLES[file] is FUNCTIONS else {file}
    verdicts = {
        case.is_accepted for at, case in CALLS if at in files and case.call.startswith(f"{name}(")
    }
    assert verdicts == {True, False}


@pytest.mark.parametrize(("file", "case"), CALLS, ids=[case.call for _, case in CALLS])
def test_a_refusal_reads_as_an_error(file: str, case: RecordedCall) -> None:
    verdict = judge(case.call, TABLES[file])
    if isinstance(verdict, Refusal):
        assert verdict.message[0].islower()
        assert not verdict.message.endswith(".")
        assert all(text is None or text[-1] in ".?" for text in (verdict.detail, verdict.hint))
