"""Events on which a query fails leave the group once, with a place in the order of its output."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from mesh import client
from mesh.language.parser import parse
from mesh.operators.executor import ExecutionMode, Executor, InputRun
from mesh.operators.failures import FAILED
from mesh.plan.bind import bind
from mesh.telemetry.logs import TextFormatter
from tests.support.recorder import stored
from tools.cases import batch, values

DEFINE = """
define stream S (k string, a int);
define stream R (k string, b int);
define function part[python] return double {
    return 12 / data[0]
};
define function two[python] return double {
    return 12 / (data[0] - data[1])
};
"""
APPS = {
    "window": "@info(name='q') from S#window.length(3)[part(a) > 1.0] select k, sum(a) as t "
    "insert into O;",
    "selector": "@info(name='q') from S#window.lengthBatch(2) select k, part(a) as t "
    "insert all events into O; @info(name='p') from S select k, part(a - 1) as t insert into O;",
    "partition": "partition with (k of S) begin "
    "@info(name='q') from S#window.length(2) select k, a, part(a) as t insert into #I; "
    "@info(name='p') from #I select k, part(a - 2) as u insert into O; end;",
    "keys": "partition with (ifThenElse(part(a) > 5.0, 'few', 'many') of S) begin "
    "@info(name='q') from S select k, a, count() as n insert into #I; "
    "@info(name='p') from #I select k, part(a - 2) as u insert into O; end;",
    "pattern": "@info(name='q') from every e1=S -> e2=R[b > e1.a] "
    "select e1.k as k, part(e2.b - 3) as t insert into O;",
    "filter": "@info(name='q') from every e1=S -> e2=R[e1.k == k and part(b) > 2.0] "
    "select e1.k as k, part(e2.b + 1) as t insert into O;",
    "filter of an earlier event": "@info(name='q') from every e1=S -> "
    "e2=R[part(e1.a) > 2.0 or b > 3]<2:3> select e1.k as k, e2[0].b + 0.0 as t insert into O;",
    "filter in a chain": "@info(name='q') from every e1=S -> e2=R[two(e1.a, b) > 2.0] "
    "within 40 milliseconds select e1.k as k, part(e2.b + 1) as t insert into O;",
    "update": "define table T (k string, t double); "
    "from S[a > 3] select k, 1.0 as t insert into T; @info(name='q') from S select k, a "
    "update T set T.t = part(a) on T.k == k and part(a - 1) > 0.0; "
    "from S join T on S.k == T.k select S.k as k, T.t as t insert into O;",
    "join": "@info(name='q') from S#window.length(2) as s join R#window.length(2) as r "
    "on s.k == r.k select s.k as k, part(s.a - r.b) as t insert into O;",
    "condition": "@info(name='q') from S#window.length(2) as s left outer join "
    "R[part(b) > 0.0]#window.length(2) as r on part(s.a - r.b) > 1.0 "
    "select s.k as k, r.b as t insert into O;",
    "looked up": "define table T (k string, n int); define window W (k string, n int) length(3); "
    "from S[a > 3] select k, a as n insert into T; from S[a > 2] select k, a as n insert into W; "
    "@info(name='q') from S left outer join T on part(S.a - T.n) > 1.0 "
    "select S.k as k, T.n as t insert into O; "
    "@info(name='p') from S join W on part(S.a - W.n + 1) > 1.0 "
    "select S.k as k, W.n as t insert into O;",
    "refused": "@PrimaryKey('k') define table T (k string, t double); "
    "@info(name='q') from S[a > 3] select k, 1.0 as t insert into T; "
    "@info(name='p') from S join T on S.k == T.k select S.k as k, T.t as t insert into O;",
    "table": "define table T (k string, t double); "
    "@info(name='q') from S[part(a) > 0.0] select k, part(a - 1) as t insert into T; "
    "@info(name='p') from S join T on S.k == T.k select S.k as k, T.t as t insert into O;",
}

#: Those that read both streams.
TWO = {app for app, text in APPS.items() if " R" in text or "=R" in text}

Row = tuple[int, str, int, list[Any]]


class Driver:
    """An executor fed with one fixed log, in any pieces."""

    def __init__(self, app: str, count: int = 60, mode: ExecutionMode = ExecutionMode.AUTO) -> None:
        chance = np.random.default_rng(5)
        self._app = bind(parse(DEFINE + APPS[app]))
        self._mode = mode
        self._inputs = [s for s in ("S", "R") if s == "S" or app in TWO]
        self._count = count
        self._times = 1_000 + np.cumsum(chance.integers(1, 9, count))
        self._rows = [
            [f"k{k}", int(a)]
            for k, a in zip(chance.integers(0, 3, count), chance.integers(0, 6, count), strict=True)
        ]
        self._executor = self._new()
        self.found: list[Row] = []

    def _new(self) -> Executor:
        return Executor(self._app, ["O", FAILED], mode=self._mode)

    def run(self, start: int, stop: int) -> None:
        """Events ``start`` to below ``stop``, each second one of the other stream."""
        runs = []
        for place, stream in enumerate(self._inputs):
            at = [n for n in range(start, stop) if n % len(self._inputs) == place]
            if at:
                rows = batch(self._app.stream(stream), [self._rows[n] for n in at])
                runs.append(InputRun(stream, np.array(at), self._times[at], rows))
        clock = int(self._times[stop - 1]) + 1
        for out in self._executor.run(runs, dict.fromkeys(self._inputs, clock)):
            told = zip(out.position.tolist(), out.time_ms.tolist(), values(out.rows), strict=True)
            self.found += [(p, out.stream, t, row) for p, t, row in told]

    def restart(self) -> None:
        state = stored(self._executor.snapshot())
        self._executor = self._new()
        self._executor.restore(state)

    def whole(self) -> list[Row]:
        self.run(0, self._count)
        return sorted(self.found)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("app", APPS)
def test_failed_events_have_the_same_places_however_the_input_is_cut(app: str) -> None:
    whole = Driver(app).whole()
    assert {stream for _, stream, _, _ in whole} == {"O", FAILED}
    assert [place for place, *_ in whole] == list(range(1, len(whole) + 1))
    chance = np.random.default_rng(9)
    for _ in range(4):
        driver, at = Driver(app), 0
        while at < 60:
            stop = min(60, at + int(chance.integers(1, 9)))
            driver.run(at, stop)
            driver.restart()
            at = stop
        assert sorted(driver.found) == whole


@pytest.mark.sampled(4)
@pytest.mark.parametrize("app", APPS)
def test_step_by_step_the_same_events_fail_in_the_same_places(app: str) -> None:
    assert Driver(app, mode=ExecutionMode.STEP).whole() == Driver(app).whole()


def test_what_is_told_says_which_event_failed_in_which_query_and_why() -> None:
    told = [row for _, stream, _, row in Driver("selector").whole() if stream == FAILED]
    assert {query for query, *_ in told} == {"q", "p"}
    for query, stream, reason, event in told:
        assert stream == "S"
        assert "ZeroDivisionError" in reason
        # A chunk fails as a whole.
        assert json.loads(event)["a"] == 1 or query == "q"
    (first, *_) = [row for _, stream, _, row in Driver("pattern").whole() if stream == FAILED]
    assert (first[1], json.loads(first[3])) == ("S, R", {"e1.k": "k1", "e2.b": 3})


@pytest.mark.parametrize("name", ["selector", "keys", "aggregation"])
def test_the_log_says_why(name: str, caplog: pytest.LogCaptureFixture) -> None:
    app = "define aggregation T from S[part(a) > 0.0] select sum(a) as t aggregate every sec;"
    client.play(
        DEFINE + APPS.get(name, app),
        [{"time": 1, "stream": "S", "event": {"k": "a", "a": at}} for at in (0, 1)],
    )
    assert caplog.records
    for record in caplog.records:
        line = TextFormatter().format(record)
        assert 'failed on an event: function "part" failed in line' in line
        assert re.search("(query|partition|aggregation)=", line)


FAULTY = "@OnError(action='stream') define stream F (k string, a int); "
QUERY = "from F#window.length(2) select k, part(a) as t insert into O; "


@pytest.mark.parametrize(
    ("queries", "outputs", "expected"),
    [
        (QUERY, ["O", FAILED], {FAILED}),
        (QUERY, ["O", "!F", FAILED], {"!F"}),
        (QUERY + "from !F select k insert into Faults;", ["O", "Faults", FAILED], {"Faults"}),
    ],
)
def test_what_nobody_takes_from_a_fault_stream_is_told(
    queries: str, outputs: list[str], expected: set[str]
) -> None:
    app = bind(parse(DEFINE + FAULTY + queries))
    executor = Executor(app, outputs)
    rows = batch(app.stream("F"), [["x", 0]])
    run = InputRun("F", np.array([1]), np.array([5]), rows)
    assert {out.stream for out in executor.run([run], {"F": 5})} == expected


def test_what_a_query_made_fails_the_event_that_set_it_off() -> None:
    """With the array it arrived in; a failure caused by a timer has no event, and is reported."""
    app = bind(
        parse(
            DEFINE
            + FAULTY
            + "from every e1=R -> e2=F select e1.k as r, part(e2.a) as t insert into O; "
            "from every e1=F -> not R for 5 milliseconds select part(e1.a) as t insert into P; "
        )
    )
    executor = Executor(app, ["O", "P", "!F", FAILED])
    runs = [
        InputRun("R", np.array([1, 2]), np.array([4, 4]), batch(app.stream("R"), [["x", 1]] * 2)),
        InputRun(
            "F",
            np.array([1, 2]),
            np.array([5, 5]),
            batch(app.stream("F"), [["y", 0], ["z", 1]]),
            chunk=np.array([1, 1]),
        ),
    ]
    found = executor.run(runs, {"R": 20, "F": 20})
    rows = {out.stream: [row[:2] for row in values(out.rows)] for out in found}
    assert rows["!F"] == [["y", 0], ["z", 1]]
    assert [json.loads(row[3]) for out in found for row in values(out.rows) if out.stream == "!"]
    assert rows["P"] == [[12.0]]
    assert "O" not in rows
