"""Lineage of events of a running app, back to its input, through groups in a row."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from mesh.jetstream import channel_reader
from mesh.lineage import outputs, replay
from mesh.lineage.replay import Bases
from mesh.lineage.why import Lineage
from mesh.model import codec
from mesh.model.lineage import Budget
from pyspark_nats.sink import row_tags
from tests.support.played import played, playing

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
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
            assert row_tags.HEADER in (last.headers or {})
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
