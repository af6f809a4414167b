"""Differences by the engine's own restart are distinguished from bugs of ours.

Our own engine replaces the reference engine, in a process that loses the state at each restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tools.conformance.pool import CasePool
from tools.fuzz import __main__ as fuzz
from tools.fuzz.restarts import REASON, without_restarts

if TYPE_CHECKING:
    from pathlib import Path

APP = (
    "define stream S (a int); @info(name='q1') from S#window.length(3) select sum(a) as n "
    "insert into Out;"
)
ENGINE = """
import json
import sys

from mesh.testing.conformance.direct import answer

changes = {changes}
with open(sys.argv[1]) as cases, open(sys.argv[2], "w") as answers:
    for case in map(json.loads, cases):
        steps = [changes.get(json.dumps(step), step) for step in case["inputs"]]
        answers.write(json.dumps(answer({{**case, "inputs": steps}})) + "\\n")
"""


def one(*inputs: dict[str, Any]) -> dict[str, Any]:
    return {"name": "windows 1", "app": APP, "inputs": list(inputs)}


def sent(value: int) -> dict[str, Any]:
    return {"stream": "S", "data": [value]}


SNAPSHOT, RESTART = {"snapshot": "s"}, {"restart": "s"}
CASE = one(sent(1), SNAPSHOT, RESTART, sent(2))


@pytest.mark.extended
@pytest.mark.parametrize(
    ("changes", "is_the_restarts"),
    [
        ({'{"restart": "s"}': {"restart": None}}, True),
        # It computes something else with and without a restart.
        ({'{"stream": "S", "data": [1]}': sent(7)}, False),
    ],
)
def test_what_a_restart_changes_in_the_engine_is_explained_and_nothing_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    is_the_restarts: bool,
) -> None:
    # The reduction of a case starts many processes.
    monkeypatch.setattr(fuzz, "reduce", lambda case, shows: case)
    engine = tmp_path / "engine.py"
    engine.write_text(ENGINE.format(changes=changes))
    with CasePool(1) as pool:
        search = fuzz.Search(engine, pool, deadline_s=float("inf"))
        found = list(search.round([CASE]))
    assert dict(search.explained) == ({REASON: 1} if is_the_restarts else {})
    assert bool(found) != is_the_restarts


def test_a_restart_becomes_a_step_that_does_nothing() -> None:
    played = without_restarts(CASE)
    assert played is not None
    assert len(played["inputs"]) == len(CASE["inputs"])
    assert not any("restart" in step for step in played["inputs"])
    assert without_restarts(one(sent(1), SNAPSHOT)) is None


@pytest.mark.parametrize(
    "inputs",
    [
        (sent(1), {"restart": None}, sent(2)),
        # It loses the events after the snapshot, as intended.
        (SNAPSHOT, sent(1), RESTART, sent(2)),
        (sent(1), {"restart": "never taken"}),
    ],
)
def test_a_restart_that_sets_the_app_back_is_none_to_leave_out(
    inputs: tuple[dict[str, Any], ...],
) -> None:
    assert without_restarts(one(*inputs)) is None
