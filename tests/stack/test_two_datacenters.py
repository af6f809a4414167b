"""Two datacenters: the commands of docs/two-datacenters.md word for word, and a loss of one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from mesh.jetstream.connection import close, connect
from mesh.model import names
from tests.support.hosts import Host, Hosts, blocks, why_not
from tests.support.load import Load, patiently, until
from tests.support.paths import ROOT
from tests.support.slow_link import SlowLink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nats.aio.client import Client

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1500)]

EAST, WEST = "198.18.0.11", "198.18.0.12"
#: Of the test, which is between the two.
HERE = "198.18.0.100"
DELAY_S = 0.05
RATE = 200
COMMANDS = blocks((ROOT / "docs" / "two-datacenters.md").read_text("utf-8"))
INPUT, OUTPUT = (names.js_stream("Counts", stream) for stream in ("Numbers", "Sums"))


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    with Hosts(tmp_path, ("east", "west")) as made:
        for name, host in made.hosts.items():
            work = host.home / "work"
            shutil.copy(ROOT / "conf" / "two-nodes" / "counts.siddhi", work)
            shutil.copy(ROOT / "conf" / "two-datacenters" / f"{name}.conf", work)
        yield made


def test_the_page_is_followed_and_the_first_datacenter_is_lost(hosts: Hosts) -> None:
    with SlowLink(EAST, 7422, DELAY_S) as link:
        asyncio.run(follow(hosts, link.port))


async def follow(all_: Hosts, port: int) -> None:
    steps = iter(COMMANDS)

    async def step(name: str) -> str:
        wanted, commands = next(steps)
        assert wanted == name
        # The way between the two is the slow one.
        commands = commands.replace(f"{EAST}:7422", f"{HERE}:{port}")
        return await asyncio.to_thread(all_.hosts[name].run, commands)

    await step("east")
    await step("west")
    east = load_of(all_.hosts["east"], EAST)
    west = load_of(all_.hosts["west"], WEST)
    there = await connect(east.settings("manager"), "there")
    here = await connect(west.settings("manager"), "here")
    publishing: list[asyncio.Task[None]] = []
    try:
        # East's mesh makes the streams of the app; its outputs are not looked at here.
        await make_input(there)
        await step("west")
        publishing.append(asyncio.create_task(east.publish()))
        await east.more(here, 500)
        assert 'app "Counts" is running' in await step("west")
        lost_s = time.monotonic()
        await asyncio.to_thread(all_.die, "east")
        east.end()
        publishing.pop().cancel()
        said = await step("west")
        promoted_s = time.monotonic() - lost_s
        assert "nothing" in said
        arrived = await last_of(here, INPUT)
        west.sent = json.loads((await message(here, INPUT, arrived)).data)["n"] + 1
        lost = east.sent - west.sent
        new = west.sent
        publishing.append(asyncio.create_task(west.publish()))

        async def is_out() -> bool:
            return bool((await last_row(here))["n"] >= new)

        await until(is_out, 0.02)
        first_s = time.monotonic() - lost_s
        await west.more(here, 500)
        west.end()
        await publishing[0]

        async def all_out() -> bool:
            return bool((await last_row(here))["n"] >= west.sent - 1)

        await until(all_out)
        rows = [row for _, row in await west.rows(here)]
    finally:
        for task in publishing:
            task.cancel()
        await close(there)
        await close(here)
    assert next(steps, None) is None
    # Every event that west has, once and in order; those lost are the last of east's.
    numbers = [row["n"] for row in rows]
    assert numbers == list(range(1, west.sent))
    assert [row["seen"] for row in rows] == numbers
    # The last one may be in west although its acknowledgement was cut off.
    assert -1 <= lost < 10 * RATE
    if "MESH_SHOW" in os.environ:
        print(  # noqa: T201
            f"lost {lost} events, {1000 * lost / RATE:.0f} ms; promoted after {promoted_s:.2f} s; "
            f"output after {first_s:.2f} s"
        )


def load_of(host: Host, address: str) -> Load:
    return Load(host.home / "work" / "nats", f"nats://{address}:4222", rate=RATE)


async def make_input(client: Client) -> None:
    from mesh.jetstream.channels import ensure_channels
    from mesh.plan.build import plan
    from mesh.settings import ChannelSettings

    text = (ROOT / "conf" / "two-nodes" / "counts.siddhi").read_text("utf-8")
    await ensure_channels(client, plan(text).spec, ChannelSettings())


async def last_of(client: Client, stream: str) -> int:
    info = await patiently(partial(client.jetstream().stream_info, stream))
    return int(info.state.last_seq)


async def message(client: Client, stream: str, sequence: int) -> Any:
    return await patiently(partial(client.jetstream().get_msg, stream, sequence))


async def last_row(client: Client) -> dict[str, Any]:
    """The last row of the output; the last message may be a marker."""
    subject = names.subject("Counts", "Sums")
    found = await patiently(partial(client.jetstream().get_last_msg, OUTPUT, subject))
    row: dict[str, Any] = json.loads(found.data)
    return row


def test_every_command_of_the_page_is_for_a_known_datacenter() -> None:
    assert [name for name, _ in COMMANDS] == ["east", *["west"] * 4]
