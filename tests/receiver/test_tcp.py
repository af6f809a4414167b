"""The original's TCP protocol and its binary mapper: both ways, bounds and strangers."""

from __future__ import annotations

import asyncio
import re
import struct
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect.contract import Context, NodeAccess, Record
from mesh.errors import MeshError
from mesh.jetstream.server import free_port
from mesh.mapping import sink_mapper, source_mapper
from mesh.mapping.contract import Refusal
from mesh.model.types import Attribute, AttributeType, StreamSchema
from mesh.receiver import tcp_server
from mesh.receiver.tcp_server import TcpServers, message_of, parts_of
from mesh.receiver.types import arrivals
from mesh.receiver.types.tcp import TcpSink, TcpSource
from tests.support.connectors import staged
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from mesh.jetstream.server import NatsServer

STREAM = StreamSchema(
    "S",
    tuple(
        Attribute(name, AttributeType(kind))
        for name, kind in zip(
            "silfdb", ("string", "int", "long", "float", "double", "bool"), strict=True
        )
    ),
)
#: Two events, and the message that has them for the context A/S, written by Java's
#: DataOutputStream as the original's client writes its buffers.
PAYLOAD = bytes.fromhex("""
    000000020000018bcfe5687b0000000349424dfffffffb00000100000000003fc00000bfb999999999999a0100
    00018bcfe5687c0000000000000007ffffffffffffffff000000007e37e43c8800759c00
""")
MESSAGE = bytes.fromhex("""
    020000006200000002733100000003412f5300000051000000020000018bcfe5687b0000000349424dfffffffb
    00000100000000003fc00000bfb999999999999a010000018bcfe5687c0000000000000007ffffffffffffffff
    000000007e37e43c8800759c00
""")
ROWS = [
    {"s": "IBM", "i": -5, "l": 1 << 40, "f": 1.5, "d": -0.1, "b": True},
    {"s": None, "i": 7, "l": -1, "f": 0.0, "d": 1e300, "b": False},
]
TIMES = [1700000000123, 1700000000124]


def test_a_payload_of_the_original_is_read_with_the_times_of_its_events() -> None:
    found = source_mapper("binary", {}, (), STREAM).decode([PAYLOAD])
    assert found.errors == []
    assert found.rows.to_pylist() == ROWS
    assert found.event_time_ms.to_pylist() == TIMES


def test_what_is_written_is_read_again() -> None:
    rows = source_mapper("binary", {}, (), STREAM).decode([PAYLOAD]).rows
    written = sink_mapper("binary", {}, (), STREAM).encode(rows)
    again = source_mapper("binary", {}, (), STREAM).decode(written)
    assert again.rows.to_pylist() == ROWS
    # All but the number of events and their times.
    assert b"".join(one[12:] for one in written) == PAYLOAD[12:44] + PAYLOAD[52:]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "its 0 bytes end within a value"),
        (PAYLOAD[:-1], "its 80 bytes end within a value"),
        (PAYLOAD + b"x", "1 bytes follow the last of 2 events"),
        (struct.pack(">i", -1), "-1 events don't fit"),
        (struct.pack(">i", 1 << 30), "events don't fit"),
        (struct.pack(">iqi", 1, 0, 1 << 30), 'a text of 1073741824 bytes for "s" exceeds'),
        (PAYLOAD.replace(b"IBM", b"I\xffM"), 'attribute "s" is no UTF-8'),
    ],
)
def test_a_payload_of_a_stranger_is_refused_alone(payload: bytes, reason: str) -> None:
    found = source_mapper("binary", {}, (), STREAM).decode([PAYLOAD, payload, PAYLOAD])
    assert [(message, reason in text) for message, _, text in found.errors] == [(1, True)]
    assert len(found.rows) == (5 if "UTF-8" in reason else 4)


def test_null_is_refused_but_for_a_text() -> None:
    rows = (
        source_mapper("json", {}, (), STREAM)
        .decode([b'{"s":null,"i":null,"l":1,"f":1,"d":1,"b":true}'])
        .rows
    )
    (made,) = sink_mapper("binary", {}, (), STREAM).encode(rows)
    assert isinstance(made, Refusal)
    assert '"i" is null' in made.decode()


def test_a_message_is_the_original_s() -> None:
    assert message_of("s1", "A/S", PAYLOAD) == MESSAGE
    assert parts_of(MESSAGE[5:]) == ("A/S", PAYLOAD)


@pytest.mark.parametrize(
    "body",
    [
        b"", MESSAGE[5:-1], MESSAGE[5:] + b"x", struct.pack(">i", -1) + bytes(20),
        struct.pack(">iii", 0, 0, 1 << 30),
    ],
)  # fmt: skip
def test_a_message_whose_parts_do_not_fill_it_is_none(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"it|bytes"):
        parts_of(body)


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

        return await servers.open("127.0.0.1", port, name, take, 3)

    port = await open_channel("a", 0)
    assert await open_channel("b", port) == port
    with pytest.raises(MeshError, match="served already"):
        await open_channel("b", port)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    for channel, payload in (("a", b"1"), ("nobody", b"2"), ("b", b"3"), ("a", b"4")):
        writer.write(message_of("s", channel, payload))
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


async def test_a_client_waits_while_bytes_of_its_messages_are_not_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals, "BYTES_MAX", 8 << 20)
    port, access = free_port(), NodeAccess(listen=("127.0.0.1:0-65535",))
    source, sink, found, most = TcpSource(), TcpSink(), 0, 0
    options: dict[str, Any] = {"host": "127.0.0.1", "port": port}
    await source.open(Context("A", "S", options, access), None)
    await sink.open(Context("A", "T", {"url": f"tcp://127.0.0.1:{port}/A/S"}), None)

    async def send() -> None:
        for number in range(60):
            await sink.write([Record(str(number), bytes(1 << 20))])

    sending = asyncio.create_task(send())
    while found < 60:
        batch = await source.read()
        most = max(most, source._arrived._bytes)
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
