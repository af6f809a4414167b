"""Differences by the order of timers are distinguished from bugs of ours.

Our own engine replaces the reference engine, in a process that answers some apps as if they were
others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tools.conformance.pool import CasePool
from tools.fuzz import __main__ as fuzz
from tools.fuzz.timer_ties import apart

if TYPE_CHECKING:
    from pathlib import Path

STREAM = "define stream S (a int); "
TWO = (
    "@info(name='q1') from S#window.time(100 milliseconds) select a insert all events into Out; "
    "@info(name='q2') from S#window.timeBatch(1 sec) select a insert all events into Out;"
)
ENGINE = """
import json
import sys

from mesh.testing.conformance.direct import answer

with open(sys.argv[1]) as cases, open(sys.argv[2], "w") as answers:
    for case in map(json.loads, cases):
        app = case["app"].replace({words!r}, {others!r})
        answers.write(json.dumps(answer({{**case, "app": app}})) + "\\n")
"""


def one(app: str, *inputs: dict[str, Any]) -> dict[str, Any]:
    return {"name": "chains 1", "app": STREAM + app, "inputs": list(inputs)}


def sent(value: int) -> dict[str, Any]:
    return {"stream": "S", "data": [value]}


@pytest.mark.extended
@pytest.mark.parametrize(
    ("app", "words", "others", "is_of_ties"),
    [
        # With times apart it has 97 milliseconds.
        (TWO, "time(100 milliseconds)", "length(1)", True),
        (TWO, "q1') from S", "q1') from S[a > 1]", False),
        # Nothing is due together.
        (TWO[TWO.index("@info(name='q2')") :], "timeBatch(1 sec)", "length(1)", False),
    ],
)
def test_what_times_apart_end_is_explained_and_nothing_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    app: str,
    words: str,
    others: str,
    is_of_ties: bool,
) -> None:
    # The reduction of a case starts many processes.
    monkeypatch.setattr(fuzz, "reduce", lambda case, shows: case)
    engine = tmp_path / "engine.py"
    engine.write_text(ENGINE.format(words=words, others=others))
    case = one(app, sent(1), {"sleep_ms": 50}, sent(2), {"sleep_ms": 2000})
    with CasePool(1) as pool:
        search = fuzz.Search(engine, pool, deadline_s=float("inf"))
        found = list(search.round([case]))
    assert bool(found) != is_of_ties
    assert ["one millisecond" in reason for reason in search.explained] == [True] * is_of_ties


def test_events_are_put_apart_from_each_other_and_from_timers_of_the_start() -> None:
    case = one(TWO, sent(1), {"sleep_ms": 100}, sent(2), sent(3), {"advance_ms": 5})
    made = apart(case)
    assert "time(97 milliseconds)" in made["app"]
    assert "timeBatch(993 milliseconds)" in made["app"]
    now_ms, times = 0, []
    for step in made["inputs"]:
        now_ms += step.get("sleep_ms", 0)
        if "stream" in step:
            times.append(now_ms % 50)
    assert len({0, *times}) == 4
    assert [step for step in made["inputs"] if "sleep_ms" not in step] == [
        sent(1), sent(2), sent(3), {"advance_ms": 5},
    ]  # fmt: skip


def test_in_playback_times_among_the_data_move_with_the_events() -> None:
    inputs = [{"stream": "S", "ts": 10_000, "data": [a, 9_880]} for a in (1, 2)]
    made = apart(one("from S select a insert into Out;", *inputs))
    assert made["inputs"] == [
        {"stream": "S", "ts": 10_000, "data": [1, 9_880]},
        {"stream": "S", "ts": 10_001, "data": [2, 9_881]},
    ]
