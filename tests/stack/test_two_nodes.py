"""Two nodes and a witness: the commands of docs/two-nodes.md, word for word, and each node lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from bench.chaos import namespaces
from mesh.jetstream.connection import UNREACHABLE, close, connect
from mesh.model import names
from mesh.settings import NatsSettings
from tests.support.hosts import Hosts, blocks
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.support.hosts import Host

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1800)]

URL = ",".join(f"nats://198.18.0.{n}:4222" for n in (11, 12, 13))
#: Events a second, and how many pass before and after each change.
RATE = 20
SOME = 60
#: Longest time for the output of all events, seconds.
OUT_S = 300.0
COMMANDS = blocks((ROOT / "docs" / "two-nodes.md").read_text("utf-8"))


def why_not() -> str:
    if reason := namespaces.why_not():
        return reason
    for program in ("unshare", "nsenter", "hostname"):
        if shutil.which(program) is None:
            return f"needs {program}"
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/run"]
    said = subprocess.run(probe, capture_output=True, text=True, check=False)
    return f"mounts can't be made: {said.stderr.strip()}" if said.returncode else ""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[dict[str, Host]]:
    with Hosts(tmp_path) as made:
        for host in made.hosts.values():
            shutil.copy(ROOT / "conf" / "two-nodes" / "counts.siddhi", host.home / "work")
        yield made.hosts | {"all": made}  # type: ignore[dict-item]  # the test takes it out


async def patiently(ask: Callable[[], Awaitable[Any]]) -> Any:
    """An answer, asked for again while the servers elect a leader."""
    async with asyncio.timeout(OUT_S):
        while True:
            try:
                return await ask()
            except UNREACHABLE:
                await asyncio.sleep(0.2)


class Load:
    """Numbers published without a gap, and the rows that came of them."""

    def __init__(self, home: Path) -> None:
        self._keys = home / "work" / "nats" / "keys"
        self.sent = 1
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def _settings(self, name: str) -> NatsSettings:
        prefix = "_INBOX.manager" if name == "manager" else ""
        return NatsSettings(
            url=URL, nkey_seed_file=str(self._keys / f"{name}.nk"), inbox_prefix=prefix
        )

    async def publish(self) -> None:
        """Publish until it is over; a repeated number is stored once."""
        client = await connect(self._settings("till"), "till")
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
                await asyncio.sleep(1 / RATE)
        finally:
            await close(client)

    async def end(self) -> None:
        self._is_over = True

    async def rows(self, client: Any, first: int = 1) -> list[tuple[float, dict[str, Any]]]:
        """Times and rows of the output, from a sequence on."""
        js, found = client.jetstream(timeout=2), []
        stream = names.js_stream("Counts", "Sums")
        last = (await patiently(partial(js.stream_info, stream))).state.last_seq
        for sequence in range(first, last + 1):
            message = await patiently(partial(js.get_msg, stream, sequence, direct=True))
            if (message.data or b"").startswith(b"{"):
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


def longest_gap(rows: list[tuple[float, dict[str, Any]]]) -> float:
    """The longest time without a row, seconds."""
    return max(later[0] - earlier[0] for earlier, later in itertools.pairwise(rows))


def test_the_page_is_followed_and_each_node_dies_once(hosts: dict[str, Any]) -> None:
    if reason := why_not():
        pytest.skip(reason)
    asyncio.run(follow(hosts.pop("all"), hosts))


async def follow(all_: Hosts, hosts: dict[str, Host]) -> None:
    steps = iter(COMMANDS)

    async def step(host: str) -> str:
        wanted, commands = next(steps)
        assert wanted == host
        return await asyncio.to_thread(hosts[host].run, commands)

    await step("a")
    for name in ("b", "w"):
        shutil.copytree(hosts["a"].home / "work" / "nats", hosts[name].home / "work" / "nats")
    for host in ("w", "a", "b", "a", "b", "a"):
        await step(host)
    assert 'app "Counts" is running' in await step("a")
    await step("w")

    load = Load(hosts["a"].home)
    client = await connect(load._settings("manager"), "reader")
    publishing = asyncio.create_task(load.publish())
    try:
        await load.more(client, SOME)
        # The page's order: a dies, b does all; a is back; b dies.
        first = await _lost(all_, "a", load, client)
        shown = await step("b")
        assert "worker a is gone" in shown
        assert 'app "Counts" is running' in shown
        all_.boot("a")
        await step("a")
        await load.more(client, SOME)
        shown = await step("b")
        assert "Counts-sums-1" in shown
        second = await _lost(all_, "b", load, client)
        assert next(steps, None) is None
        await load.end()
        await publishing
        await _all_out(load, client)
        rows = [row for _, row in await load.rows(client)]
    finally:
        publishing.cancel()
        await close(client)
    numbers = [row["n"] for row in rows]
    assert numbers == list(range(load.sent))
    assert [row["seen"] for row in rows] == list(range(1, load.sent + 1))
    assert rows[-1]["total"] == sum(numbers)
    if "MESH_SHOW" in os.environ:
        print(f"pauses: {first:.1f} s without a, {second:.1f} s without b")  # noqa: T201


async def _lost(all_: Hosts, name: str, load: Load, client: Any) -> float:
    """A host dies under load; the pause until the next output, seconds."""
    stream = names.js_stream("Counts", "Sums")
    before = (await patiently(partial(client.jetstream().stream_info, stream))).state.last_seq
    await asyncio.to_thread(all_.die, name)
    await load.more(client, SOME)
    return longest_gap(await load.rows(client, before))


async def _all_out(load: Load, client: Any) -> None:
    async with asyncio.timeout(OUT_S):
        while (missing := load.sent - len(await load.rows(client))) > 0:
            await load.more(client, missing)


def test_every_command_of_the_page_is_for_a_known_host() -> None:
    assert [host for host, _ in COMMANDS] == list("awabab") + list("aawbab")
