"""The runner of cases without Spark: values, errors, and what does not run."""

from __future__ import annotations

from mesh.testing.conformance import direct
from mesh.testing.conformance.answers import Likeness, compact, likeness
from tests.support.conformed import APP


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
