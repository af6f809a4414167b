"""Readers of a TLS socket take all records that have arrived, however small each is."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

import nats
import pyarrow as pa
import pytest

from pyspark_nats.protocol import transport
from pyspark_nats.protocol.connection import Connection, DisconnectedError
from pyspark_nats.protocol.connection_options import connection_options
from pyspark_nats.sink import messages_out
from pyspark_nats.source import direct_get
from pyspark_nats.source.fetch import Pull
from pyspark_nats.source.tail import Tails
from tests.support.tls_records import RecordRelay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark_nats.sink import publish
    from pyspark_nats.source.messages import Messages

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

#: Messages of a burst: less than the buffer of a socket holds.
MANY = 400
LAST = b"the last"
PAYLOADS = [*(b"%d" % n for n in range(MANY - 1)), LAST]
HALF = PAYLOADS[: MANY // 2]
#: Reads of a burst that was sent in one piece, where another thread reads meanwhile.
FEW = 10


@pytest.fixture
def relay(broker: Any, tmp_path: Path) -> Iterator[RecordRelay]:
    made = RecordRelay(tmp_path, int(broker.url.rpartition(":")[2]))
    yield made
    made.close()


def send_burst(broker: Any, payloads: list[bytes]) -> None:
    data = b"".join(b"PUB burst %d\r\n%b\r\n" % (len(one), one) for one in payloads)
    broker.connection.retry_while_unavailable("publishing", lambda: broker.connection.send(data))


@pytest.fixture
def connect(relay: RecordRelay) -> Iterator[Callable[[], Connection]]:
    opened: list[Connection] = []

    def make() -> Connection:
        opened.append(Connection(connection_options({**relay.options, "timeoutS": "20"})))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each read of TLS that found some."""
    found: list[int] = []
    for name in ("receive", "receive_into"):
        real = getattr(transport.Transport, name)

        def noted(self: Any, *given: Any, real: Any = real) -> Any:
            got = real(self, *given)
            if got and self.is_tls:
                found.append(got if isinstance(got, int) else len(got))
            return got

        monkeypatch.setattr(transport.Transport, name, noted)
    return found


@pytest.fixture
def listening(connect: Callable[[], Connection]) -> Connection:
    """A connection that subscribes to ``burst``."""
    connection = connect()

    def step() -> None:
        connection.subscribe("burst", most=MANY)
        # The server has processed the subscription when it answers.
        connection.requests([(connection.api("INFO"), b"")])

    connection.retry_while_unavailable("subscribing", step)
    return connection


@pytest.fixture
def later() -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Run a function in a thread that ends before the test does."""
    threads: list[threading.Thread] = []

    def start(work: Callable[[], Any]) -> None:
        threads.append(threading.Thread(target=work))
        threads[-1].start()

    yield start
    for one in threads:
        one.join(30)
        assert not one.is_alive()


def take(connection: Connection, *, is_gathered: bool) -> None:
    if is_gathered:
        connection.gather(1 << 20, 0.001)
    else:
        connection.receive(time.monotonic() + 5)


def test_one_read_takes_a_burst_of_small_records(
    broker: Any, relay: RecordRelay, listening: Connection, reads: list[int]
) -> None:
    for is_gathered in (False, True):
        relay.hold()
        send_burst(broker, HALF)
        assert relay.release(HALF[-1] + b"\r\n") > len(HALF)
        reads.clear()
        take(listening, is_gathered=is_gathered)
        assert listening.take_frames().data.to_pylist() == HALF
        assert len(reads) == 1


def test_small_records_are_read_with_few_calls_of_the_system(
    broker: Any, relay: RecordRelay, listening: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    real = socket.socket.recv_into

    def noted(self: socket.socket, *given: Any) -> int:
        if self.fileno() == listening.fileno():
            calls.append(1)
        return real(self, *given)

    monkeypatch.setattr(socket.socket, "recv_into", noted)
    relay.hold()
    send_burst(broker, HALF)
    assert relay.release(HALF[-1] + b"\r\n") > len(HALF)
    take(listening, is_gathered=False)
    assert listening.take_frames().data.to_pylist() == HALF
    assert 1 <= len(calls) <= FEW


@pytest.mark.parametrize("then", [b"", b"no record of TLS"])
@pytest.mark.parametrize("is_gathered", [False, True])
def test_the_end_is_seen_after_the_data_before_it(
    relay: RecordRelay, listening: Connection, then: bytes, is_gathered: bool
) -> None:
    relay.end(b"MSG burst 2 1\r\nx\r\n" * MANY, then)
    error: type[Exception] = ssl.SSLError if then else DisconnectedError
    if not is_gathered:
        take(listening, is_gathered=False)
        # Nothing follows on the socket.
        assert listening.is_readable()
    for _ in range(2):
        with pytest.raises(error):
            take(listening, is_gathered=is_gathered)
    assert len(listening.take_frames()) == MANY


def test_a_reader_of_many_streams_takes_a_burst_in_one_round(
    broker: Any, relay: RecordRelay, connect: Callable[[], Connection]
) -> None:
    broker.create("A")
    tails: Tails[str] = Tails(connect(), broker.connection)
    tails.follow("a", "A", 0)
    tails.connection.requests([(tails.connection.api("INFO"), b"")])
    relay.hold()
    broker.publish("ev.A", *PAYLOADS)
    assert relay.release(LAST) > MANY
    assert tails.receive() == set()
    taken = tails.take("a", 0, 10**9)
    assert taken is not None
    assert taken[0].data.to_pylist() == PAYLOADS
    assert taken[1] == 0


def test_a_long_section_is_read_in_few_rounds(
    broker: Any,
    relay: RecordRelay,
    connect: Callable[[], Connection],
    reads: list[int],
    later: Callable[[Callable[[], Any]], None],
) -> None:
    broker.create("A")
    broker.publish("ev.A", *PAYLOADS)
    connection = connect()
    connection.retry_while_unavailable("connecting", lambda: None)
    pull = Pull(connection, "A", 1, MANY)
    run = direct_get.SubjectRun("ev.A", MANY, sum(map(len, PAYLOADS)))

    def payloads(found: list[Messages]) -> list[bytes]:
        return [data for part in found for data in part.data.to_pylist()]

    readers: tuple[Callable[[], list[bytes]], ...] = (
        lambda: payloads(pull.some()),
        lambda: payloads(direct_get.read(connection, "A", [(1, MANY)])),
        # As snapshots and archives are read.
        lambda: direct_get.read_runs(connection, "A", [run])[0],
    )
    for read in readers:
        relay.hold()
        later(lambda: relay.release(LAST))
        reads.clear()
        assert read() == PAYLOADS
        assert len(reads) <= FEW


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_writer_takes_its_acks_in_few_rounds(
    broker: Any,
    relay: RecordRelay,
    publisher: Callable[..., publish.RowPublisher],
    reads: list[int],
    later: Callable[[Callable[[], Any]], None],
    guarantee: str,
) -> None:
    broker.create("S")
    options = {name: value for name, value in relay.options.items() if name != "servers"}
    writer = publisher(relay.options["servers"], deliveryGuarantee=guarantee, **options)

    def write(payloads: list[bytes], first: int) -> None:
        rows = pa.record_batch({"data": pa.array(payloads, pa.binary())})
        writer.write(
            messages_out.with_schema_columns(
                rows, stream="S", subject="ev.S", producer="p", first_position=first
            )
        )

    write([b"connected"], 0)
    if guarantee == "at-least-once":
        # Otherwise it waits in between.
        relay.hold()
        later(lambda: relay.release(b'"seq":', MANY))
    reads.clear()
    write(PAYLOADS, 1)
    assert broker.payloads("S", "ev.S") == [b"connected", *PAYLOADS]
    assert len(reads) <= FEW


async def test_the_client_library_takes_a_burst_in_few_rounds(
    broker: Any, relay: RecordRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    real = asyncio.StreamReader.read

    async def noted(self: asyncio.StreamReader, count: int = -1) -> bytes:
        got = await real(self, count)
        reads.append(len(got))
        return got

    context = ssl.create_default_context(cafile=str(relay.ca))
    client = await nats.connect(
        relay.options["servers"], tls=context, tls_handshake_first=True, max_reconnect_attempts=1
    )
    try:
        subscription = await client.subscribe("burst")
        # The PING of the first may overtake the subscription.
        for _ in range(2):
            await client.flush()
        monkeypatch.setattr(asyncio.StreamReader, "read", noted)
        relay.hold()
        send_burst(broker, PAYLOADS)
        # The loop stands still meanwhile.
        assert relay.release(LAST) > MANY
        found = [await subscription.next_msg(timeout=20) for _ in PAYLOADS]
        assert [one.data for one in found] == PAYLOADS
        assert len(reads) <= FEW
    finally:
        await client.close()
