"""Copies of a stream that differ: NATS does not notice it, and each reader may get either one.

If most servers of a stream lose acknowledged messages, with their power, the others of them give
the sequences to new messages.  A server that has kept the old ones keeps them under these
sequences: NATS compares only what follows.  Reads are answered by any server, so an event that is
lost and the one in its place may both be read.

After an election, and once all servers of the stream are back, the leader's first message since
then is compared with the other copies.  For it is the first one that can be in place of another.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

from mesh.control.journal import of_different_copies
from mesh.jetstream.connection import UNREACHABLE, api_call, api_subject
from mesh.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client

    from mesh.jetstream.journal import Journal

log = logging.getLogger(__name__)

#: Time between attempts, while servers are away.
ATTEMPT_S: Final = 5.0
#: A stream whose servers do not all return is given up after this many attempts.
ATTEMPTS_MAX: Final = 720
#: Reads of one message: any server answers, and of three all are met with 99.5 % probability.
_READS: Final = 16
_TIMEOUT_S: Final = 5.0


@dataclass(eq=False, repr=False)
class Copies:
    """Compares the copies of streams after elections; the leading manager reports what differs."""

    _client: Client
    _journal: Journal
    #: Other managers compare nothing.
    _leads: Callable[[], bool]
    _elected: asyncio.Event = field(default_factory=asyncio.Event)
    #: By stream: the apps that use it, the times of its elections, and the attempts.
    _pending: dict[str, tuple[set[str], set[int], int]] = field(default_factory=dict)

    def note(self, stream: str, app: str, elected_ms: int) -> None:
        """Compare a stream of an app (of all, if empty) soon; it has elected a leader then."""
        apps, times, _ = self._pending.get(stream, (set(), set(), 0))
        self._pending[stream] = (apps | {app}, times | {elected_ms}, 0)
        self._elected.set()

    async def watch(self) -> None:
        """Compare streams as they elect leaders, without end."""
        while True:
            await self._elected.wait()
            await asyncio.sleep(ATTEMPT_S)
            for stream in list(self._pending):
                await self._attempt(stream)
            if not self._pending:
                self._elected.clear()

    async def _attempt(self, stream: str) -> None:
        apps, times, attempts = self._pending.pop(stream)
        if not self._leads():
            return
        try:
            found = await different_sequences(self._client, stream, sorted(times))
        except (*UNREACHABLE, ValueError, KeyError) as error:
            log.debug("copies not compared", extra=fields(stream=stream, error=error))
            if attempts < ATTEMPTS_MAX:
                later, more, _ = self._pending.get(stream, (set(), set(), 0))
                self._pending[stream] = (apps | later, times | more, attempts + 1)
            return
        for first, last in found:
            log.error("copies differ", extra=fields(stream=stream, first=first, last=last))
            for app in sorted(apps):
                self._journal.note(of_different_copies(app, stream, first, last))


async def different_sequences(
    client: Client, stream: str, since_ms: list[int]
) -> list[tuple[int, int]]:
    """The sequences under which servers hold different messages, as (first, last).

    Args:
        client: the connection.
        stream: the JetStream stream; without copies, or without direct reads, nothing differs.
        since_ms: times of elections, ms since 1970, rising: differences begin after one of them.

    Raises:
        OSError: a server of the stream is away, or has not caught up; others of NATS.
    """
    info = await _ask(client, f"STREAM.INFO.{stream}", {})
    replicas = info.get("cluster", {}).get("replicas", [])
    if not replicas or not info["config"].get("allow_direct"):
        return []
    if any(one.get("offline") or not one.get("current") for one in replicas):
        raise OSError(f"not all servers of {stream} are there")
    state = info["state"]
    found: list[tuple[int, int]] = []
    for elected_ms in since_ms:
        first = await _first_since(
            client, stream, elected_ms, state["first_seq"], state["last_seq"]
        )
        if first is None or (found and first <= found[-1][1]):
            continue
        if await _differs(client, stream, first):
            low, high = first, int(state["last_seq"])
            while low < high:
                middle = (low + high + 1) // 2
                if await _differs(client, stream, middle):
                    low = middle
                else:
                    high = middle - 1
            found.append((first, low))
    return found


async def _ask(client: Client, what: str, asked: dict[str, Any]) -> dict[str, Any]:
    found = await api_call(client, what, asked, _TIMEOUT_S)
    if "error" in found:
        raise OSError(f"{what}: {found['error'].get('description')}")
    return found


async def _stored(client: Client, stream: str, sequence: int) -> tuple[int, str]:
    """Sequence and time of the leader's first message from ``sequence`` on."""
    asked = {"seq": sequence, "next_by_subj": ">"}
    found = (await _ask(client, f"STREAM.MSG.GET.{stream}", asked))["message"]
    return int(found["seq"]), str(found["time"])


async def _first_since(
    client: Client, stream: str, since_ms: int, first: int, last: int
) -> int | None:
    """The leader's first message that is not older than ``since_ms``; None without one."""
    low, high = first, last + 1
    while low < high:
        middle = (low + high) // 2
        sequence, time = await _stored(client, stream, middle)
        if datetime.fromisoformat(time).timestamp() * 1000 < since_ms:
            low = sequence + 1
        else:
            high = middle
    return (await _stored(client, stream, low))[0] if low <= last else None


async def _differs(client: Client, stream: str, sequence: int) -> bool:
    """Whether a server has another message than the leader under a sequence, or none."""
    found, time = await _stored(client, stream, sequence)
    expected = time if found == sequence else None
    asked = orjson.dumps({"seq": sequence})
    for _ in range(_READS):
        direct_get = api_subject(client, f"DIRECT.GET.{stream}")
        answer = await client.request(direct_get, asked, timeout=_TIMEOUT_S)
        if (answer.headers or {}).get("Nats-Time-Stamp") != expected:
            return True
    return False
