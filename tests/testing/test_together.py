"""Many cases in one test: all run, and each that fails is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import together as module
from tests.support.together import together

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = [("one", 1), ("two", 2), ("three", 3)]


@pytest.fixture
def selection() -> Iterator[None]:
    yield
    module.select("")


def test_all_cases_run_and_those_that_fail_are_named() -> None:
    seen = []

    @together("name, number", CASES, ids=[name for name, _ in CASES])
    @together("sign", [1, -1])
    def run(name: str, number: int, sign: int, extra: str) -> None:
        seen.append((name, sign, extra))
        assert number * sign != -2
        assert number * sign != 3

    with pytest.raises(ExceptionGroup, match="2 of 6 cases failed") as raised:
        run(extra="x")
    assert seen == [(name, sign, "x") for sign in (1, -1) for name, _ in CASES]
    assert [one.__notes__ for one in raised.value.exceptions] == [
        ["case: three-1"],
        ["case: two--1"],
    ]


def test_of_many_that_fail_the_ids_are_named() -> None:
    @together("number", range(30))
    def run(number: int) -> None:
        raise ValueError(number)

    with pytest.raises(ExceptionGroup, match="\n  29") as raised:
        run()
    assert len(raised.value.exceptions) == 10


@pytest.mark.usefixtures("selection")
def test_cases_are_selected_by_their_id() -> None:
    seen = []

    @together("number", [1, 2])
    def run(number: int) -> None:
        seen.append(number)

    module.select("2")
    run()
    assert seen == [2]
    module.select("3")
    with pytest.raises(pytest.skip.Exception, match="no case has '3' in its id"):
        run()


@together("number", range(3))
def test_fixtures_are_those_of_the_test(number: int, tmp_path_factory: object) -> None:
    assert number in range(3)
    assert tmp_path_factory is not None
