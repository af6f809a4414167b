"""The original's TCP protocol and its binary mapper: both ways, bounds and strangers."""

from __future__ import annotations

import asyncio
import re
import struct
import textwrap
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect.contract import Context, NodeAccess, Record
from mesh.errors import MeshError
from mesh.jetstream.server import free_port
from mesh.mapping import source_mapper
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.receiver import tcp_server
from mesh.receiver.tcp_server import TcpServers, message_of, parts_of
from mesh.receiver.types.tcp import TcpSink, TcpSource
from tests.support.connectors import staged
from tests.support.paths import ROOT
from tests.support.tcp_payloads import TIMES

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer


def test_the_client_of_the_page_writes_messages_of_the_protocol() -> None:
    page = (ROOT / "docs" / "connectors.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(import socket\n.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(program, "connectors.md", "exec"), names)
    written = names["message"]([(1700000000123, "boiler", 41.5), (1700000000124, "\u00fc", -1e-9)])
    assert struct.unpack_from(">bi", written) == (2, len(written) - 5)
    channel, payload = parts_of(written[5:])
    assert channel == "readings"
    kinds = (("sensor", AttributeType.STRING), ("value", AttributeType.DOUBLE))
    readings = StreamSchema("Readings", tuple(Attribute(*one) for one in kinds))
    found = source_mapper("binary", {}, (), readings).decode([payload])
    assert found.rows.to_pylist() == [
        {"sensor": "boiler", "value": 41.5},
        {"sensor": "\u00fc", "value": -1e-9},
    ]
    assert found.event_time_ms.to_pylist() == TIMES


async def test_contexts_share_an_address_and_a_stranger_is_disconnected() -> None:
    servers, got, whole = TcpServers(), dict[str, list[bytes]](), asyncio.Event()

    async def open_channel(name: str, port: int) -> int:
        async def take(payload: bytes) -> None:
            got.setdefault(name, []).append(payload)
            if sum(map(len, got.values())) == 3:
                whole.set()

        return await servers.open("127.0.0.1", port, name, take, NodeAccess(connections_max=8))

    port = await open_channel("a", 0)
    assert await open_channel("b", port) == port
    with pytest.raises(MeshError, match="served already"):
        await open_channel("b", port)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    for channel, payload in (("a", b"1"), ("nobody", b"2"), ("b", b"3"), ("a", b"4")):
        writer.write(message_of("s", channel, payload))
        # Its parts don't fill it, or have no text.
        for wrong in (b"", bytes(20), b"\0\0\0\0" + b"\0\0\0\1\xff" + b"\0\0\0\0"):
            writer.write(struct.pack(">bi", 2, len(wrong)) + wrong)
    for wrong in (
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">bi", 2, tcp_server.MESSAGE_BYTES_MAX + 1),
    ):
        reader, other = await asyncio.open_connection("127.0.0.1", port)
        other.write(wrong)
        assert await reader.read() == b""
        other.close()
    async with asyncio.timeout(10):
        await whole.wait()
    assert got == {"a": [b"1", b"4"], "b": [b"3"]}
    writer.close()
    await servers.close("127.0.0.1", port, "a")
    await servers.close("127.0.0.1", port, "b")
    with pytest.raises(OSError, match=r"refused|Connect call failed"):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_client_waits_while_bytes_of_its_messages_are_not_stored() -> None:
    port, access = free_port(), NodeAccess(listen=("127.0.0.1:0-65535",))
    source, sink, found, most = TcpSource(), TcpSink(), 0, 0
    options: dict[str, Any] = {"host": "127.0.0.1", "port": port}
    await source.open(Context("A", "S", options, access), None)
    source.arrived.bytes_max = 8 << 20
    await sink.open(Context("A", "T", {"url": f"tcp://127.0.0.1:{port}/A/S"}), None)

    async def send() -> None:
        for number in range(60):
            await sink.write([Record(str(number), bytes(1 << 20))])

    sending = asyncio.create_task(send())
    while found < 60:
        batch = await source.read()
        most = max(most, source.arrived.unstored_bytes)
        if batch is not None:
            found += len(batch.payloads)
            await source.committed(batch.position)
    await sending
    await source.close()

    async def send_on() -> None:
        while True:
            await sink.write([Record("n", b"x")])
            await asyncio.sleep(0)

    with pytest.raises(ConnectionError):
        await send_on()
    await sink.close()
    assert most <= 3 << 20


async def test_half_of_a_large_message_holds_up_no_other_for_long() -> None:
    servers, got = TcpServers(), asyncio.Queue[int]()

    async def take(payload: bytes) -> None:
        got.put_nowait(len(payload))

    access = NodeAccess(body_timeout_s=0.2)
    port = await servers.open("127.0.0.1", 0, "a", take, access)
    large = message_of("s", "a", bytes(2 << 20))
    halves = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
    for _, writer in halves:
        writer.write(large[: 1 << 20])
    async with asyncio.timeout(20):
        _, other = await asyncio.open_connection("127.0.0.1", port)
        other.write(message_of("s", "a", b"small") + large)
        assert [await got.get(), await got.get()] == [5, 2 << 20]
        for reader, writer in halves:
            # One that was left with octets unread is reset.
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
    other.close()
    await servers.close("127.0.0.1", port, "a")


async def test_an_address_has_half_of_the_connections() -> None:
    servers = TcpServers()

    async def take(_: bytes) -> None:
        return

    port = await servers.open("127.0.0.1", 0, "a", take, NodeAccess(connections_max=4))
    held = []
    for source in ("127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"):
        held.append(await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)))
        for stranger in {source, "127.0.0.1"} if len(held) >= 2 else ():
            if sum(w.get_extra_info("sockname")[0] == stranger for _, w in held) >= 2:
                reader, other = await asyncio.open_connection(
                    "127.0.0.1", port, local_addr=(stranger, 0)
                )
                assert await reader.read() == b""
                other.close()
    assert not any(reader.at_eof() for reader, _ in held)
    for _, writer in held:
        writer.close()
    await servers.close("127.0.0.1", port, "a")


@pytest.mark.nats
async def test_two_apps_of_the_original_s_samples(nats_server: NatsServer) -> None:
    port = free_port()
    text = f"""@App:name('Chain')
    @source(type='tcp', context='abc', host='127.0.0.1', port='{port}', @map(type='binary'))
    define stream Foo (attribute1 string, attribute2 int);
    @sink(type='tcp', url='tcp://127.0.0.1:{port}/back', sync='true', @map(type='binary'))
    define stream Bar (attribute1 string, attribute2 int);
    @source(type='tcp', context='back', host='127.0.0.1', port='{port}', @map(type='binary'))
    define stream Back (attribute1 string, attribute2 int);
    from Foo select attribute1, attribute2 insert into Bar;
    from Back select attribute1 insert into Out;
    """
    access = NodeAccess(listen=("127.0.0.1:0-65535",), egress=(f"127.0.0.1:{port}",))
    async with staged(nats_server, textwrap.dedent(text), access) as stage:
        for group in ("receiver-Foo", "receiver-Back", "sink-Bar"):
            await stage.until_running(stage.start(group))
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        event = struct.pack(">qi", 1700000000123, 3) + b"WSO" + struct.pack(">i", 5)
        writer.write(message_of("s", "abc", struct.pack(">i", 1) + event))

        async def first() -> Any:
            return await stage.events("Foo")

        assert await stage.until("Foo", first) == [{"attribute1": "WSO", "attribute2": 5}]
        await stage.publish("Bar", {"attribute1": "IBM", "attribute2": 6})

        async def back() -> Any:
            return await stage.events("Back")

        assert await stage.until("Back", back) == [{"attribute1": "IBM", "attribute2": 6}]
        writer.close()
