"""A case that shows a difference becomes the smallest one that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tools.fuzz.reduction import reduce

if TYPE_CHECKING:
    from collections.abc import Sequence

CASE = {
    "app": "define stream S (a int); define stream T (b int); "
    "from S[a > 1 and a < 9] select a, a + 1 as c insert into Out; from T select b insert into U;",
    "inputs": [{"stream": "S", "data": [number]} for number in range(6)],
}


def test_what_does_not_matter_is_left_out() -> None:
    def shows(cases: Sequence[Any]) -> list[bool]:
        return [
            "a > 1" in case["app"] and {"stream": "S", "data": [4]} in case["inputs"]
            for case in cases
        ]

    small = reduce(CASE, shows)
    assert small["inputs"] == [{"stream": "S", "data": [4]}]
    assert "a > 1" in small["app"]
    assert "a < 9" not in small["app"]
    assert "insert into U" not in small["app"]


def test_a_case_of_which_everything_matters_stays() -> None:
    assert reduce(CASE, lambda cases: [False] * len(cases)) == CASE
