"""Copies of a stream that differ, as two servers of three that lost their last writes leave them.

NATS leaves them so in some runs and repairs them in others, so the servers' answers are made here;
`make chaos ONLY=power-lost-by-two` has the real ones.

Changes of leaders that NATS announces for its streams, in an app's story: a cluster of three.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import orjson
import pytest
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import ServiceUnavailableError

from mesh.control.journal import JournalEntry, of_elections, of_lost_quorum
from mesh.jetstream import copies
from mesh.jetstream.copies import Copies, different_sequences
from mesh.manager.manager import running
from mesh.model import codec, names
from mesh.settings import ChannelSettings, ManagerSettings, NatsSettings, Settings
from tests.support.nats_cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from mesh.jetstream.journal import Journal
    from mesh.jetstream.server import NatsServer
    from mesh.manager.manager import Manager


STREAM = "mesh-A-S"
#: When the power failed, ms since 1970.
FAILED_MS = 1_790_000_000_000


def message(number: int, is_later: bool) -> str:
    """Time of a message, one each millisecond; later ones were stored after the failure."""
    at_s = (FAILED_MS + number if is_later else FAILED_MS - 1000 + number) / 1000
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")


class Servers:
    """Answers of the servers of one stream; ``copies``: by server, time by sequence."""

    def __init__(
        self,
        *held: dict[int, str],
        offline: bool = False,
        current: bool = True,
        silent: int = 0,
    ) -> None:
        """``silent``: reads that only the leader answers, before the others do."""
        self.held = held
        self.offline = offline
        self.current = current
        self._turns = itertools.chain([held[0]] * silent, itertools.cycle(held))

    async def request(self, subject: str, data: bytes, **_: object) -> Any:
        asked, led = orjson.loads(data), self.held[0]
        answer: dict[str, Any]
        if subject == f"$JS.API.DIRECT.GET.{STREAM}":
            found = next(self._turns).get(asked["seq"])
            headers = {"Status": "404"} if found is None else {"Nats-Time-Stamp": found}
            return SimpleNamespace(headers=headers, data=b"")
        if subject == f"$JS.API.STREAM.INFO.{STREAM}":
            replica = {"current": self.current, "offline": self.offline}
            answer = {
                "config": {"allow_direct": True},
                "cluster": {"replicas": [replica] * (len(self.held) - 1)},
                "state": {
                    "messages": len(led),
                    "first_seq": min(led, default=0),
                    "last_seq": max(led, default=0),
                },
            }
        else:
            assert subject == f"$JS.API.STREAM.MSG.GET.{STREAM}"
            sequence = min(n for n in led if n >= asked["seq"])
            answer = {"message": {"seq": sequence, "time": led[sequence]}}
        return SimpleNamespace(data=orjson.dumps(answer))


def of_two_that_failed(kept: int) -> tuple[dict[int, str], dict[int, str]]:
    """One hundred are stored before, three hundred after; a third server has ``kept`` of before."""
    led = {n: message(n, is_later=n > 100) for n in range(1, 401)}
    return led, led | {n: message(n, is_later=False) for n in range(101, kept + 1)}


@pytest.mark.parametrize("kept", [101, 200, 400])
@pytest.mark.parametrize("times", [[FAILED_MS], [FAILED_MS - 5000, FAILED_MS, FAILED_MS + 1]])
def test_the_sequences_that_another_server_kept_are_found(kept: int, times: list[int]) -> None:
    led, third = of_two_that_failed(kept)
    client = cast("Client", Servers(led, led, third))
    assert asyncio.run(different_sequences(client, STREAM, times)) == [(101, kept)]


def test_a_message_that_one_server_lacks_differs() -> None:
    led, _ = of_two_that_failed(101)
    third = {n: time for n, time in led.items() if n not in (101, 102)}
    client = cast("Client", Servers(led, led, third))
    assert asyncio.run(different_sequences(client, STREAM, [FAILED_MS])) == [(101, 102)]


def test_equal_copies_differ_in_nothing_also_with_deleted_messages() -> None:
    led = {n: message(n, is_later=n > 100) for n in range(1, 401) if n % 3}
    client = cast("Client", Servers(led, led, led))
    times = [FAILED_MS - 5000, FAILED_MS, FAILED_MS + 60_000]
    assert asyncio.run(different_sequences(client, STREAM, times)) == []


def test_one_copy_is_compared_with_nothing() -> None:
    client = cast("Client", Servers(of_two_that_failed(101)[0]))
    assert asyncio.run(different_sequences(client, STREAM, [FAILED_MS])) == []


def test_a_server_that_lags_is_compared_in_what_it_has() -> None:
    led, third = of_two_that_failed(200)
    behind = {n: time for n, time in third.items() if n <= 250}
    client = cast("Client", Servers(led, led, behind, current=False))
    with pytest.raises(OSError, match="not all servers"):
        asyncio.run(different_sequences(client, STREAM, [FAILED_MS]))
    asked = different_sequences(client, STREAM, [FAILED_MS], with_lagging=True)
    assert asyncio.run(asked) == [(101, 200)]


def test_a_server_that_lags_and_has_what_others_have_is_asked_again() -> None:
    led = {n: message(n, is_later=n > 100) for n in range(1, 401)}
    behind = {n: time for n, time in led.items() if n <= 50}
    client = cast("Client", Servers(led, led, behind, current=False))
    with pytest.raises(OSError, match="has not caught up"):
        asyncio.run(different_sequences(client, STREAM, [FAILED_MS], with_lagging=True))


def test_an_empty_stream_differs_in_nothing() -> None:
    client = cast("Client", Servers({}, {}, {}))
    assert asyncio.run(different_sequences(client, STREAM, [FAILED_MS])) == []


class Rewriting(Servers):
    """Equal copies of a bucket, whose keys are written again before any copy is read."""

    async def request(self, subject: str, data: bytes, **given: object) -> Any:
        if subject == f"$JS.API.DIRECT.GET.{STREAM}":
            self.held[0].pop(orjson.loads(data)["seq"], None)
        return await super().request(subject, data, **given)


def test_a_key_that_is_written_while_it_is_read_does_not_differ() -> None:
    led = {n: message(n, is_later=n > 100) for n in range(1, 401)}
    client = cast("Client", Rewriting(led, led, led))
    assert asyncio.run(different_sequences(client, STREAM, [FAILED_MS])) == []
    assert 101 not in led


async def first_told(client: Client, leads: Callable[[], bool]) -> str:
    """The first entry of a manager that heard of one election."""
    entries: asyncio.Queue[JournalEntry] = asyncio.Queue()
    journal = cast("Journal", SimpleNamespace(note=entries.put_nowait))
    seen = Copies(client, journal, leads, attempt_s=0.0)
    seen.note(STREAM, "A", FAILED_MS)
    watching = asyncio.create_task(seen.watch())
    try:
        return (await entries.get()).text
    finally:
        watching.cancel()


@pytest.mark.parametrize(
    ("current", "silent", "following"),
    [(False, 0, 0), (True, 40, 0), (True, 0, copies.FOLLOWING_MAX)],
    ids=["never catches up", "answers no reads at first", "no manager led at first"],
)
def test_copies_are_compared_until_they_can_be(current: bool, silent: int, following: int) -> None:
    led, third = of_two_that_failed(200)
    client = cast("Client", Servers(led, led, third, current=current, silent=silent))
    leads = itertools.chain([False] * following, itertools.repeat(True))
    text = f"found that NATS's copies of {STREAM} differ in sequences 101 to 200"
    assert asyncio.run(first_told(client, lambda: next(leads))) == text


def test_it_waits_for_the_servers_and_only_the_leader_tells() -> None:
    led, third = of_two_that_failed(200)
    servers = Servers(led, led, third, offline=True)
    told: list[str] = []

    class Told:
        def note(self, entry: JournalEntry) -> None:
            told.append(f"{entry.app}: {entry.text}")

    async def play(*, leads: bool) -> None:
        seen = Copies(
            cast("Client", servers), cast("Journal", Told()), lambda: leads, attempt_s=0.0
        )
        for app in ("A", "B"):
            seen.note(STREAM, app, FAILED_MS)
        watching = asyncio.create_task(seen.watch())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not told
        servers.offline = False
        for _ in range(5000):
            await asyncio.sleep(0)
        watching.cancel()

    asyncio.run(play(leads=False))
    assert told == []
    servers.offline = True
    asyncio.run(play(leads=True))
    text = f"found that NATS's copies of {STREAM} differ in sequences 101 to 200"
    assert told == [f"A: {text}", f"B: {text}"]


ELECTED = "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED"
APP = "@App:name('A') define stream S (a int); from S[a > 1] select a insert into T;"


def told_leaders(entry: JournalEntry) -> dict[str, str]:
    """The leaders that an entry tells, by stream; of few streams, as it counts many."""
    beginning, _, parts = entry.text.partition("NATS reported new leaders: ")
    pairs = [part.split(" of ") for part in parts.split("; ") if not beginning and parts]
    return {stream: leader for leader, streams in pairs for stream in streams.split(", ")}


async def entries(client: Client, app: str) -> AsyncIterator[JournalEntry]:
    """The entries about ``app``, without end."""
    subject = names.journal_subject(app)
    found = await client.jetstream().subscribe(subject, ordered_consumer=True)
    while True:
        yield codec.decode(JournalEntry, (await found.next_msg(timeout=60)).data)


async def leader_other_than(client: Client, stream: str, former: str) -> str:
    """The leader of a stream, as soon as there is one that isn't ``former``."""
    async with asyncio.timeout(60):
        while True:
            # A stream without a leader has no server that answers.
            with contextlib.suppress(NatsTimeoutError, ServiceUnavailableError):
                info = await client.jetstream().stream_info(stream)
                assert info.cluster is not None
                if info.cluster.leader not in (None, "", former):
                    return str(info.cluster.leader)


async def step_down(client: Client, stream: str) -> str:
    """Make a stream's leader step down; returns the next one."""
    before = await leader_other_than(client, stream, "")
    await client.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", b"", timeout=10)
    return await leader_other_than(client, stream, before)


async def until_made(manager: Manager) -> None:
    """Wait until a manager leads and its view shows that the app's streams are made."""
    async with asyncio.timeout(60):
        while not manager.leads or all(a.value.making for a in manager.view.snapshot().apps):
            await manager.view.changed(manager.view.version, 0.1)


@pytest.mark.slow
async def test_an_app_is_told_of_its_streams_new_leaders_and_not_of_its_first(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path)
    # By stream.  A busy machine makes for elections that nobody asked for: they are told as well.
    elected: dict[str, list[str]] = {}

    async def hear(advisory: Msg) -> None:
        found = orjson.loads(advisory.data)
        elected.setdefault(found["stream"], []).append(found["leader"])

    async def told(manager: Manager, app: str, stream: str, leader: str) -> JournalEntry:
        async for entry in entries(manager.client, app):
            found = told_leaders(entry).get(stream)
            if found is not None and found in (leader, elected.get(stream, [""])[-1]):
                return entry
        raise AssertionError(stream)

    try:
        settings = Settings(
            nats=NatsSettings(url=cluster.urls()),
            manager=ManagerSettings(id="m1"),
            channels=ChannelSettings(replicas=3),
        )
        async with running(settings) as (manager, service):
            await manager.client.subscribe(f"{ELECTED}.*", cb=hear)
            await service.deploy(APP)
            await until_made(manager)
            leader = await step_down(manager.client, "mesh-A-S")
            first = await told(manager, "A", "mesh-A-S", leader)
            assert first.by == "manager m1"
            # Buckets belong to no app.
            other = await step_down(manager.client, "KV_mesh_snapshots")
            second = await told(manager, "", "KV_mesh_snapshots", other)
            story = [told_leaders(entry) for entry in await service.story("A")]
            assert any("KV_mesh_snapshots" in leaders for leaders in story)
            own = [stream for stream in elected if stream.startswith("mesh-A-")]
            again = {stream for leaders in story for stream in leaders}.intersection(own)
            assert all(len(elected[stream]) > 1 for stream in again), (story, elected)
            if sum(map(len, elected.values())) == len(own) + 2:
                # No other election than the first ones and the two that were asked for.
                assert first.text == f"NATS reported new leaders: {leader} of mesh-A-S"
                assert second.text == f"NATS reported new leaders: {other} of KV_mesh_snapshots"
                assert sum(map(bool, story)) == 2
    finally:
        cluster.stop()


@pytest.mark.slow
async def test_the_first_election_of_a_stream_is_no_news_though_it_is_heard_of_late(
    nats_server: NatsServer,
) -> None:
    settings = Settings(nats=NatsSettings(url=nats_server.url), manager=ManagerSettings(id="m1"))
    async with running(settings) as (manager, service):
        await service.deploy(APP)
        await until_made(manager)
        # One server elects nobody, so these are all there are.
        for stream, leader in (("mesh-A-S", "n1"), ("mesh-A-T", "n1"), ("mesh-A-S", "n2")):
            advisory = {"stream": stream, "leader": leader, "timestamp": "2026-01-01T00:00:00Z"}
            await manager.client.publish(f"{ELECTED}.{stream}", orjson.dumps(advisory))
        async for entry in entries(manager.client, "A"):
            if leaders := told_leaders(entry):
                assert leaders == {"mesh-A-S": "n2"}
                break


def test_leaders_are_told_server_by_server_and_many_streams_are_counted() -> None:
    leaders = {f"mesh-A-S{number}": "n1" for number in range(1, 7)} | {"mesh-A-T": "n2"}
    entry = of_elections("A", leaders)
    assert entry.app == "A"
    assert entry.text == (
        "NATS reported new leaders: "
        "n1 of mesh-A-S1, mesh-A-S2, mesh-A-S3, mesh-A-S4 and 2 more; n2 of mesh-A-T"
    )


def test_a_lost_quorum_is_told() -> None:
    assert of_lost_quorum("A", "mesh-A-S").text == (
        "NATS reported that mesh-A-S has lost its quorum"
    )
