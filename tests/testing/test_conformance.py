"""Whole apps against the reference engine's recorded answers, and the runner of these cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mesh.testing.conformance import __main__ as runner
from mesh.testing.conformance import direct
from mesh.testing.conformance.answers import Likeness, compact, differences, likeness
from mesh.testing.conformance.cases import lines
from tests.support import paths
from tools import engine_answers

DIRECTORY = paths.CASES / "conformance"
CASES = engine_answers.load(DIRECTORY)
DIFFERENCES = engine_answers.differences(DIRECTORY)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_an_app_answers_as_the_reference_engine(case: engine_answers.Recorded) -> None:
    ours = compact(direct.answer(case.case))
    reason = DIFFERENCES.get(case.name)
    if reason is None:
        assert differences(ours, case.expect) == []
    elif reason == engine_answers.NOT_YET:
        pytest.xfail(reason) if differences(ours, case.expect) else None
    else:
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


APP = (
    "define stream S (a int, f float, d double); "
    "@info(name='q') from S[a > 1] select a, f, d insert into Out;"
)


def ask(**case: object) -> dict[str, object]:
    return compact(direct.answer({"name": "asked", "app": APP, **case}))


def test_values_keep_their_types_and_steps() -> None:
    inputs = [
        {"stream": "S", "data": [1, 1, 1]},
        {"sleep_ms": 5},
        {"stream": "S", "data": [2, 1.1, {"$t": "double", "v": "NaN"}]},
        {"stream": "S", "events": [[{"$now": -1}, [3, None, 1e300]]]},
    ]
    made = ask(inputs=inputs, start_ts=1000)
    assert made["streams"] == {
        "Out": [
            [2, 1005, [2, 1.1, {"$t": "double", "v": "NaN"}], "ifd"],
            [3, 1004, [3, None, 1e300], "ind"],
        ]
    }


def test_a_value_that_does_not_fit_is_an_error_of_its_step() -> None:
    made = ask(inputs=[{"stream": "S", "data": ["x", 1, 1]}, {"stream": "S", "data": [2, 1, 1]}])
    assert made["errors"] == [["CaseError", "step 0"]]
    assert isinstance(made["streams"], dict)
    assert len(made["streams"]["Out"]) == 1


def test_what_does_not_run_answers_with_its_code() -> None:
    app = (
        "define stream S (a int); "
        "@store(type='rdbms', jdbc.url='jdbc:h2:./a', jdbc.driver.name='org.h2.Driver', "
        "username='u', password='p') "
        "define aggregation A from S select sum(a) as s aggregate every sec;"
    )
    made = compact(direct.answer({"name": "asked", "app": app, "inputs": []}))
    assert made["status"] == "error"
    assert str(made["error"]).startswith("MESH-P900")
    assert likeness(made, {"status": "ok"}) is Likeness.UNSUPPORTED


def test_an_app_that_is_refused_answers_so() -> None:
    assert compact(direct.answer({"name": "asked", "app": "from S", "inputs": []})) == {
        "status": "creation_error"
    }


def test_a_line_that_is_no_case_is_a_bad_one() -> None:
    assert direct.answer({"name": "no app"})["status"] == "bad_case"


def test_likeness_tells_order_from_content() -> None:
    one, two = [0, 5, [1], "i"], [0, 5, [2], "i"]
    wanted = {"status": "ok", "streams": {"Out": [one, two]}, "queries": {}}
    other = {"status": "ok", "streams": {"Out": [two, one]}, "queries": {}}
    less = {"status": "ok", "streams": {"Out": [one]}, "queries": {}}
    assert likeness(wanted, wanted) is Likeness.SAME
    assert likeness(other, wanted) is Likeness.ORDER
    assert likeness(less, wanted) is Likeness.DIFFERENT
    assert differences(less, wanted) == ['Out 1: nothing, expected [0, 5, [2], "i"]']


def test_callbacks_without_events_are_not_compared() -> None:
    call = [5, [[5, [1], "i"]], None]
    wanted = {"status": "ok", "streams": {}, "queries": {"q": [call, [-1, None, None]]}}
    ours = {"status": "ok", "streams": {}, "queries": {"q": [call]}}
    assert likeness(ours, wanted) is likeness(wanted, ours) is Likeness.SAME
    assert differences(ours, wanted) == []
    silent = {"status": "ok", "streams": {}, "queries": {"q": []}}
    assert likeness(silent, wanted) is Likeness.DIFFERENT


@pytest.mark.parametrize("name", ["output_rates/snap time plain", "selectors/order exp lb"])
def test_the_engine_calls_back_without_events(name: str) -> None:
    """Shown by these cases: an empty snapshot, and a limit that admits no event."""
    (case,) = (case for case in CASES if case.name == name)
    calls = [call for calls in case.expect["queries"].values() for call in calls]
    assert any(not call[1] and not call[2] for call in calls)


def test_calls_that_are_cut_otherwise_are_other_chunks() -> None:
    one, two = [5, [1], "i"], [5, [2], "i"]
    wanted = {"status": "ok", "streams": {}, "queries": {"q": [[5, [one, two], None]]}}
    ours = {"status": "ok", "streams": {}, "queries": {"q": [[5, [one], None], [5, [two], None]]}}
    assert likeness(ours, wanted) is Likeness.CHUNKS


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
