"""Scripts of cases, and the legs in which another engine does them."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.language.parser import parse_app, parse_on_demand_query
from mesh.operators.executor import Executor
from mesh.plan.bind import bind, bind_on_demand
from mesh.testing.conformance import direct
from mesh.testing.conformance.cases import case
from tools.conformance.script import (
    AskCall,
    Command,
    Fresh,
    Leg,
    Recording,
    Replaying,
    SaveState,
    StepCall,
    StepResult,
    Taken,
    legs,
)

A, B, C, D = (StepCall(now_ms) for now_ms in range(4))
APP = (
    "define stream S (a int); define table T (a int); from S insert into T; "
    "@info(name='q') from S#window.time(10) select a, count() as n insert all events into Out;"
)
STEPS: list[dict[str, Any]] = [
    {"stream": "S", "data": [1]},
    {"snapshot": "one"},
    {"sleep_ms": 4},
    {"stream": "S", "data": [2]},
    {"restart": "one"},
    {"sleep_ms": 20},
    {"query": "from T select a"},
    {"query": "from Unknown"},
]


def cut(*commands: Command, halved: bool = False) -> list[tuple[int | None, list[int]]]:
    """Each leg's origin, and the numbers of the events sent in it."""
    found: list[Leg] = legs(commands, halved=halved)
    return [(leg.origin, [number for number, _ in leg.steps]) for leg in found]


def test_one_leg_does_what_nothing_interrupts() -> None:
    assert cut(Fresh(), A, B) == [(None, [0, 1])]


def test_a_leg_ends_where_its_state_is_kept_and_others_start_there() -> None:
    assert cut(Fresh(), A, SaveState(7), B, Taken(7), C) == [(None, [0]), (0, [1]), (0, [2])]


def test_a_new_start_has_no_origin() -> None:
    assert cut(Fresh(), A, SaveState(7), B, Fresh(), C, Taken(7), D) == [
        (None, [0]),
        (0, [1]),
        (None, [2]),
        (0, [3]),
    ]


def test_the_second_half_goes_on_where_the_first_ended() -> None:
    assert cut(Fresh(), A, B, C, D, halved=True) == [(None, [0, 1]), (0, [2, 3])]
    # The events sent by then may be all that its leg has.
    assert cut(Fresh(), A, B, SaveState(1), C, D, halved=True) == [(None, [0, 1]), (0, [2, 3])]


def test_a_script_played_back_is_the_run_that_it_was_made_of() -> None:
    asked = case({"name": "asked", "app": APP, "inputs": STEPS})
    app = bind(parse_app(APP))
    recording = Recording(asked, app)
    recording.all_steps()
    wanted = direct.answer({"name": "asked", "app": APP, "inputs": STEPS})
    assert recording.streams == wanted["streams"]

    made: dict[int, StepResult] = {}
    # The commands again, on executors of their own, as an engine would do them.
    states: dict[int, Any] = {}
    running = None
    number = 0
    for command in recording.commands:
        match command:
            case Fresh():
                running = Executor(app, ["Out"], ["q"], playback=False)
            case SaveState(mark):
                assert running is not None
                states[mark] = running.snapshot()
            case Taken(mark):
                assert running is not None
                running.restore(states[mark])
            case StepCall(now_ms, stream, time_ms, rows):
                assert running is not None
                made[number] = StepResult(
                    running.step(now_ms, stream, time_ms, rows), running.take_calls()
                )
                number += 1
            case AskCall(now_ms, text):
                assert running is not None
                answer = running.ask(bind_on_demand(parse_on_demand_query(text), app), now_ms)
                made[number] = StepResult(answer=answer)
                number += 1
    replaying = Replaying(asked, app, made)
    replaying.all_steps()
    assert replaying.streams == wanted["streams"]
    assert replaying.queries == wanted["queries"]
    assert replaying.ondemand == wanted["ondemand"]


def test_a_question_is_a_step_of_its_leg() -> None:
    asked = AskCall(1, "from T")
    assert cut(Fresh(), A, asked, SaveState(7), asked, B) == [(None, [0, 1]), (0, [2, 3])]


def test_a_question_without_an_answer_is_an_error() -> None:
    asked = case({"name": "asked", "app": APP, "inputs": STEPS})
    with pytest.raises(RuntimeError, match="has not answered"):
        Replaying(asked, bind(parse_app(APP)), {}).all_steps()
