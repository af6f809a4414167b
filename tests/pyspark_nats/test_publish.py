"""The sink's guarantee: every row once, with repeated batches and concurrent writers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from mesh.jetstream import server
from pyspark_nats.errors import (
    FENCED,
    DataLossError,
    OrderError,
    RefusedError,
    StaleWriterError,
    UnavailableError,
)
from pyspark_nats.protocol import jetstream
from pyspark_nats.protocol.connection import Connection
from pyspark_nats.sink import fencing, marker_cache, messages_out, publish, sink_options
from pyspark_nats.sink.markers import Marker, Origin
from tests.support.broker import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.nats


def rows(first: int, count: int, producer: str = "p") -> pa.RecordBatch:
    data = pa.array([b"%d" % n for n in range(first, first + count)], pa.binary())
    return messages_out.with_schema_columns(
        pa.record_batch({"data": data}),
        stream="S", subject="ev.S", producer=producer, first_position=first,
    )  # fmt: skip


Make = Callable[..., publish.RowPublisher]


def expected(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def test_rows_come_out_in_order_with_a_marker_for_each_batch(broker: Any, publisher: Make) -> None:
    broker.create("S")
    publisher(broker.url).write(rows(0, 2500))
    assert broker.payloads("S", "ev.S") == expected(2500)
    assert broker.marker("S", "p") == Marker(2499, 1, broker.info("S").last)
    assert len(broker.payloads("S", "mesh._marker.S.p")) == 3


def test_a_replay_publishes_only_what_is_not_out(broker: Any, publisher: Make) -> None:
    broker.create("S")
    publisher(broker.url).write(rows(0, 1500))
    publisher(broker.url).write(rows(0, 1500))
    publisher(broker.url).write(rows(700, 1300))
    assert broker.payloads("S", "ev.S") == expected(2000)


def test_producers_are_told_apart(broker: Any, publisher: Make) -> None:
    broker.create("S")
    both = pa.concat_tables(
        [pa.Table.from_batches([rows(0, 3, "p")]), pa.Table.from_batches([rows(0, 3, "q")])]
    )
    for _ in range(2):
        publisher(broker.url).write(both.combine_chunks().to_batches()[0])
    assert sorted(broker.payloads("S", "ev.S")) == sorted(expected(3) * 2)
    found = fencing.positions(broker.given, [("S", "p"), ("S", "q"), ("S", "r")])
    assert [found["S", name].position for name in "pqr"] == [2, 2, -1]


def test_a_writer_with_a_newer_epoch_fences_the_old_one(broker: Any, publisher: Make) -> None:
    broker.create("S")
    old = publisher(broker.url, 1)
    old.write(rows(0, 10))
    publisher(broker.url, 2).write(rows(0, 20))
    with pytest.raises(StaleWriterError, match=rf"of epoch \d+ \[{FENCED}\]"):
        old.write(rows(10, 20))
    with pytest.raises(StaleWriterError, match=rf"of epoch \d+ \[{FENCED}\]"):
        publisher(broker.url, 1).write(rows(10, 20))
    assert broker.payloads("S", "ev.S") == expected(20)


def test_two_writers_of_one_epoch_do_not_double_rows(broker: Any, publisher: Make) -> None:
    broker.create("S")
    one, two = publisher(broker.url), publisher(broker.url)
    one.write(rows(0, 10))
    two.write(rows(0, 15))
    one.write(rows(10, 10))
    two.write(rows(15, 10))
    assert broker.payloads("S", "ev.S") == expected(25)


def test_positions_that_do_not_grow_are_refused(broker: Any, publisher: Make) -> None:
    broker.create("S")
    writer = publisher(broker.url)
    writer.write(rows(0, 10))
    with pytest.raises(OrderError, match="gave position 5 after 9"):
        writer.write(rows(5, 10))


def test_a_stream_made_anew_gets_all_rows_again(broker: Any) -> None:
    broker.create("S")
    given = sink_options.sink_options({**broker.given, "epoch": "1"})
    with Connection(given.connection) as connection:
        publish.RowPublisher(connection, given).write(rows(0, 10))
        broker.call("STREAM.DELETE.S")
        broker.create("S")
        # The same process still has the marker of the old stream in its cache.
        publish.RowPublisher(connection, given).write(rows(0, 10))
    assert broker.payloads("S", "ev.S") == expected(10)


def test_headers_reach_the_reader(broker: Any, publisher: Make) -> None:
    broker.create("S")
    columns: dict[str, pa.Array[Any]] = {
        "data": pa.array([b"x", b"y"], pa.binary()),
        "content_type": pa.array(["application/json", None], pa.string()),
        "event_time_ms": pa.array([77, None], pa.int64()),
        "headers": pa.array(
            [[("A", ["1", "2"])], None], pa.map_(pa.string(), pa.list_(pa.string()))
        ),
    }
    batch = pa.record_batch(columns)
    done = messages_out.with_schema_columns(
        batch, stream="S", subject="ev.S", producer="p", first_position=0
    )
    publisher(broker.url).write(done)
    answer = broker.call("STREAM.MSG.GET.S", seq=1)["message"]
    import base64

    lines = base64.b64decode(answer["hdrs"]).decode().split("\r\n")
    assert {"Content-Type: application/json", "Mesh-Timestamp: 77", "A: 1", "A: 2"} <= set(lines)


@pytest.mark.parametrize(
    ("subjects", "config", "complaint"),
    [
        (["ev.S"], {"allow_atomic": True}, "does not hold the marker's subject"),
        (["ev.S", "mesh._marker.S.>"], {}, "does not take atomic batches"),
    ],
)
def test_a_stream_that_can_not_keep_the_promise_is_refused(
    broker: Any, publisher: Make, subjects: list[str], config: dict[str, bool], complaint: str
) -> None:
    broker.call("STREAM.CREATE.S", name="S", subjects=subjects, **config)
    with pytest.raises(RefusedError, match=complaint):
        publisher(broker.url).write(rows(0, 1))
    publisher(broker.url, deliveryGuarantee="at-least-once").write(rows(0, 5000))
    assert broker.info("S").last == 5000


def test_a_message_too_large_for_the_server_is_refused(broker: Any, publisher: Make) -> None:
    broker.create("S")
    batch = pa.record_batch({"data": pa.array([b"x" * (2 << 20)], pa.binary())})
    done = messages_out.with_schema_columns(
        batch, stream="S", subject="ev.S", producer="p", first_position=0
    )
    with pytest.raises(RefusedError, match="larger than the server takes"):
        publisher(broker.url).write(done)


def to_subjects(*subjects: str) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"x"] * len(subjects), pa.binary()), pa.array(subjects, pa.string())],
        names=["data", "subject"],
    )
    return messages_out.with_schema_columns(
        batch, stream="S", subject="", producer="p", first_position=0
    )


@pytest.mark.parametrize("guarantee", sink_options.GUARANTEES)
@pytest.mark.parametrize("count", [1, 100])
def test_a_subject_too_long_for_the_server_is_refused(
    broker: Any, publisher: Make, guarantee: str, count: int
) -> None:
    broker.create("S", "ev.>")
    batch = to_subjects(*["ev.a"] * count, f"ev.{'x' * messages_out.SUBJECT_MAX}")
    with pytest.raises(RefusedError, match="a subject of 3843 bytes is longer than"):
        publisher(broker.url, deliveryGuarantee=guarantee).write(batch)


def test_the_longest_subject_is_published(broker: Any, publisher: Make) -> None:
    broker.create("S", "ev.>")
    subject = f"ev.{'x' * (messages_out.SUBJECT_MAX - 3)}"
    publisher(broker.url).write(to_subjects(subject))
    assert broker.payloads("S", subject) == [b"x"]


class Cutter:
    """A relay to the server that cuts the connection once, after the answer to a commit is lost."""

    def __init__(self, port: int, *, after: int) -> None:
        self._target = port
        #: Answers with a publish ack to let pass before one is swallowed.
        self._after = after
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            remote = socket.create_connection(("127.0.0.1", self._target))
            threading.Thread(target=self._pump, args=(client, remote, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(remote, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        try:
            while chunk := source.recv(65536):
                if is_answer and b'"batch":' in chunk:
                    self._after -= 1
                    if self._after == -1:
                        self.cuts += 1
                        break
                sink.sendall(chunk)
        except OSError:
            return
        finally:
            for end in (source, sink):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
                finally:
                    end.close()


@pytest.fixture
def cutter(nats_server: server.NatsServer) -> Iterator[Cutter]:
    made = Cutter(nats_server.port, after=1)
    yield made
    made.close()


def test_a_lost_answer_neither_loses_nor_doubles(
    broker: Any, publisher: Make, cutter: Cutter
) -> None:
    broker.create("S")
    publisher(cutter.url).write(rows(0, 4000))
    assert cutter.cuts == 1
    assert broker.payloads("S", "ev.S") == expected(4000)


@pytest.mark.restarts
def test_a_restart_of_the_server_is_ridden_through(
    broker: Any, publisher: Make, nats_server: server.NatsServer
) -> None:
    broker.create("S")
    writer = publisher(broker.url)
    writer.write(rows(0, 10))
    nats_server.stop()
    done = threading.Event()

    def write() -> None:
        writer.write(rows(10, 2000))
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    again = server.start(nats_server.directory, port=nats_server.port)
    try:
        assert done.wait(20)
        thread.join()
        assert broker.payloads("S", "ev.S") == expected(2010)
    finally:
        again.stop()


def test_servers_that_stay_away_are_named(publisher: Make, tmp_path: Any) -> None:
    url = f"nats://127.0.0.1:{server.free_port()}"
    with pytest.raises(UnavailableError, match=url):
        publisher(url, timeoutS="0.2").write(rows(0, 1))


def test_a_marker_that_is_none_is_not_overlooked(broker: Any, publisher: Make) -> None:
    broker.create("S")
    broker.publish("mesh._marker.S.p", json.dumps({"somebody": "else"}))
    with pytest.raises(RefusedError, match="is not a marker"):
        publisher(broker.url).write(rows(0, 1))


def test_fitting_keeps_both_bounds() -> None:
    batch = rows(0, 100)
    assert messages_out.fitting(batch, 0, 7, 1 << 20) == 7
    assert messages_out.fitting(batch, 0, 50, 10) == 10
    assert messages_out.fitting(batch, 10, 50, 1) == 1
    assert np.all([messages_out.matches(p, "a.b.c") for p in ("a.b.c", "a.*.c", "a.>", ">")])
    assert not any(messages_out.matches(p, "a.b.c") for p in ("a.b", "a.*", "a.b.c.>", "b.>"))


@pytest.mark.parametrize("has_written", [False, True])
def test_a_writer_that_slept_writes_nothing_into_a_later_stream_of_the_name(
    broker: Any, has_written: bool
) -> None:
    broker.create("S")
    given = sink_options.sink_options({**broker.given, "epoch": "1"})
    # It began two seconds before the stream that it finds when it wakes up.
    made_ms = jetstream.time_ms(broker.call("STREAM.INFO.S")["created"])
    origin = Origin(began_ms=made_ms - 2000)
    with Connection(given.connection) as connection:
        if has_written:
            publish.RowPublisher(connection, given).write(rows(0, 10))
            broker.call("STREAM.DELETE.S")
            broker.create("S")
            made_ms = jetstream.time_ms(broker.call("STREAM.INFO.S")["created"])
        with pytest.raises(StaleWriterError, match="was made after the writer"):
            publish.RowPublisher(connection, given, origin).write(rows(10, 5))
        assert broker.payloads("S", "ev.S") == []
        publish.RowPublisher(connection, given, Origin(began_ms=made_ms + 100)).write(rows(0, 3))
    assert broker.payloads("S", "ev.S") == expected(3)


def test_rows_are_not_skipped_for_output_that_is_older_than_their_input(broker: Any) -> None:
    broker.create("S")
    given = sink_options.sink_options({**broker.given, "epoch": "1"})
    with Connection(given.connection) as connection:
        publish.RowPublisher(connection, given).write(rows(0, 10))
        made_ms = jetstream.time_ms(broker.call("STREAM.INFO.S")["state"]["last_ts"])
        marker_cache.clear()
        publish.RowPublisher(connection, given, Origin(since_ms=made_ms)).write(rows(5, 5))
        marker_cache.clear()
        later = Origin(since_ms=made_ms + 5000)
        with pytest.raises(DataLossError, match="whose input is lost"):
            publish.RowPublisher(connection, given, later).write(rows(5, 10))
        publish.RowPublisher(connection, given, later).write(rows(10, 5))
    assert broker.payloads("S", "ev.S") == expected(15)


@pytest.mark.parametrize("size", [490, 2000])
def test_a_message_above_the_limit_of_its_stream_is_refused_at_once(broker: Any, size: int) -> None:
    broker.create("S", max_msg_size=500)
    given = sink_options.sink_options({**broker.given, "epoch": "1"})
    large = rows(0, 1).set_column(
        messages_out.SCHEMA.get_field_index("data"), "data", pa.array([b"x" * size])
    )
    with Connection(given.connection) as connection:
        with pytest.raises(RefusedError, match=r'larger than stream "S" takes'):
            publish.RowPublisher(connection, given).write(large)
        publish.RowPublisher(connection, given).write(rows(0, 3))
    assert broker.payloads("S", "ev.S") == expected(3)


ACCOUNT = """no_auth_user: a
accounts: {A: {jetstream: {max_file: 4MB}, users: [{user: a, password: a}]}}
"""


def fill(broker: Any, size: int) -> None:
    while True:
        broker.publish("junk", bytes(size))


@pytest.mark.slow
@pytest.mark.parametrize(
    "limit", ["jetstream: {max_file_store: 4MB}", ACCOUNT], ids=["server", "account"]
)
def test_a_full_store_is_named_with_its_remedy_and_rows_wait(
    publisher: Make, serve: Callable[[str], server.NatsServer], limit: str
) -> None:
    broker = connect(serve(limit), timeout_s=1)
    broker.create("S")
    broker.create("JUNK", "junk")
    for size in (900_000, 1_000, 1):
        with pytest.raises(UnavailableError):
            fill(broker, size)
    with pytest.raises(UnavailableError, match="JetStream has no room") as refused:
        publisher(broker.url, timeoutS="1").write(rows(0, 5000))
    assert "free room, or raise max_file_store" in str(refused.value)
    broker.call("STREAM.PURGE.JUNK")
    publisher(broker.url).write(rows(0, 5000))
    assert broker.payloads("S", "ev.S") == expected(5000)
    broker.connection.close()
