"""Source ``syslog``: messages of both standards, with the clients of Python and of the system."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging.handlers
import shutil
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from mesh.connect.contract import Context, NodeAccess
from mesh.errors import MeshError
from mesh.jetstream.server import free_port
from mesh.plan.build import plan
from mesh.receiver.types.syslog import Frames, SyslogSource, event_of
from tests.support.certificates import Authority
from tests.support.connectors import staged

if TYPE_CHECKING:
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from mesh.testing.connectors import Stage

ELEMENTS = (
    '<165>1 2003-10-11T22:14:15.003Z host evntslog - ID47 [exampleSDID@32473 iut="3" '
    'eventSource="App[1\\]" eventID="10\\"11"][examplePriority@32473 class="high"]'
)
ACCESS = NodeAccess(listen=("127.0.0.1:0-65535",))
NAMES = ("facility", "severity", "timestamp", "hostname", "app_name", "proc_id", "msg_id")
APP = """@App:name('Logs')
@source(type='syslog', protocol='PROTOCOL', port='PORT', @map(type='json'))
define stream Lines (facility int, severity int, hostname string, app_name string, message string);
from Lines select app_name, message insert into Out;
"""


@pytest.mark.parametrize(
    ("text", "head", "data", "message"),
    [
        # The examples of RFC 5424, 6.5.
        (
            "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \ufeff'su root'",
            (4, 2, "2003-10-11T22:14:15.003Z", "mymachine.example.com", "su", None, "ID47"),
            {},
            "'su root'",
        ),
        (
            ELEMENTS,
            (20, 5, "2003-10-11T22:14:15.003Z", "host", "evntslog", None, "ID47"),
            {
                "exampleSDID@32473": {"iut": "3", "eventSource": "App[1]", "eventID": '10"11'},
                "examplePriority@32473": {"class": "high"},
            },
            "",
        ),
        # Those of RFC 3164, 5.4, and what programs write instead.
        (
            "<34>Oct 11 22:14:15 mymachine su: 'su root' failed on /dev/pts/8",
            (4, 2, "Oct 11 22:14:15", "mymachine", "su", None, None),
            {},
            "'su root' failed on /dev/pts/8",
        ),
        (
            "<13>Feb  5 17:32:18 sshd[812]: bad password",
            (1, 5, "Feb  5 17:32:18", None, "sshd", "812", None),
            {},
            "bad password",
        ),
        ("<0>panic", (0, 0, None, None, None, None, None), {}, "panic"),
        ("Use the BFG!", (1, 5, None, None, None, None, None), {}, "Use the BFG!"),
        ("<192>no priority", (1, 5, None, None, None, None, None), {}, "<192>no priority"),
        ("<13>1 - - - - - [open x", (1, 5, None, None, None, None, None), {}, "[open x"),
        ("", (1, 5, None, None, None, None, None), {}, ""),
    ],
)
def test_a_message_has_its_parts(
    text: str, head: tuple[Any, ...], data: dict[str, Any], message: str
) -> None:
    event = event_of(text.encode(), "10.0.0.7")
    assert tuple(event[name] for name in NAMES) == head
    assert event["structured_data"] == data
    assert (event["message"], event["sender"]) == (message, "10.0.0.7")


def test_octets_that_are_no_text_are_marked() -> None:
    assert event_of(b"<13>caf\xe9\n\0", "h")["message"] == "caf\ufffd"


def framed(data: bytes, cut: int) -> list[bytes]:
    frames = Frames(64)
    parts = [data[at : at + cut] for at in range(0, len(data), cut)]
    return [one for part in parts for one in frames.feed(part)] + frames.end()


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 100])
def test_frames_are_of_a_size_or_of_a_line(cut: int) -> None:
    whole = b"6 <13>ab<13>c\r\n\n5 <1>\nx<13>nul\0<13>last"
    found = framed(whole, cut)
    assert found == [b"<13>ab", b"<13>c\r", b"<1>\nx", b"<13>nul", b"<13>last"]
    # The client has left within a frame.
    assert framed(b"<13>a\n9 <13>b", cut) == [b"<13>a"]
    longest = b"<13>" + b"a" * 60
    assert framed(longest + b"\n64 " + longest, cut) == [longest, longest]
    # A line may begin with a digit that is no size.
    for line in (b"1x3 <13>", b"9999999999 <"):
        assert framed(line + b"\n", cut) == [line]


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 1000])
def test_a_message_that_is_too_large_costs_only_itself(cut: int) -> None:
    good, large = b"<13>" + b"a" * 60, b"<13>" + b"a" * 61
    sent = b"\n".join([good, large, good, b"65 " + large + b"64 " + good + large, good, large])
    frames = Frames(64)
    found = [one for at in range(0, len(sent), cut) for one in frames.feed(sent[at : at + cut])]
    assert found == [good] * 4
    assert (frames.dropped, frames.end()) == (4, [])


async def lines(stage: Stage, count: int) -> list[dict[str, Any]]:
    async def found() -> Any:
        events = await stage.events("Lines")
        return events if len(events) >= count else None

    events: list[dict[str, Any]] = await stage.until("lines", found)
    return sorted(events, key=lambda one: str(one["message"]))


@pytest.mark.nats
@pytest.mark.parametrize("protocol", ["udp", "tcp"])
async def test_programs_send_their_logs(nats_server: NatsServer, protocol: str) -> None:
    port = free_port()
    text = APP.replace("PROTOCOL", protocol).replace("PORT", str(port))
    kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM

    def send() -> None:
        handler = logging.handlers.SysLogHandler(
            ("127.0.0.1", port), logging.handlers.SysLogHandler.LOG_AUTH, kind
        )
        handler.ident = "shop: "
        for level, line in ((logging.ERROR, "1 no stock"), (logging.INFO, "2 sold")):
            handler.emit(logging.LogRecord("n", level, "f", 1, line, None, None))
        handler.close()

    async with staged(nats_server, text, ACCESS) as stage:
        await stage.until_running(stage.start("receiver-Lines"))
        await asyncio.to_thread(send)
        found = await lines(stage, 2)
        assert [(one["facility"], one["severity"], one["message"]) for one in found] == [
            (4, 3, "1 no stock"),
            (4, 6, "2 sold"),
        ]
        assert {one["app_name"] for one in found} == {"shop"}


@pytest.mark.nats
@pytest.mark.skipif(shutil.which("logger") is None, reason="util-linux's logger is not installed")
async def test_the_command_logger_sends_both_standards(nats_server: NatsServer) -> None:
    port = free_port()
    text = APP.replace("PROTOCOL", "tcp").replace("PORT", str(port))
    async with staged(nats_server, text, ACCESS) as stage:
        await stage.until_running(stage.start("receiver-Lines"))
        for options, line in (
            (("--rfc5424", "--octet-count"), "1 of five"),
            (("--rfc3164",), "2 of three"),
        ):
            to = ("--tcp", "--server", "127.0.0.1", "--port", str(port), "--tag", "cron")
            command = ("logger", *to, *options, "--priority", "cron.warning", line)
            process = await asyncio.create_subprocess_exec(*command)
            assert await process.wait() == 0
        found = await lines(stage, 2)
        assert [one["message"] for one in found] == ["1 of five", "2 of three"]
        assert {(one["facility"], one["severity"], one["app_name"]) for one in found} == {
            (9, 4, "cron")
        }
        assert all(one["hostname"] for one in found)


async def opened(port: int, access: NodeAccess = ACCESS, **options: Any) -> SyslogSource:
    source = SyslogSource()
    values = {"host": "127.0.0.1", "port": port, "protocol": "tcp", "max.size": 64, **options}
    await source.open(Context("A", "S", values, access), None)
    return source


async def read(source: SyslogSource) -> list[str]:
    async with asyncio.timeout(20):
        while (batch := await source.read()) is None:
            pass
    await source.committed(batch.position)
    return [json.loads(one)["message"] for one in batch.payloads]


async def test_tls_asks_clients_for_a_certificate(tmp_path: Path) -> None:
    authority, port = Authority(tmp_path), free_port()
    own, client = authority.issue("server", hosts=("127.0.0.1",)), authority.issue("client")
    tls: dict[str, Any] = {
        "tls.cert": str(own.cert),
        "tls.key": str(own.key),
        "tls.ca": str(authority.cert),
        "ssl.verify.client": "require",
    }
    source = await opened(port, protocol="tls", **tls)
    trusted = ssl.create_default_context(cafile=str(authority.cert))
    # TLS 1.3 tells a client of the refusal after it has written.
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
    writer.write(b"<13>stranger\n")
    with contextlib.suppress(OSError):
        assert await reader.read() == b""
    writer.close()
    trusted.load_cert_chain(client.cert, client.key)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
    writer.write(b"<13>known\n")
    assert await read(source) == ["known"]
    writer.close()
    await source.close()


async def test_a_client_beyond_a_bound_is_disconnected_and_a_message_is_dropped() -> None:
    port = free_port()
    source = await opened(port, NodeAccess(listen=ACCESS.listen, connections_max=1))
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"<13>good\n")
    assert await read(source) == ["good"]
    second, other = await asyncio.open_connection("127.0.0.1", port)
    assert await second.read() == b""
    other.close()
    writer.write(b"<13>" + b"a" * 100 + b"\n<13>next\n")
    assert await read(source) == ["next"]
    assert str(source.problem).startswith("1 messages were dropped")
    writer.close()
    with pytest.raises(MeshError, match="can't listen") as raised:
        await opened(port)
    assert raised.value.code == "MESH-C133"
    await source.close()


async def test_datagrams_without_room_are_dropped_and_counted() -> None:
    port = free_port()
    source = await opened(port, protocol="udp")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"<13>" + b"a" * 100, ("127.0.0.1", port))
        client.sendto(b"<13>good", ("127.0.0.1", port))
    assert await read(source) == ["good"]
    assert str(source.problem).startswith("1 messages were dropped")
    await source.close()


async def test_an_address_needs_permission_and_tls_a_certificate() -> None:
    with pytest.raises(MeshError, match="MESH-C132"):
        await opened(free_port(), NodeAccess())
    with pytest.raises(MeshError, match="tls needs a certificate"):
        plan(APP.replace("PROTOCOL", "tls").replace("PORT", "6514"))
