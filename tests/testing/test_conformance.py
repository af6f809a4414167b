"""Whole apps against the reference engine's recorded answers, and the runner of these cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mesh.testing.conformance import direct
from mesh.testing.conformance.answers import compact, differences
from mesh.testing.conformance.cases import lines
from tests.support import paths
from tests.support.conformed import APP
from tests.support.together import each
from tools import engine_answers
from tools.conformance import __main__ as runner

DIRECTORY = paths.CASES / "conformance"
CASES = engine_answers.load(DIRECTORY)
#: Tests that divide the cases among them; of these the default tier runs each twentieth.
SHARES = 80
DIFFERENCES = engine_answers.differences(DIRECTORY)


@pytest.mark.slow
@pytest.mark.sampled(20)
@pytest.mark.parametrize("share", range(SHARES))
def test_an_app_answers_as_the_reference_engine(share: int) -> None:
    each(as_the_engine, CASES[share::SHARES], id_of=lambda case: case.name)


def as_the_engine(case: engine_answers.Recorded) -> None:
    ours = compact(direct.answer(case.case))
    reason = DIFFERENCES.get(case.name)
    if reason is None:
        assert differences(ours, case.expect) == []
    elif reason != engine_answers.NOT_YET:
        assert differences(ours, case.expect), f"no difference any more: {case.name} | {reason}"


def test_the_engine_is_asked_to_say_why_it_failed_however_often_it_does(tmp_path: Path) -> None:
    oracle = tmp_path / "oracle.py"
    oracle.write_text(
        "import json, os, sys\n"
        "said = {'log': os.environ['JDK_JAVA_OPTIONS']}\n"
        "open(sys.argv[2], 'w').write(json.dumps(said) + '\\n')\n"
    )
    (answer,) = engine_answers.ask(oracle, [{"name": "one", "app": "", "inputs": []}])
    assert "-XX:-OmitStackTraceInFastThrow" in answer["log"]


def test_every_known_difference_is_of_a_case() -> None:
    assert set(DIFFERENCES) <= {case.name for case in CASES}


@pytest.mark.parametrize("name", ["output_rates/snap time plain", "selectors/order exp lb"])
def test_the_engine_calls_back_without_events(name: str) -> None:
    """Shown by these cases: an empty snapshot, and a limit that admits no event."""
    (case,) = (case for case in CASES if case.name == name)
    calls = [call for calls in case.expect["queries"].values() for call in calls]
    assert any(not call[1] and not call[2] for call in calls)


def test_the_command_writes_an_answer_a_line(tmp_path: Path) -> None:
    asked, out = tmp_path / "cases.jsonl", tmp_path / "out.jsonl"
    asked.write_text(lines({"name": str(n), "app": APP, "inputs": []} for n in range(3)))
    runner.main([str(asked), str(out), "--jobs", "2"])
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(one["index"], one["name"], one["status"]) for one in answers] == [
        (0, "0", "ok"),
        (1, "1", "ok"),
        (2, "2", "ok"),
    ]
