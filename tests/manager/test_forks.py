"""Forks as events see them: another app over the same input, run without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError
from tests.support.backup_groups import TEXT, totals
from tests.support.played import played, playing

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.shared_query import Hand

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

SIMPLE = """@App:name('Pair')
define stream Numbers (n long);
@dist(execGroup='large') from Numbers[n > 5] select n insert into Large;
"""


def refused(code: str, error: pytest.ExceptionInfo[MeshError]) -> None:
    assert error.value.code == code, error.value.render()


@pytest.mark.slow
async def test_a_fork_reads_the_input_from_its_beginning_and_leaves_it_as_it_is(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with playing(nats_server, tmp_path) as (have, runner):
        await have.service.deploy(TEXT)
        first = await played(have, "Pair", hand, runner)
        hand.publish("Pair", *range(1, 6))
        await first.until("Totals", 5)
        before = await have.client.jetstream().stream_info("mesh-Pair-Numbers")
        done = await have.service.forks.fork(
            "Pair", "Next", text=TEXT.replace("n > 0", "n > 3"), begin="start"
        )
        assert (done.backup, done.copied, done.notes) == ("", 0, ())
        fork = await played(have, "Next", hand, runner)
        await fork.until("Totals", 2)
        hand.publish("Pair", 6)
        await fork.until("Totals", 3)
        await first.until("Totals", 6)
        assert fork.rows("Totals") == totals((4, 6))
        assert first.rows("Totals") == totals((1, 6))
        found = await have.service.past.compare("Pair", "Next", [], [])
        counts = {one["stream"]: (one["same"], one["gone"]) for one in found["streams"]}
        assert counts == {"Middle": (6, 0), "Sums": (6, 0), "Totals": (3, 3)}
        (cause,) = found["first"]["inputs"]
        assert (found["first"]["kind"], cause["event"]) == ("gone", {"n": 1})
        (name, *_) = found["first"]["app"]["event"]
        stream = found["first"]["stream"]
        for key, ignored in (([name], [name]), ([], ["absent"])):
            with pytest.raises(MeshError) as error:
                await have.service.past.compare("Pair", "Next", [stream], key, ignored)
            refused("MESH-A400", error)
        # Without that attribute the fork still lacks some rows.
        found = await have.service.past.compare("Pair", "Next", [stream], [], [name])
        assert name not in found["first"]["app"]["event"]
        assert found["first"]["kind"] == "gone"
        after = await have.client.jetstream().stream_info("mesh-Pair-Numbers")
        assert after.config == before.config
        # The six events, and no marker of the fork.
        assert after.state.last_seq == 6
        with pytest.raises(MeshError, match="is read by its fork"):
            await have.service.undeploy("Pair")
        await fork.stop()
        await first.stop()


@pytest.mark.slow
async def test_a_fork_continues_from_the_states_of_a_backup(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with playing(nats_server, tmp_path) as (have, runner):
        await have.service.deploy(TEXT)
        first = await played(have, "Pair", hand, runner)
        hand.publish("Pair", 1, 2, 3)
        await first.until("Totals", 3)
        await first.share("one", "three")
        hand.publish("Pair", 4, 5)
        await first.until("Totals", 5)
        await first.share("two")
        hand.publish("Pair", 6)
        await first.until("Totals", 6)
        # One is at 3, two at 5, three at 3, and the channels at 6.
        backup = await have.service.backups.make("Pair")
        hand.publish("Pair", 7, 8, 9)
        await first.until("Totals", 9)

        done = await have.service.forks.fork(
            "Pair", "Next", text=TEXT.replace("n > 0", "n > 4"), begin="backup"
        )
        assert done.backup == backup.revision
        # Row 6 of Middle, and rows 4 to 6 of Sums, in messages of several rows.
        assert done.copied >= 1 + 1
        fork = await played(have, "Next", hand, runner)
        await fork.until("Totals", 5)
        hand.publish("Pair", 10)
        await fork.until("Totals", 6)
        assert fork.rows("Totals") == totals((5, 10))
        await first.until("Totals", 10)
        found = await have.service.past.compare("Pair", "Next", [], [])
        assert [one for one in found["streams"] if one["stream"] == "Totals"] == [
            {"stream": "Totals", "same": 6, "new": 0, "gone": 0, "changed": 0, "earlier": 4}
        ]
        await fork.stop()
        await first.stop()

        # Group two has counted what group one emitted with another text: no state fits.
        other = TEXT.replace("from Numbers#", "from Numbers[n > 1]#")
        done = await have.service.forks.fork("Pair", "Other", text=other, begin="backup")
        assert not done.backup
        assert done.notes[0].startswith("No state is taken: ")


@pytest.mark.slow
async def test_a_fork_without_state_begins_and_ends_at_any_sequence(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with playing(nats_server, tmp_path) as (have, runner):
        await have.service.deploy(SIMPLE)
        hand.publish("Pair", *range(1, 21))
        done = await have.service.forks.fork("Pair", "Next", begin="8", until="12")
        assert done.begins == {"mesh-Pair-Numbers": 7}
        fork = await played(have, "Next", hand, runner)
        await fork.until("Large", 5)
        hand.publish("Pair", 21)
        await fork.run(lambda: False, rounds=10)
        assert fork.rows("Large") == [[n] for n in range(8, 13)]
        await fork.stop()


async def test_what_can_not_be_exact_is_refused(
    hand: Hand, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with playing(nats_server, tmp_path) as (have, _):
        await have.service.deploy(TEXT)
        hand.publish("Pair", *range(1, 11))
        fork = have.service.forks.fork
        with pytest.raises(MeshError) as error:
            await fork("Pair", "Pair")
        refused("MESH-A409", error)
        with pytest.raises(MeshError) as error:
            await fork("Gone", "Next")
        refused("MESH-A404", error)
        with pytest.raises(MeshError) as error:
            await fork("Pair", "Next", begin="backup")
        refused("MESH-A404", error)
        with pytest.raises(MeshError) as error:
            await fork("Pair", "Next", text=TEXT.replace("n long", "n long, m long"))
        refused("MESH-C150", error)
        stored = "@store(type='rdbms', jdbc.url='jdbc:sqlite:x', jdbc.driver.name='x')"
        table = f"{stored} @primaryKey('n') define table T (n long);\n@dist(execGroup='one')"
        with pytest.raises(MeshError) as error:
            await fork("Pair", "Next", text=TEXT.replace("@dist(execGroup='one')", table))
        refused("MESH-C151", error)
        await have.client.jetstream().purge_stream("mesh-Pair-Numbers", seq=5)
        with pytest.raises(MeshError) as error:
            await fork("Pair", "Next", begin="3")
        refused("MESH-A410", error)
        # The state before message 7 would need messages 1 to 4.
        with pytest.raises(MeshError) as error:
            await fork("Pair", "Next", begin="7")
        refused("MESH-A410", error)
        assert have.view.snapshot().app("Next") is None
        done = await fork("Pair", "Next", begin="start")
        gone = "messages 1 to 4 of mesh-Pair-Numbers"
        (note,) = done.notes
        assert note == f"Retention has taken {gone}: it begins after them, with an empty state."
