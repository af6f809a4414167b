"""Fork, comparison, lineage and promotion of three stages, whose instances die in the middle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mesh.jetstream import channel_reader
from mesh.lineage.why import Lineage
from mesh.model import names
from tests.support.played import Played, played, playing

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.model.lineage import Cause
    from tests.support.backups import Mesh
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

TEXT = """@App:name('Pair')
define stream Numbers (n long);
define stream Joined (x long, n long);
@dist(execGroup='summed') define aggregation Totals from Joined
select x, sum(n) as total group by x aggregate every sec ... year;
@dist(execGroup='rises')
from every a=Numbers[n % 3 == 0] -> b=Numbers[n > a.n] select a.n as x, b.n as y insert into Rises;
@dist(execGroup='joined')
from Rises#window.length(4) as r join Rises#window.length(2) as m on r.x == m.x
select r.x as x, m.y as n insert into Joined;
@dist(execGroup='summed')
from Joined as j join Totals as t on j.x == t.x
within '2020-01-01 00:00:00', '2100-01-01 00:00:00' per 'years'
select j.x as x, j.n as n, t.total as total insert into Sums;
@dist(execGroup='shown') from Sums[total > 7L] select x, n, total insert into Shown;
"""
START_MS = 1_700_000_000_000
PIECES = [(3, 4, 6, 7, 1), (3, 4, 5, 6, 7), (9, 8, 10, 3, 4), (12, 13, 6, 7, 2)]


async def read_to_the_end(*apps: Played) -> None:
    """Run until nothing more comes out of any of the stages."""
    stored, calm = [-1], 0
    while calm < 4:
        await apps[0].run(lambda: False, rounds=3)
        found = [
            json.loads(one.hand.ask((f"$JS.API.STREAM.INFO.mesh-{one.app}-{stream}", b"")))
            for one in apps
            for stream in ("Rises", "Joined", "Sums", "Shown")
        ]
        numbers = [one["state"]["last_seq"] for one in found]
        stored, calm = numbers, calm + 1 if numbers == stored else 0


async def publish(have: Mesh, piece: int) -> None:
    """Store a piece of the events with times of their own: the totals are by their time."""
    for place, number in enumerate(PIECES[piece]):
        header = {names.EVENT_TIME_HEADER: str(START_MS + 1000 * piece + 10 * place)}
        data = json.dumps({"n": number}).encode()
        await have.client.jetstream().publish("mesh.Pair.Numbers", data, headers=header)


async def replaced(have: Mesh, old: Played, hand: Hand, runner: ThreadPoolExecutor) -> Played:
    """An app's instances after those that ran have died: at the snapshots that they had stored."""
    new = Played(have, old.app, hand, runner, epoch=6)
    await new.start()
    return new


def leaves(cause: Cause) -> list[int]:
    """The numbers of an event's inputs in the app's input."""
    assert not cause.note or cause.note.startswith("No input is needed alone"), cause
    if not cause.group:
        return [int(cause.event["n"])]
    return [n for one in cause.inputs for n in leaves(one)]


@pytest.mark.thorough
async def test_stages_that_die_in_the_middle_are_forked_compared_and_explained(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with playing(nats_server, tmp_path) as (have, runner):
        await have.service.deploy(TEXT)
        app = await played(have, "Pair", hand, runner)
        await publish(have, 0)
        await read_to_the_end(app)
        await app.share()
        await publish(have, 1)
        await read_to_the_end(app)
        # What came out after the snapshots is computed again, and is there once.
        app = await replaced(have, app, hand, runner)
        await publish(have, 2)
        await have.service.forks.fork("Pair", "Same", begin="start")
        other = TEXT.replace("total > 7L", "total > 20L")
        await have.service.forks.fork("Pair", "Next", text=other, begin="start")
        same = await played(have, "Same", hand, runner)
        fork = await played(have, "Next", hand, runner)
        await read_to_the_end(app, fork)
        await fork.share("rises", "summed")
        await publish(have, 3)
        await fork.run(lambda: False, rounds=2)
        fork = await replaced(have, fork, hand, runner)
        await read_to_the_end(app, fork, same)

        found = await have.service.past.compare("Pair", "Same", [], [])
        assert not found["differs"], found
        rows = app.rows("Shown")
        kept = [row for row in rows if int(str(row[2])) > 20]
        assert 0 < len(kept) < len(rows)
        assert fork.rows("Shown") == kept
        found = await have.service.past.compare("Pair", "Next", [], [])
        counts = {one["stream"]: (one["same"], one["new"], one["gone"], one["changed"])
                  for one in found["streams"]}  # fmt: skip
        assert counts["Shown"] == (len(kept), 0, len(rows) - len(kept), 0)
        for stream in ("Rises", "Joined", "Sums"):
            assert counts[stream][0] > 0
            assert counts[stream][1:] == (0, 0, 0)
        # The inputs of the first difference are those that lineage has for the row.
        first = found["first"]
        assert (first["stream"], first["kind"]) == ("Shown", "gone")
        told = {one["event"]["n"] for one in first["inputs"]}
        lineage = Lineage(have.client, app.record)
        assert told == set(leaves(await lineage.why("Shown", first["app"]["sequence"])))
        explained = 0
        async for one in channel_reader.read(have.client, "mesh-Pair-Shown", 1, 2**62):
            event = json.loads(one.data)
            if "x" not in event:
                continue
            numbers = leaves(await Lineage(have.client, app.record).why("Shown", one.sequence))
            # The two of its match, unless an equal row would do; and none that is in no match.
            explained += {event["x"], event["n"]} <= set(numbers)
            assert not {1, 2} & set(numbers), event
        assert explained >= len(rows) // 2
        for each in (fork, same, app):
            await each.stop()
