"""The fuzzer's cases of state: each category gives valid apps, and stores answer as the state."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from mesh.testing.conformance.answers import Likeness, compact, likeness
from mesh.testing.conformance.direct import answer
from tools.fuzz.explanations import explain
from tools.fuzz.in_stores import STORE, has_own_order, in_store
from tools.fuzz.random_cases import random_case

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("category", ["aggregations", "on_demand"])
def test_cases_of_state_run_and_their_queries_are_valid(category: str) -> None:
    for seed in range(5):
        case = random_case(category, seed)
        found = answer(case)
        assert found["status"] == "ok", case
        assert any("result" in one for one in found.get("ondemand", ())) or "@purge(" in case["app"]


@pytest.mark.slow
def test_an_app_in_a_store_answers_as_the_same_app_without(tmp_path: Path) -> None:
    stores = set()
    for seed in range(12):
        case = random_case("stores", seed)
        stores.add(case[STORE])
        stored = in_store(case, tmp_path / f"{seed}.db")
        assert "@store(" in stored["app"]
        assert "@store(" not in case["app"]
        like = likeness(compact(answer(stored)), compact(answer(case)))
        assert like is Likeness.SAME or (like is Likeness.ORDER and has_own_order(case)), case
    assert len(stores) == 3


def test_a_delete_by_key_and_more_is_explained_in_a_query_as_well() -> None:
    case = {
        "app": "define stream S (k string); @PrimaryKey('k') define table D (k string, a int); "
        "from S select k, 1 as a insert into D;",
        "inputs": [{"query": "delete D on D.k == 'x' and D.a > 0"}],
    }
    reason = explain(case, {"log": [], "errors": []})
    assert reason is not None
    assert re.search("deletes nothing", reason)
    case["inputs"] = [{"query": "delete D on D.k == 'x'"}]
    assert explain(case, {"log": [], "errors": []}) is None
