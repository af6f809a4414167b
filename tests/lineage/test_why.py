"""Lineage of events of a running app, back to its input, through groups in a row.

Inputs of rows, compared with a brute-force search by another way of running the operators.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest

from mesh.errors import MeshError
from mesh.jetstream import channel_reader
from mesh.jetstream.channel_reader import LogMessage
from mesh.lineage import outputs, replay
from mesh.lineage.replay import Bases, EmittedRow, GroupReplay, events_of
from mesh.lineage.why import Lineage, contributors, inputs_of, shortest_prefix
from mesh.model import codec
from mesh.model.cluster import Assignment
from mesh.model.lineage import Budget
from mesh.operators.executor import ExecutionMode, Executor, InputRun
from mesh.plan.build import plan
from mesh.spark.instance_io import InstanceIO
from pyspark_nats.sink import messages_out
from tests.support.played import played, playing
from tools.cases import batch, values

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.model.app import GroupSpec
    from mesh.model.lineage import Cause
    from tests.support.backups import Mesh
    from tests.support.shared_query import Hand


pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

TEXT = """@App:name('Pair')
define stream Numbers (n long);
@dist(execGroup='even') from Numbers[n % 2 == 0] select n insert into Evens;
@dist(execGroup='sums') from Evens#window.length(3) select sum(n) as total insert into Sums;
@dist(execGroup='rises')
from every a=Sums -> b=Sums[total > a.total + 5]
select a.total as x, b.total as y insert into Rises;
@dist(execGroup='shown') from Rises[y > 0] select x, y insert into Shown;
"""


def leaves(cause: Cause) -> set[int]:
    """The events of the app's input in a lineage, by their numbers."""
    assert not cause.note, cause
    if not cause.group:
        return {int(cause.event["n"])}
    return {n for one in cause.inputs for n in leaves(one)}


@pytest.mark.slow
async def test_an_event_is_traced_through_filters_windows_and_patterns(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with playing(nats_server, tmp_path) as (have, runner):
        await have.service.deploy(TEXT)
        one = await played(have, "Pair", hand, runner)
        hand.publish("Pair", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
        # The sums of three are 2, 6, 12, 18, 24: each but the last is risen above.
        await one.until("Shown", 4)
        lineage = Lineage(have.client, one.record)
        first = await first_of(have, "mesh-Pair-Shown", "mesh.Pair.Shown")
        found = await lineage.why("Shown", first)
        assert (found.stream, found.group) == ("Shown", "shown")
        # The process of a manager says the same.
        told = await have.service.past.why("Pair", "Shown", first, 0)
        assert told == codec.to_values(found)
        assert found.event in ({"x": x, "y": y} for x, y in one.rows("Shown"))
        (rise,) = found.inputs
        assert (rise.stream, rise.group, rise.event) == ("Rises", "rises", found.event)
        totals = [cause.event["total"] for cause in rise.inputs]
        assert {found.event["x"], found.event["y"]} <= set(totals)
        assert all(cause.group == "sums" for cause in rise.inputs)
        # Every number of the two sums, and no odd one.
        assert leaves(found) <= {2, 4, 6, 8, 10}
        assert {2, 4, 6} <= leaves(found)
        with pytest.raises(MeshError, match="no event"):
            await lineage.why("Shown", 10_000)
        # An event from before an edit of its group is not one from outside.
        spec = one.record.spec
        groups = tuple(replace(g, edit=g.edit + 1) for g in spec.groups)
        edited = replace(one.record, spec=replace(spec, groups=groups))
        told = await Lineage(have.client, edited).why("Shown", first)
        assert (told.group, told.inputs) == ("shown", ())
        assert "with an earlier text" in told.note
        # Work is bounded: the nearest group is recomputed, and those before it are named.
        short = await Lineage(have.client, one.record, Budget(work=1)).why("Shown", first)
        (nearest,) = short.inputs
        assert [c.event for c in nearest.inputs] == [c.event for c in rise.inputs]
        assert all("too much work" in c.note and not c.inputs for c in nearest.inputs)
        # What retention has taken is named, and nothing is guessed.
        await have.client.jetstream().purge_stream("mesh-Pair-Numbers", seq=4)
        cut = await Lineage(have.client, one.record, Budget()).why("Shown", first)
        notes = [evens.note for sums in cut.inputs[0].inputs for evens in sums.inputs]
        assert any("is gone" in note for note in notes), cut
        await one.stop()


SUMS = """@App:name('Pair')
define stream Numbers (n long);
@dist(execGroup='sums') from Numbers select sum(n) as total insert into Sums;
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_long", [False, True])
async def test_an_event_whose_first_inputs_are_gone_is_traced_from_a_backup(
    hand: Hand,
    nats_server: NatsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_long: bool,
) -> None:
    async with playing(nats_server, tmp_path) as (have, runner):
        await have.service.deploy(SUMS)
        one = await played(have, "Pair", hand, runner)
        js = have.client.jetstream()
        hand.publish("Pair", 2, 4, 6, 8)
        await one.until("Sums", 4)
        await one.share()
        backup = await have.service.backups.make("Pair")
        hand.publish("Pair", 10, 12, 14)
        await one.until("Sums", 7)
        last = await js.get_last_msg("mesh-Pair-Sums", "mesh.Pair.Sums")
        if is_long:
            monkeypatch.setattr(replay, "REPLAYED_MAX", 4)
            with pytest.raises(MeshError, match="too much to recompute"):
                await Lineage(have.client, one.record).why("Sums", last.seq or 0)
        else:
            await js.purge_stream("mesh-Pair-Numbers", seq=4)
            blind = await Lineage(have.client, one.record).why("Sums", last.seq or 0)
            assert "Retention has taken" in blind.note
            assert not blind.inputs
        bases = Bases(have.client, have.pieces, one.record)
        found = await Lineage(have.client, one.record, bases=bases).why("Sums", last.seq or 0)
        assert f"before backup {backup.revision}" in found.note
        assert [cause.event["n"] for cause in found.inputs] == [10, 12, 14]
        await one.stop()


TWO = """@App:name('Pair')
define stream Numbers (n long);
@dist(execGroup='even') from Numbers[n % 2 == 0] select n insert into Evens;
@dist(execGroup='sums') from Evens#window.length(3) select sum(n) as total insert into Sums;
"""


@pytest.mark.slow
async def test_rows_of_ingest_batches_are_traced(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    """They tell their producer and position, and no marker ends them."""
    async with playing(nats_server, tmp_path) as (have, runner):
        await have.service.deploy(TWO)
        one = await played(have, "Pair", hand, runner)
        for n in range(1, 200, 10):
            hand.publish("Pair", *range(n, n + 10))
            await one.until("Sums", (n + 9) // 2)
        traced = []
        for stream in ("Evens", "Sums"):
            last = await have.client.jetstream().get_last_msg(
                f"mesh-Pair-{stream}", f"mesh.Pair.{stream}"
            )
            assert messages_out.HEADER in (last.headers or {})
            lineage = Lineage(have.client, one.record)
            traced.append(leaves(await lineage.why(stream, last.seq or 0)))
        # The first of its message of several events.
        assert traced[0] in ({n} for n in range(192, 201, 2))
        assert traced[1] == {196, 198, 200}
        (line,) = (await outputs._lines(have.client, one.record, "Evens", ["n"])).values()
        assert [item.event["n"] for item in line] == list(range(2, 201, 2))
        await one.stop()


async def first_of(have: Mesh, js_stream: str, subject: str) -> int:
    """The sequence of the first event of a stream."""
    found = await have.client.jetstream().get_msg(js_stream, 1, subject=subject, next=True)
    assert found.seq is not None
    return found.seq


KEYED = """@App:name('Pair')
define stream Numbers (n long);
@dist(execGroup='counts', parallel='2', partitions='4') partition with (n of Numbers) begin
from Numbers#window.lengthBatch(3) select n, count() as seen insert into Counts;
end;
"""


@pytest.mark.slow
async def test_an_event_of_a_group_that_is_divided_by_key_is_traced_to_events_with_its_key(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with playing(nats_server, tmp_path) as (have, runner):
        await have.service.deploy(KEYED)
        one = await played(have, "Pair", hand, runner)
        hand.publish("Pair", 1, 2, 1, 2, 7, 1)
        await one.until("Counts", 1)
        assert one.rows("Counts") == [[1, 3]]
        found = await Lineage(have.client, one.record).why(
            "Counts", await first_of(have, "mesh-Pair-Counts", "mesh.Pair.Counts")
        )
        copies = [(cause.group, cause.event) for cause in found.inputs]
        assert copies == [("partition-Numbers-n", {"n": 1})] * 3
        assert [c.sequence for copy in found.inputs for c in copy.inputs] == [1, 3, 6]
        # A fork makes copies of its own from the same input.
        await have.service.forks.fork("Pair", "Next")
        fork = await played(have, "Next", hand, runner)
        await fork.until("Counts", 1)
        assert fork.rows("Counts") == [[1, 3]]
        await fork.stop()
        await one.stop()


LONG = """@App:name('Pair')
define stream Numbers (n long);
@dist(execGroup='sums')
from Numbers#window.length(3) select n, sum(n) as total insert into Sums;
@dist(execGroup='shown') from Sums[n % 2 == 1] select n, total insert into Shown;
@dist(execGroup='pairs')
from Numbers#window.length(2) select n, sum(n) as total insert into Pairs;
"""


async def sequence_of(have: Mesh, stream: str, number: int) -> int:
    """The sequence of the JSON event about a number."""
    async for one in channel_reader.read(have.client, f"mesh-Pair-{stream}", 1, 2**62):
        if json.loads(one.data).get("n") == number:
            return one.sequence
    raise AssertionError(number)


@pytest.mark.slow
async def test_an_early_event_of_a_long_log_is_traced_and_a_late_one_is_refused_or_noted(
    hand: Hand, nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Logs and batches have more messages than are read: markers are far behind their rows.
    monkeypatch.setattr(replay, "REPLAYED_MAX", 40)
    monkeypatch.setattr(replay, "_RANGE_MAX", 20)
    monkeypatch.setattr(replay, "_NEAR", 4)

    async with playing(nats_server, tmp_path) as (have, runner):
        await have.service.deploy(LONG)
        one = await played(have, "Pair", hand, runner)
        hand.publish("Pair", *range(1, 201))
        await one.until("Shown", 100)
        await one.until("Pairs", 200)
        lineage = Lineage(have.client, one.record)
        for stream, number, inputs in (
            ("Shown", 3, {1, 2, 3}), ("Shown", 11, {9, 10, 11}), ("Pairs", 9, {8, 9}),
        ):  # fmt: skip
            found = await lineage.why(stream, await sequence_of(have, stream, number))
            assert (found.event["n"], leaves(found)) == (number, inputs)
        # More messages than are run again: nothing is guessed.
        with pytest.raises(MeshError, match='group "pairs" can\'t be explained') as error:
            await lineage.why("Pairs", await sequence_of(have, "Pairs", 199))
        assert error.value.code == "MESH-C153"
        late = await lineage.why("Shown", await sequence_of(have, "Shown", 199))
        (total,) = late.inputs
        assert (total.stream, total.event, total.inputs) == ("Sums", late.event, ())
        assert 'group "sums" can\'t be explained' in total.note
        await one.stop()


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
