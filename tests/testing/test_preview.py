"""The preview of a text: its outputs are those of the operators, each with its cause."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mesh.errors import MeshError
from mesh.language.parser import parse_app
from mesh.plan.bind import bind
from mesh.processes.bounded_process import BoundedProcess
from mesh.testing import payload_cases, preview
from mesh.testing.app_tests import TimedEvent
from mesh.testing.conformance.answers import event
from tools import cases

if TYPE_CHECKING:
    from collections.abc import Sequence

OPERATORS = Path(__file__).parents[1] / "cases" / "operators"
CASES = [
    pytest.param(case, id=f"{path.stem}: {case.name}")
    for path in sorted(OPERATORS.glob("*.jsonl"))
    for case in cases.read(path)
]
START_MS = 1_767_225_600_000
SHOP = """@App:name('Shop')
define stream Orders (item string, price double);
define stream Ads (item string);
@info(name='dear') from Orders[price > 100.0] select item, price insert into Dear;
from Orders#window.timeBatch(1 sec) select count() as n insert into Counts;
from Orders#window.length(3) as o join Ads#window.length(3) as a on o.item == a.item
select o.item as item insert into Seen;
"""


def lines(events: Sequence[TimedEvent]) -> str:
    return "\n".join(one.line() if one.stream else f'{{"time":{one.time_ms}}}' for one in events)


def order(seconds: float, item: str = "pen", price: float = 1.0) -> TimedEvent:
    at_ms = START_MS + round(seconds * 1000)
    return TimedEvent(at_ms, "Orders", {"item": item, "price": price})


def written(value: Any, kind: str) -> Any:
    """A value as JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return {"$t": kind, "v": text}
    return value


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_the_operators_to_the_last_bit(case: cases.Case) -> None:
    app = bind(parse_app(case.app))
    events = []
    for step in case.steps:
        if isinstance(step, int):
            events.append(TimedEvent(step))
            continue
        stream, time_ms, row = step
        kinds = [(a.name, a.type.value) for a in app.stream(stream).attributes]
        values = {n: written(v, kind) for (n, kind), v in zip(kinds, row, strict=True)}
        events.append(TimedEvent(time_ms, stream, values))
    played = preview.play(parse_app(case.app), events)
    for stream, rows in cases.run(case).items():
        attributes = app.stream(stream).attributes
        wanted = [[time_ms, event(time_ms, row, attributes)["data"]] for time_ms, row in rows]
        found = [
            [one["time"], list(one["event"].values())]
            for one in played.outputs
            if one["stream"] == stream
        ]
        assert json.dumps(found) == json.dumps(wanted), stream


def some_events(seed: int, count: int) -> list[TimedEvent]:
    """Events of two streams in random order of time, and times without one."""
    rng = random.Random(seed)
    events, now_ms = [], START_MS
    for _ in range(count):
        now_ms += rng.choice((0, 1, 400, 1000, 2500))
        item = rng.choice(("pen", "lamp"))
        match rng.randrange(5):
            case 0:
                events.append(TimedEvent(now_ms))
            case 1 | 2:
                late_ms = rng.choice((0, 0, 0, 700))
                values = {"item": item, "price": rng.choice((1.0, 150.0))}
                events.append(TimedEvent(max(START_MS, now_ms - late_ms), "Orders", values))
            case _:
                events.append(TimedEvent(now_ms, "Ads", {"item": item}))
    return events


@pytest.mark.parametrize("seed", range(5))
def test_an_output_is_caused_by_the_event_without_which_it_is_not_there(seed: int) -> None:
    events = some_events(seed, 40)
    whole = preview.play(parse_app(SHOP), events).outputs
    assert {one["timer"] for one in whole} == {True, False}
    chunked = preview.play(parse_app(SHOP), events, chunk_events=3)
    assert chunked.outputs == whole
    fed = {one.stream for one in events}
    for count in range(5, len(events)):
        some = events[:count]
        # Time is known up to a millisecond after the last event.
        is_later = events[count].time_ms > max(one.time_ms for one in some) + 1
        if is_later and {one.stream for one in some} == fed:
            found = preview.play(parse_app(SHOP), some, chunk_events=3).outputs
            assert found == [one for one in whole if one["input"] <= count]


def test_the_answer_has_causes_timers_failures_and_notes(tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    text = SHOP.replace(
        "@info",
        f"@store(type='rdbms', jdbc.url='jdbc:sqlite:{file}') define table Kept (item string);\n"
        "define stream Other (a int); @info",
        1,
    )
    text += "from Orders select item insert into Kept;\n"
    text += (
        "@info(name='bad') from Orders select convert(math:sqrt(item), 'int') as a insert into B"
    )
    text = text.replace("math:sqrt(item)", "json:getInt(item, '$.a')")
    events = [order(0, "lamp", 120.0), order(0.5), order(2.2), TimedEvent(START_MS + 4000)]
    events.append(TimedEvent(START_MS + 4000, "Other", {"a": 1}))
    found = preview.answer(text, lines(events))
    told = [(o["stream"], o["input"], o["timer"]) for o in found["outputs"] if o["stream"] != "B"]
    assert told == [("Dear", 1, False), ("Counts", 3, True), ("Counts", 4, True)]
    assert [one["time"] - START_MS for one in found["outputs"] if one["stream"] == "Counts"] == [
        500,
        2200,
    ]
    assert found["next_timer"] == START_MS + 5000
    assert found["failed_count"] == len(found["failed"])
    assert {one["query"] for one in found["failed"]} <= {"bad"}
    assert [note.split()[0] for note in found["notes"]] == ['"Kept"', "no"]
    assert not file.exists()


def test_a_failed_event_has_its_query_and_its_cause() -> None:
    text = """define stream S (a string);
    define function f[python] return int { return int(data[0]) };
    @info(name='q') from S select f(a) as b insert into T;"""
    events = [TimedEvent(START_MS + n, "S", {"a": a}) for n, a in enumerate(("1", "x", "3"))]
    found = preview.answer(f"@App:name('F') {text}", lines(events))
    assert [one["event"] for one in found["outputs"]] == [{"b": 1}, {"b": 3}]
    (failed,) = found["failed"]
    assert (failed["query"], failed["stream"], failed["input"]) == ("q", "S", 2)
    assert failed["event"] == {"a": "x"}
    assert "invalid literal" in failed["reason"]


def test_two_texts_are_shown_side_by_side() -> None:
    events = [order(n, "lamp", 50.0 * n) for n in range(6)]
    draft = SHOP.replace("price > 100.0", "price > 150.0 or price == 50.0")
    found = preview.answer(draft, lines(events), (), ("Shop", SHOP))["against"]
    assert (found["app"], found["differs"]) == ("Shop", True)
    dear = next(one for one in found["streams"] if one["stream"] == "Dear")
    assert [dear[kind] for kind in ("same", "new", "gone", "changed")] == [2, 0, 0, 1]
    rows = [(row["kind"], row["running"], row["draft"]) for row in dear["rows"]]
    shown = [(k, *(one and one["event"]["price"] for one in sides)) for k, *sides in rows]
    assert shown == [
        ("changed", 150.0, 50.0), ("same", 200.0, 200.0), ("same", 250.0, 250.0),
    ]  # fmt: skip
    counts = next(one for one in found["streams"] if one["stream"] == "Counts")
    assert counts["same"] == len(counts["rows"])
    assert not preview.answer(SHOP, lines(events), (), ("Shop", SHOP))["against"]["differs"]


@pytest.mark.parametrize("seed", range(3))
def test_a_kept_test_passes(seed: int, tmp_path: Path) -> None:
    text = SHOP.replace("Shop", "Läden") + "  -- \t a comment 'with' \"quotes\"\n"
    events = some_events(seed, 30)
    events.append(order(1000, 'a "b": \\ # ü \u2028 😀', math.pi))
    found = preview.answer(text, lines(events), keep=True)
    file = tmp_path / "kept.yaml"
    file.write_text(found["test"], encoding="utf-8")
    (case,) = payload_cases.read(file)
    assert case.differences() == []
    assert len(case.send) == len(events)
    assert sum(map(len, case.expect.values())) >= len(found["outputs"]) / 2
    wrong = payload_cases.PayloadCase(
        "w", text, case.send, {**case.expect, "Dear": []}, start=case.start
    )
    assert wrong.differences()


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        ("", "MESH-U160", "no events"),
        ("{}", "MESH-U160", "line 1"),
        ('{"time": 1, "stream": "None", "event": {}}', "MESH-U161", "no stream"),
        ('{"time": 1, "stream": "Ads", "event": {"a": 1}}', "MESH-U161", "other attributes"),
        ('{"time": 1, "stream": "Ads", "event": {"item": 1}}', "MESH-U161", "event 1"),
        ('{"time": 1e30, "stream": "Ads", "event": {"item": "a"}}', "MESH-U160", "line 1"),
        (f'{{"time": {10**30}, "stream": "Ads", "event": {{"item": "a"}}}}', "MESH-U160", ""),
        ('{"time": 1, "stream": "Ads", "event": {"item": "a"}}\n' * 10_001, "MESH-C172", "10,001"),
    ],
)
def test_events_that_can_not_be_played_are_refused(given: str, code: str, told: str) -> None:
    with pytest.raises(MeshError) as refused:
        preview.answer(SHOP, given)
    assert refused.value.code == code
    assert told in refused.value.render()


def test_a_test_at_no_time_of_a_calendar_is_not_kept() -> None:
    events = lines([TimedEvent(10**17, "Ads", {"item": "a"})])
    assert not preview.answer(SHOP, events)["outputs"]
    with pytest.raises(MeshError, match="MESH-U161"):
        preview.answer(SHOP, events, keep=True)


@pytest.mark.slow
def test_a_hostile_text_costs_only_itself() -> None:
    process = BoundedProcess("mesh.testing.preview", preview.exceeded)

    def answer(text: str, count: int = 1) -> Any:
        given = [TimedEvent(START_MS, "S", {"a": "x" * 1000})] * count
        function = "mesh.testing.preview:answer"
        return process.call(limit_s, function, f"@App:name('H') {text}", lines(given))

    define = "define stream S (a string);"
    many = f"{define} from S#window.length(20000) as l join S#window.length(20000) as r "
    many += "on l.a == r.a select l.a as a insert into T;"
    script = f"{define} define function f[python] return string {{ %s }}; "
    script += "from S select f(a) as b insert into T;"
    try:
        limit_s = 120.0
        assert answer(f"{define} from S select a insert into T;")["outputs"]
        with pytest.raises(MeshError, match="MESH-C172"):
            answer(many, 400)
        bomb = answer(script % "return 'x' * (8 << 30)")
        assert bomb["failed_count"] == 1
        assert "MemoryError" in bomb["failed"][0]["reason"]
        limit_s = 1.0
        with pytest.raises(MeshError, match="MESH-C172"):
            answer(script % "\nwhile True: pass\n")
        limit_s = 120.0
        assert answer(f"{define} from S select a insert into T;")["outputs"]
    finally:
        process.stop()
