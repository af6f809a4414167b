"""The reference engine's recorded answers, with tables and aggregations in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.fuzz.in_stores import STORE, comparable
from tools.stored_conformance import Outcome, cases, outcome

if TYPE_CHECKING:
    from pathlib import Path

    from tools.engine_answers import Recorded

#: All of them: ``python -m tools.stored_conformance``.
EVERY = 25


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("case", "options", "is_engines"),
    [
        pytest.param(*one, id=f"{one[0].name}{one[1]}")
        for one in cases()
        if one[0].case["app"].count("@PrimaryKey") or "define table" not in one[0].case["app"]
    ][::EVERY],
)
def test_an_app_with_a_store_answers_as_the_reference_engine(
    case: Recorded, options: str, is_engines: bool, tmp_path: Path
) -> None:
    assert outcome(case, options, tmp_path, is_engines=is_engines) is not Outcome.DIFFERENT


def test_nulls_and_purges_are_taken_out_of_a_case() -> None:
    step = {"stream": "S", "data": ["a", 1]}
    app = "define stream S (k string, v int); {}define aggregation A from S select k every sec;"
    case = {
        "app": app.format("@purge(interval='10 sec', @retentionPeriod(sec='120 sec')) "),
        "inputs": [
            step,
            {"stream": "S", "data": [None, 1]},
            {"stream": "S", "events": [[1, ["b", None]], [1, ["b", 2]]]},
            {"query": "from A"},
        ],
        STORE: "",
    }
    found = comparable(case)
    assert found["app"] == app.format("@purge(enable='false') ")
    assert found["inputs"] == [
        step,
        {"stream": "S", "events": [[1, ["b", 2]]]},
        {"query": "from A"},
    ]
    assert comparable(found) == found
