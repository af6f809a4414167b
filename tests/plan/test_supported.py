"""Elements that this version does not run, or that can only fail."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.plan.bind import bind
from mesh.plan.supported import check_supported
from tests.support.recorder import DEFINE
from tests.support.reference import ROWS, runs

#: Accepted there and here, and then not run: these fail, or mean nothing, when events arrive.
NOT_RUN = {
    "int + bool",
    # Always false there, whatever stream is named.
    "stream isnull",
    # Nothing ever comes out of them there.
    "expired no window",
    "pattern: expired",
}
DOOMED = [row for row in ROWS if row["case"] in NOT_RUN]


@pytest.mark.parametrize("row", DOOMED, ids=[row["case"] for row in DOOMED])
def test_what_can_only_fail_is_not_run(row: dict[str, Any]) -> None:
    assert row["siddhi"] == "accepted"
    assert not runs(row["app"])


@pytest.mark.parametrize(
    ("query", "what"),
    [
        (
            "from S#streamingml:bayesianRegression('m', k) select k insert into O;",
            "no query trains",
        ),
        (
            """from S#streamingml:bayesianRegression('m', k) select k insert into O;
            from S#streamingml:updateBayesianRegression('m', v, k, v) select k insert into M;""",
            "with 1 features",
        ),
    ],
)
def test_a_model_that_can_answer_nothing_is_refused(query: str, what: str) -> None:
    with pytest.raises(MeshError, match=what):
        check_supported(bind(parse(DEFINE + query)))


@pytest.mark.parametrize(
    "query",
    [
        "from S[kf:kalmanFilter(v) > 1.0] select k insert into O;",
        "from S select ifThenElse(k > 1, kf:kalmanFilter(v), 0.0) as x insert into O;",
        "from S select kf:kalmanFilter(avg(v)) as x insert into O;",
        (
            "from S#window.time(1) as a join T#window.time(1) as b on a.k == b.k "
            "select kf:kalmanFilter(a.v) as x insert into O;"
        ),
    ],
)
def test_a_function_with_a_state_stands_in_a_select_clause_alone(query: str) -> None:
    with pytest.raises(MeshError, match="kf:kalmanFilter"):
        check_supported(bind(parse(DEFINE + query)))
