"""Copies of a stream that differ, as two servers of three that lost their last writes leave them.

NATS leaves them so in some runs and repairs them in others, so the servers' answers are made here;
`make chaos ONLY=power-lost-by-two` has the real ones.
"""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import orjson
import pytest

from mesh.jetstream import copies
from mesh.jetstream.copies import Copies, different_sequences

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client

    from mesh.control.journal import JournalEntry
    from mesh.jetstream.journal import Journal

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
    seen = Copies(client, journal, leads)
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
def test_copies_are_compared_until_they_can_be(
    monkeypatch: pytest.MonkeyPatch, current: bool, silent: int, following: int
) -> None:
    monkeypatch.setattr(copies, "ATTEMPT_S", 0.0)
    led, third = of_two_that_failed(200)
    client = cast("Client", Servers(led, led, third, current=current, silent=silent))
    leads = itertools.chain([False] * following, itertools.repeat(True))
    text = f"found that NATS's copies of {STREAM} differ in sequences 101 to 200"
    assert asyncio.run(first_told(client, lambda: next(leads))) == text


def test_it_waits_for_the_servers_and_only_the_leader_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copies, "ATTEMPT_S", 0.0)
    led, third = of_two_that_failed(200)
    servers = Servers(led, led, third, offline=True)
    told: list[str] = []

    class Told:
        def note(self, entry: JournalEntry) -> None:
            told.append(f"{entry.app}: {entry.text}")

    async def play(*, leads: bool) -> None:
        seen = Copies(cast("Client", servers), cast("Journal", Told()), lambda: leads)
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
