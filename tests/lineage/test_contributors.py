"""Inputs of rows, compared with a brute-force search by another way of running the operators."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest

from mesh.jetstream.channel_reader import LogMessage
from mesh.lineage.contributors import contributors, inputs_of, shortest_prefix
from mesh.lineage.replay import EmittedRow, GroupReplay, events_of
from mesh.model.cluster import Assignment
from mesh.operators.executor import ExecutionMode, Executor, InputRun
from mesh.plan.build import plan
from mesh.spark.instance_io import InstanceIO
from tools.cases import batch, values

if TYPE_CHECKING:
    from mesh.model.app import GroupSpec

COUNT = 24
S = "define stream S (k string, v int);\ndefine stream R (k string, w int);\n"
APPS = {
    "filter": "from S[v > 4]#window.length(1) select k, v insert into Out;",
    "length": "from S#window.length(4) select k, sum(v) as t insert into Out;",
    "batch": "from S#window.lengthBatch(5) select k, avg(v) as t group by k insert into Out;",
    "time": "from S#window.time(300 milliseconds) select k, max(v) as t insert into Out;",
    "expired": "from S#window.time(200 milliseconds) select k, v insert expired events into Out;",
    "having": "from S select k, count() as n group by k having n > 2 insert into Out;",
    "distinct": "from S#window.length(6) select distinctCount(v) as n insert into Out;",
    "pattern": "from every a=S[v > 6] -> b=S[k == a.k and v < a.v] within 2 sec "
    "select a.v as x, b.v as y insert into Out;",
    "sequence": "from every a=S[v > 3], b=S[v < 8] select a.v as x, b.v as y insert into Out;",
    "absent": "from every a=S[v > 7] -> not S[k == a.k] for 150 milliseconds "
    "select a.k as k, a.v as v insert into Out;",
    "join": "from S#window.length(3) join R#window.length(3) on S.k == R.k "
    "select S.k as k, v, w insert into Out;",
    "partition": "partition with (k of S) begin from S#window.length(2) "
    "select k, sum(v) as t insert into Out; end;",
}


def group_of(query: str) -> GroupSpec:
    spec = plan(f"@App:name('A')\n{S}{query}").spec
    (group,) = (g for g in spec.groups if g.stateful)
    return group


def events(seed: int) -> list[tuple[str, LogMessage]]:
    """Events of both streams with times of their own, in order."""
    draw = random.Random(seed)
    found, time_ms = [], 1_000_000
    for number in range(1, COUNT + 1):
        time_ms += draw.randrange(1, 120)
        stream = draw.choice("SSR")
        event = {"k": draw.choice("ab"), ("v" if stream == "S" else "w"): draw.randrange(10)}
        header = {"Mesh-Timestamp": str(time_ms)}
        found.append((stream, LogMessage(number, time_ms, "", orjson.dumps(event), header)))
    return found


def replay_of(group: GroupSpec, some: list[tuple[str, LogMessage]]) -> GroupReplay:
    io = InstanceIO(group, Assignment(group.instances[0], "A", group.name, 1, "i", "w", 1, 0))
    inputs = [
        events_of(js_stream, one.channel, [m for s, m in some if s == one.channel.stream.name])
        for js_stream, one in io.input_streams(0).items()
    ]
    return GroupReplay(io, 0, inputs, some[-1][1].time_ms)


def stepped(group: GroupSpec, some: list[tuple[str, LogMessage]]) -> list[str]:
    """The rows of events that arrive one by one, in the mode that defines the semantics."""
    from mesh.plan.bind.apps import bind_group

    app = bind_group(group)
    read = [i.channel.stream.name for i in group.inputs]
    executor = Executor(app, ["Out"], mode=ExecutionMode.STEP, salt="x")
    clocks = dict.fromkeys(read, 0)
    made = []
    for stream, message in some:
        if stream not in read:
            continue
        row = list(orjson.loads(message.data).values())
        run = InputRun(
            stream,
            np.array([message.sequence]),
            np.array([message.time_ms]),
            batch(app.stream(stream), [row]),
            np.array([message.sequence]),
        )
        clocks[stream] = message.time_ms
        made += executor.run([run], clocks, is_by_events=True)
    last = [max((m.time_ms for s, m in some if s == name), default=0) for name in read]
    made += executor.run([], dict(zip(read, last, strict=True)), is_by_events=True)
    return [
        EmittedRow("Out", 0, time_ms, tuple(row)).shown
        for run in made
        for time_ms, row in zip(run.time_ms.tolist(), values(run.rows), strict=True)
    ]


def check(name: str, seeds: tuple[int, ...], rows_max: int) -> None:
    """Compare the inputs of some rows with those of a brute-force search."""
    group = group_of(APPS[name])
    for seed in seeds:
        some = events(seed)
        replay = replay_of(group, some)
        rows = replay.rows()
        assert rows
        assert sorted(r.shown for r in rows) == sorted(stepped(group, some))
        for row in rows[-rows_max:]:
            wanted = replay.holds(row, rows)
            found = contributors(len(replay), partial(replay.is_held, wanted))
            inputs = [int(replay.inputs[w].sequence[n]) for w, n in replay.places[found].tolist()]
            (shown,) = wanted
            brute = []
            for _, message in some:
                left = [pair for pair in some if pair[1] is not message]
                if stepped(group, left).count(shown) < wanted[shown]:
                    brute.append(message.sequence)
            assert inputs == brute, row


@pytest.mark.parametrize("name", ["length", "pattern", "join", "having"])
def test_a_rows_inputs_are_those_of_a_brute_force_search(name: str) -> None:
    check(name, (1,), 1)


@pytest.mark.extended
@pytest.mark.parametrize("name", APPS)
def test_many_rows_inputs_are_those_of_a_brute_force_search(name: str) -> None:
    check(name, (2,), 4)


def test_inputs_that_offset_each_other_are_both_found() -> None:
    numbers = np.array([0] * 50 + [5, -5] + [0] * 50)

    def holds(mask: Any) -> bool:
        return bool(numbers[mask].sum() == 0)

    assert contributors(len(numbers), holds, each_max=0) == [50, 51]


def test_a_prefix_is_as_short_as_it_can_be() -> None:
    assert shortest_prefix(100, lambda mask: bool(mask[41])) == 42
    # Where a longer one is no better, all of it is kept.
    assert shortest_prefix(100, lambda mask: not mask[10]) == 100


def test_what_a_later_event_can_do_as_well_is_no_input() -> None:
    # A row of event 3, emitted when any later event moves the clock.
    def holds(mask: Any) -> bool:
        return bool(mask[3] and mask[4:].any())

    assert inputs_of(10, holds) == ([3], False, True)
    assert inputs_of(5, holds) == ([3, 4], False, True)
