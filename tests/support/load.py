"""Numbers published to an app without a gap, and the rows that come of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nats.js.errors import NotFoundError

from mesh.jetstream.connection import UNREACHABLE, close, connect
from mesh.model import names
from mesh.settings import NatsSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from nats.js import JetStreamContext

#: Events a second.
RATE: Final = 20
#: Longest time for the output of all events, seconds.
OUT_S: Final = 300.0


async def patiently(ask: Callable[[], Awaitable[Any]]) -> Any:
    """An answer, asked for again while the servers elect a leader."""
    async with asyncio.timeout(OUT_S):
        while True:
            try:
                return await ask()
            except UNREACHABLE:
                await asyncio.sleep(0.2)


async def until(holds: Callable[[], Awaitable[bool]], pause_s: float = 0.1) -> None:
    """Wait until a condition of another process holds."""
    async with asyncio.timeout(OUT_S):
        while True:
            if await holds():
                return
            await asyncio.sleep(pause_s)


async def _stored(js: JetStreamContext, stream: str, sequence: int) -> Any:
    """A message; None for one that was deleted, as old markers are."""
    try:
        return await js.get_msg(stream, sequence)
    except NotFoundError:
        return None


class Load:
    """A publisher of numbers, and a reader of the output of `Counts`."""

    def __init__(self, keys: Path, url: str, first: int = 1, rate: int = RATE) -> None:
        """Publish nothing yet.

        Args:
            keys: folder of `mesh nats-config`, with the user `till`.
            url: of the servers.
            first: the first number.
            rate: events a second.
        """
        self._keys = keys / "keys"
        self._url = url
        self._rate = rate
        #: The number that is published next: all before it are acknowledged.
        self.sent = first
        self._is_over = False

    def settings(self, name: str) -> NatsSettings:
        """The settings of a connection of a role or a client."""
        prefix = "_INBOX.manager" if name == "manager" else ""
        seed = str(self._keys / f"{name}.nk")
        return NatsSettings(url=self._url, nkey_seed_file=seed, inbox_prefix=prefix)

    async def publish(self) -> None:
        """Publish until it is over; a repeated number is stored once."""
        client = await connect(self.settings("till"), "till")
        try:
            js = client.jetstream(timeout=2)
            while not self._is_over:
                headers = {"Nats-Msg-Id": str(self.sent)}
                data = json.dumps({"n": self.sent}).encode()
                try:
                    await js.publish(names.subject("Counts", "Numbers"), data, headers=headers)
                except (*UNREACHABLE, OSError):
                    await asyncio.sleep(0.1)
                    continue
                self.sent += 1
                await asyncio.sleep(1 / self._rate)
        finally:
            await close(client)

    def end(self) -> None:
        """Publish no more."""
        self._is_over = True

    async def rows(self, client: Any, first: int = 1) -> list[tuple[float, dict[str, Any]]]:
        """Times and rows of the output, from a sequence on."""
        js, found = client.jetstream(timeout=2), []
        stream = names.js_stream("Counts", "Sums")
        last = (await patiently(partial(js.stream_info, stream))).state.last_seq
        for sequence in range(first, last + 1):
            message = await patiently(partial(_stored, js, stream, sequence))
            # Markers are beside the rows, in JSON as well.
            if message is not None and message.subject == names.subject("Counts", "Sums"):
                found.append((message.time.timestamp(), json.loads(message.data)))
        return found

    async def more(self, client: Any, count: int) -> None:
        """Wait for so many more rows."""
        stream, wanted = names.js_stream("Counts", "Sums"), None
        async with asyncio.timeout(OUT_S):
            while True:
                with contextlib.suppress(*UNREACHABLE):
                    js = client.jetstream(timeout=5)
                    last = (await js.stream_info(stream)).state.last_seq
                    wanted = wanted or last + count
                    if last >= wanted:
                        return
                await asyncio.sleep(0.2)

    @contextlib.asynccontextmanager
    async def published(self) -> AsyncIterator[Callable[[Any], Awaitable[list[dict[str, Any]]]]]:
        """Publish meanwhile; called with a reader, what it yields ends that and returns all rows.

        Each number has then been counted once.
        """
        publishing = asyncio.create_task(self.publish())

        async def rows_of_all(client: Any) -> list[dict[str, Any]]:
            self._is_over = True
            await publishing

            async def are_all() -> bool:
                # All are read each time: some may be stored while others are read.
                return len(await self.rows(client)) >= self.sent

            await until(are_all)
            rows = [row for _, row in await self.rows(client)]
            assert sorted(row["n"] for row in rows) == list(range(self.sent))
            assert [row["seen"] for row in rows] == list(range(1, self.sent + 1))
            assert rows[-1]["total"] == sum(range(self.sent))
            return rows

        try:
            yield rows_of_all
        finally:
            publishing.cancel()
