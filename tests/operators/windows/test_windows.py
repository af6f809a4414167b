"""Windows alone: against the reference engine, cut anywhere, restored anywhere, by instance."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.operators.base import EventBatch, Timeline, join
from mesh.operators.windows import make_window
from mesh.operators.windows.native_window import NativeWindow
from mesh.operators.windows.python_window import PythonWindow
from mesh.plan.bound import Window
from tests.support import windows_driver as driver
from tests.support.paths import CASES

DIRECTORY = CASES / "windows"
#: Windows of the engine with its answers, and of extensions with answers of this version.
OF_THE_ENGINE = sorted(path.stem for path in DIRECTORY.glob("*.jsonl"))
FILES = {path.stem: driver.read(path) for path in sorted(DIRECTORY.rglob("*.jsonl"))}
WINDOWS = sorted(FILES)


@pytest.mark.parametrize("name", OF_THE_ENGINE)
def test_a_window_does_what_the_reference_engine_does(name: str) -> None:
    wrong = [case.app for case in FILES[name] if driver.run(case) != case.calls]
    assert wrong == []


def _table(events: EventBatch) -> list[Any]:
    columns = (
        events.time_ms,
        events.clock_ms,
        events.order,
        events.path,
        events.chunk,
        events.kind,
        events.instance,
    )
    # The content of a reset's row has no meaning.
    rows = [
        None if kind == 2 else row
        for row, kind in zip(events.rows.to_pylist(), events.kind.tolist(), strict=True)
    ]
    return [*(column.tolist() for column in columns), rows]


def _run(case: driver.Case, cuts: list[int] | None, *, restores: bool = False) -> list[Any]:
    window = make_window(case.bound, driver.SCHEMA, timer_path=0)
    return _table(driver.drive(window, case, cuts, restores=restores))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", WINDOWS)
def test_it_does_not_matter_how_the_input_is_cut(name: str) -> None:
    rng = random.Random(name)
    for case in FILES[name]:
        count = len(case.steps)
        whole = _run(case, [])
        assert _run(case, None) == whole, case.app
        for _ in range(3):
            cuts = rng.sample(range(count + 1), rng.randint(0, count))
            assert _run(case, cuts) == whole, case.app


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", WINDOWS)
def test_a_restored_window_goes_on_as_if_nothing_had_been(name: str) -> None:
    rng = random.Random(name)
    for case in FILES[name]:
        count = len(case.steps)
        whole = _run(case, [])
        assert _run(case, None, restores=True) == whole, case.app
        cuts = rng.sample(range(count + 1), min(2, count))
        assert _run(case, cuts, restores=True) == whole, case.app


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", WINDOWS)
def test_pieces_of_a_name_are_the_same_however_the_input_is_cut(name: str) -> None:
    rng = random.Random(name)
    for case in FILES[name][:10]:
        found: dict[str, pa.RecordBatch] = {}
        for cuts in (None, rng.sample(range(len(case.steps)), len(case.steps) // 2)):
            ends = range(len(case.steps) + 1) if cuts is None else sorted(cuts)
            for end in ends:
                part = replace(case, steps=case.steps[:end])
                window = make_window(case.bound, driver.SCHEMA, timer_path=0)
                driver.drive(window, part, [c for c in ends if c < end])
                for piece, rows in window.snapshot().pieces.items():
                    assert found.setdefault(piece, rows).equals(rows), (case.app, piece)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", WINDOWS)
def test_each_instance_of_a_partition_has_a_window_of_its_own(name: str) -> None:
    for case in FILES[name]:
        events, clocks = _of_instances(case, 3)
        together = _processed(case, events, clocks, cut=len(events) // 2)
        for instance in range(3):
            own = events.where(events.instance == instance)
            alone = _processed(case, own, clocks, cut=len(own) // 3)
            mine = together.where(together.instance == instance)
            assert _seen(mine) == _seen(alone), case.app


def _of_instances(case: driver.Case, count: int) -> tuple[EventBatch, Any]:
    events, clocks = driver.events_of(list(driver.sent(case.steps)), 0)
    # Events that are sent at once belong to one instance.
    return replace(events, instance=events.order // 2 % count), clocks


def _processed(case: driver.Case, events: EventBatch, clocks: Any, cut: int) -> EventBatch:
    window = make_window(case.bound, driver.SCHEMA, timer_path=0)
    now = int(clocks[-1]) + 1000 if len(clocks) else 0
    # Runs are cut between events that are not sent at once.
    while 0 < cut < len(events) and events.order[cut] == events.order[cut - 1]:
        cut += 1
    first = int(events.order[cut]) // 2 if cut < len(events) else len(clocks)
    middle = int(clocks[first - 1]) if first else 0
    parts = [
        window.process(events.slice(0, cut), Timeline(0, clocks[:first], middle)),
        window.process(events.slice(cut, len(events)), Timeline(first, clocks[first:], now)),
    ]
    return join(parts, driver.SCHEMA)


def _seen(events: EventBatch) -> list[Any]:
    table = _table(events)
    return [table[0], table[1], table[5], table[7]]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", WINDOWS)
def test_sweeping_and_forgetting_change_nothing_that_is_seen(name: str) -> None:
    for case in FILES[name][:15]:
        events, clocks = _of_instances(case, 3)
        window = make_window(case.bound, driver.SCHEMA, timer_path=0)
        assert isinstance(window, NativeWindow | PythonWindow)
        made = []
        for part in driver.chunks(events):
            number = int(part.order[0]) // 2
            clock = part.clock_ms[:1]
            made.append(window.process(part, Timeline(number, clock, int(clock[0]))))
            window.compact()
            window.forget(np.array([7]))
        now = int(clocks[-1]) + 1000 if len(clocks) else 0
        made.append(window.process(events.slice(0, 0), Timeline(len(clocks), clocks[:0], now)))
        plain = _processed(case, events, clocks, cut=0)
        swept = join(made, driver.SCHEMA)
        for instance in range(3):
            a, b = (e.where(e.instance == instance) for e in (plain, swept))
            assert _seen(a) == _seen(b), case.app


def test_a_forgotten_instance_begins_anew() -> None:
    case = driver.Case("length", [2], [], [])
    window = make_window(case.bound, driver.SCHEMA, timer_path=0)
    steps = [{"stream": "S", "data": ["a", v, 0.5, v], "ts": v} for v in range(4)]
    events, clocks = driver.events_of(list(driver.sent(steps)), 0)
    window.process(events.slice(0, 2), Timeline(0, clocks[:2], int(clocks[1])))
    assert window.content(0)[0].column("v").to_pylist() == [0, 1]
    window.forget(np.array([0]))
    assert window.content(0)[0].num_rows == 0
    made = window.process(events.slice(2, 4), Timeline(2, clocks[2:], int(clocks[3])))
    assert made.kind.tolist() == [0, 0]
    assert window.content(0)[1].tolist() == [driver.START_MS + 2, driver.START_MS + 3]


def test_a_window_without_an_operator_is_refused() -> None:
    with pytest.raises(Exception, match="MESH-O102"):
        make_window(Window("nothing", ()), driver.SCHEMA, timer_path=0)


def test_a_reset_may_go_alone() -> None:
    bound = driver.Case("timeBatch", [10, True], [], []).bound
    window = make_window(bound, driver.SCHEMA, timer_path=0, expired=False)
    steps = [{"data": ["a", 1, 0.5, 1], "ts": None}]
    events, clocks = driver.events_of(list(driver.sent(steps)), 0)
    first = window.process(events, Timeline(0, clocks, int(clocks[0])))
    then = window.process(events.slice(0, 0), Timeline(1, clocks[:0], int(clocks[0]) + 10))
    assert [first.kind.tolist(), then.kind.tolist()] == [[0], [2]]
