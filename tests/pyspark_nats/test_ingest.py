"""Rows in ingest batches: each is stored once and in order, whatever happens to their writers."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyspark_nats.errors import (
    RefusedError,
    StaleWriterError,
    UnavailableError,
)
from pyspark_nats.protocol import frames
from pyspark_nats.protocol.connection import Connection, DisconnectedError
from pyspark_nats.sink import fencing, ingest, messages_out, publish
from pyspark_nats.sink.sink_options import sink_options
from tests.support.broker import connect
from tests.support.exactly_once import Cutter, numbers
from tests.support.ingest import Writer, expected, rows, writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from mesh.jetstream import server

__all__ = ("writer",)

pytestmark = pytest.mark.nats


def test_runs_of_any_size_are_stored_once_and_in_order(broker: Any, writer: Any) -> None:
    one, at = writer(), 0
    for count in (10, 1, 1, 40, 3000, 700, 12_000, 2, 33, 5):
        one.write(rows(at, count))
        at += count
    assert numbers(broker, "ev.S") == expected(at)
    assert broker.marker("S", "p").ingest is not None
    # One of the first run, one that begins the batch, and one at the end of each other.
    state = broker.call("STREAM.INFO.S", subjects_filter="mesh._marker.>")["state"]
    assert state["subjects"]["mesh._marker.S.p"] == 11
    assert fencing.positions(broker.given, [("S", "p")])["S", "p"].position == at - 1


def test_a_large_run_goes_on_when_the_server_wants_to_send_more_acks(
    broker: Any, writer: Any
) -> None:
    """With each further batch of a stream, the server acknowledges fewer messages at once."""
    one = writer()
    at = one.begin()
    for n in range(7):
        one.write(rows(0, 3, f"q{n}"), rows(3, 3, f"q{n}"))
    one.write(rows(at, 3000))
    assert not one.cache.paused_s
    assert len(one.cache.ingests) == 8
    found = fencing.positions(broker.given, [("S", "p")])["S", "p"]
    assert found.position == at + 2999


def test_runs_that_are_confirmed_together_have_one_marker(broker: Any, writer: Any) -> None:
    one = writer()
    at = one.begin()
    before = broker.marker("S", "p").position
    # No run has as many rows as may be on their way.
    assert one.write_together(*(rows(at + n, 1) for n in range(100))) == 100
    assert numbers(broker, "ev.S") == expected(at + 100)
    markers = broker.call("STREAM.INFO.S", subjects_filter="mesh._marker.>")["state"]["subjects"]
    assert markers == {"mesh._marker.S.p": 4}
    assert (before, broker.marker("S", "p").position) == (at - 1, at + 99)


def test_not_too_many_octets_wait_for_their_confirmation(broker: Any, writer: Any) -> None:
    one = writer()
    at = one.begin()
    # The eleventh makes more than a megabyte, however soon the server acknowledges those before.
    assert one.write_together(*(rows(at + n, 1, size=100_000) for n in range(20))) == 19
    assert numbers(broker, "ev.S") == expected(at + 20)


def test_not_too_many_rows_wait_for_their_acks(broker: Any, writer: Any) -> None:
    one = writer()
    at = one.begin()
    publisher, (batch,) = one.publisher(), one.cache.ingests.values()
    for n in range(0, 2000, 100):
        publisher.begin_run(0)
        publisher.add(rows(at + n, 100))
        if not publisher.send():
            assert batch.sent - batch.acked < batch.flow
    publisher.finish()
    assert numbers(broker, "ev.S") == expected(at + 2000)


def test_publishers_of_one_connection_receive_the_answers_of_each_other(
    broker: Any, writer: Any
) -> None:
    one = writer()
    names = ("p", "q", "r")
    for name in names:
        one.write(rows(0, 3, name), rows(3, 3, name))
    made = {name: one.publisher() for name in names}
    for turn in range(150):
        for name, publisher in made.items():
            publisher.begin_run(0)
            publisher.add(rows(6 + turn * 4, 4, name))
            publisher.send()
        if turn == 70:
            batch = broker.marker("S", "q").ingest
            fencing.end(broker.connection, "S", "mesh._marker.S.q", batch)
    for publisher in made.values():
        publisher.finish()
    assert sorted(numbers(broker, "ev.S")) == sorted(expected(606) * 3)
    # Only the one whose batch was ended publishes in another way.
    assert set(one.cache.paused_s) == {("S", "q")}


@pytest.mark.parametrize("at_run", [1, 40, 99])
def test_runs_on_their_way_are_not_repeated_when_another_writer_has_come(
    broker: Any, writer: Any, at_run: int
) -> None:
    old, new = writer(), writer()
    at = old.begin()
    made = old.publisher()
    for n in range(100):
        made.begin_run(0)
        made.add(rows(at + n, 1))
        made.send()
        if n == at_run:
            new.write(rows(at, 60))
    made.finish()
    assert numbers(broker, "ev.S") == expected(at + 100)


def test_a_core_subscriber_sees_each_row_once(broker: Any, writer: Any) -> None:
    with Connection(sink_options(broker.given).connection) as other:
        sid = other.retry_while_unavailable(
            "subscribing", lambda: other.subscribe("ev.S", most=100_000)
        )
        other.retry_while_unavailable("asking", lambda: other.requests([("$JS.API.INFO", b"")]))
        one = writer()
        one.write(*(rows(at, 7) for at in range(0, 700, 7)))
        seen: list[int] = []
        while len(seen) < 700:
            assert other.wait_for_message({sid}, 10) is not None
            seen.append(len(seen))
        assert not other.wait_for_message({sid}, 0.2)


def test_rows_of_a_killed_writer_are_not_repeated(broker: Any, writer: Any) -> None:
    old = writer()
    at = old.begin()
    old.leave_unconfirmed(rows(at, 150))
    assert broker.marker("S", "p").position < at
    new = writer()
    new.write(rows(at - 20, 400))
    assert numbers(broker, "ev.S") == expected(at + 380)


def test_a_run_that_was_given_up_is_not_repeated_by_the_same_process(
    broker: Any, writer: Any
) -> None:
    """Its marker is not known any more, and has to be read."""
    one = writer()
    at = one.begin()
    one.leave_unconfirmed(rows(at, 150))
    one.write(rows(at, 150), rows(at + 150, 20))
    assert numbers(broker, "ev.S") == expected(at + 170)


def test_a_writer_that_wakes_up_adds_nothing(broker: Any, writer: Any) -> None:
    old, new = writer(), writer()
    at = old.begin()
    new.write(rows(at - 5, 105))
    # It believes that its batch is open.
    old.write(rows(at, 300))
    assert numbers(broker, "ev.S") == expected(at + 300)


def test_a_writer_that_wakes_up_between_marker_and_rows_adds_nothing(
    broker: Any, writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server would begin its batch anew: the first row must be refused."""
    old, new = writer(), writer()
    old.write(rows(0, 3))
    send = ingest.IngestPath._send
    overtaken: list[int] = []

    def late(self: Any, *given: Any) -> None:
        if not overtaken:
            overtaken.append(1)
            new.write(rows(0, 50))
        send(self, *given)

    monkeypatch.setattr(ingest.IngestPath, "_send", late)
    old.write(rows(3, 600))
    assert overtaken
    assert numbers(broker, "ev.S") == expected(603)


def test_a_writer_of_an_older_epoch_is_refused(broker: Any, writer: Any) -> None:
    old, new = writer(1), writer(2)
    at = old.begin()
    old.leave_unconfirmed(rows(at, 100))
    new.write(rows(at, 150))
    with pytest.raises(StaleWriterError):
        old.write(rows(at + 100, 100))
    assert numbers(broker, "ev.S") == expected(at + 150)


def test_two_writers_at_once_write_each_row_once(broker: Any, writer: Any) -> None:
    failed: list[BaseException] = []
    start = threading.Barrier(2)

    def run() -> None:
        try:
            # Each thread has a cache of its own.
            one = writer()
            start.wait(10)
            one.write(*(rows(at, 1500) for at in range(0, 30_000, 1500)))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    assert numbers(broker, "ev.S") == expected(30_000)


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("token", "answers"),
    [(b'"type":"ack"', n) for n in (0, 1, 5, 40)] + [(b'"stream":"S"', n) for n in (0, 1, 12, 25)],
)
def test_lost_answers_neither_lose_nor_double(
    broker: Any, writer: Any, nats_server: server.NatsServer, token: bytes, answers: int
) -> None:
    cutter = Cutter(nats_server.port, acks=answers, token=token)
    try:
        one = writer(url=cutter.url)
        one.write(*(rows(at, 900) for at in range(0, 27_000, 900)))
    finally:
        cutter.close()
    assert cutter.cuts == 1
    assert numbers(broker, "ev.S") == expected(27_000)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("answers", [0, 1, 2, 3, 5])
def test_lost_answers_to_runs_that_are_confirmed_together_neither_lose_nor_double(
    broker: Any, writer: Any, nats_server: server.NatsServer, answers: int
) -> None:
    cutter = Cutter(nats_server.port, acks=answers, token=b'"type":"ack"')
    try:
        one = writer(url=cutter.url)
        one.write(rows(0, 3), rows(3, 2))
        one.write_together(*(rows(at, 25) for at in range(5, 5005, 25)))
    finally:
        cutter.close()
    assert cutter.cuts == 1
    assert numbers(broker, "ev.S") == expected(5005)


def test_a_server_that_ends_the_batch_only_costs_time(broker: Any, writer: Any) -> None:
    """As when a writer paused for longer than the server keeps a batch."""
    one = writer()
    at = one.begin()
    batch = broker.marker("S", "p").ingest
    fencing.end(broker.connection, "S", "mesh._marker.S.p", batch)
    one.write(rows(at, 500), rows(at + 500, 500))
    assert numbers(broker, "ev.S") == expected(at + 1000)
    # Known to be gone: the next runs are atomic for a while.
    assert broker.marker("S", "p").ingest is None


def test_a_late_run_of_input_that_came_soon_goes_into_an_ingest_batch(
    broker: Any, writer: Any
) -> None:
    """A slot with too much to do comes late to each of its parts."""
    one = writer()
    one.write(rows(0, 1))
    for number, (after_ms, is_ingested) in enumerate([(0, False), (1000, True), (9000, False)], 1):
        # As if the last run were long ago.
        for known in (one.cache.published_s, one.cache.ingests):
            known.clear()
        made = one.publisher()
        made.begin_run(1_700_000_000_000 + after_ms)
        made.add(rows(number, 1))
        made.finish()
        assert bool(one.cache.ingests) is is_ingested
    assert numbers(broker, "ev.S") == expected(4)


def test_a_call_between_markers_and_their_acks_loses_none_of_them(broker: Any, writer: Any) -> None:
    one = writer()
    at = one.begin()
    made = one.publisher()
    made.begin_run(0)
    made.add(rows(at, 3))
    assert not made.send()
    publish.prepare_finish([made])
    while broker.marker("S", "p").position < at + 2:
        """The server has not stored it yet."""
    # Such as the purge of old markers, which waits for its answer.
    for _ in range(3):
        one.connection.requests([(one.connection.api("STREAM.INFO.S"), b"")])
    started_s = time.monotonic()
    made.finish()
    assert time.monotonic() - started_s < ingest._ANSWER_S
    assert broker.marker("S", "p").ingest is not None, "nothing was in doubt"
    assert numbers(broker, "ev.S") == expected(at + 3)


@pytest.mark.parametrize("fault", ["none", "closed", "replaced", "killed"])
def test_rows_that_wait_for_the_beginning_of_their_batch_are_stored_once(
    broker: Any, writer: Any, fault: str
) -> None:
    one = writer()
    one.write(rows(0, 2))
    made = one.publisher()
    made.begin_run(0)
    made.add(rows(2, 3))
    assert not made.send()
    assert made.is_waiting
    assert numbers(broker, "ev.S") == expected(2)
    if fault == "closed":
        one.connection.close()
    if fault in ("replaced", "killed"):
        # The marker that names the batch is there, and none of its rows.
        while broker.marker("S", "p").ingest is None:
            """The server has not stored it yet."""
        new = writer(epoch=2)
        new.write(rows(2, 3), rows(5, 1))
        if fault == "replaced":
            with pytest.raises(StaleWriterError):
                made.proceed()
        assert numbers(broker, "ev.S") == expected(6)
        return
    made.proceed()
    assert not made.is_waiting
    made.begin_run(0)
    made.add(rows(5, 4))
    made.send()
    made.finish()
    assert numbers(broker, "ev.S") == expected(9)


def test_a_further_run_follows_rows_that_wait_for_the_beginning_of_their_batch(
    broker: Any, writer: Any
) -> None:
    one = writer()
    one.write(rows(0, 2))
    made = one.publisher()
    for first in (2, 4, 6):
        made.begin_run(0)
        made.add(rows(first, 2))
        made.send()
    made.finish()
    assert numbers(broker, "ev.S") == expected(8)


def test_forged_rows_hide_nothing(broker: Any, writer: Any) -> None:
    """A client that may publish on the subject copies headers, and guesses others."""
    old = writer()
    at = old.begin()
    headers = []
    for sequence in range(1, broker.info("S").last + 1):
        stored = broker.call("STREAM.MSG.GET.S", seq=sequence)["message"]
        text = __import__("base64").b64decode(stored.get("hdrs", "")).decode()
        headers += [line for line in text.split("\r\n") if line.startswith("Mesh-Row:")]
    last = messages_out.parse(headers[-1].removeprefix("Mesh-Row:"))
    assert last is not None
    forged = (
        f"{last.producer} {at + 90} {last.number} {last.tag}",
        f"{last.producer} {at + 90} {last.number + 1} {last.tag}",
        f"{last.producer} {at + 90} {last.number + 1} 00000000",
        f"{last.producer} {'9' * 30} {last.number + 1} {last.tag}", "x", "1 2 3", "a b c d", " ",
    )  # fmt: skip
    for one in forged:
        broker.publish("ev.S", "-1", Mesh_Row=one)
    old.leave_unconfirmed(rows(at, 50))
    following = f"{last.producer} {at + 90} {last.number + 51} {last.tag}"
    for one in (*forged, following):
        broker.publish("ev.S", "-1", Mesh_Row=one)
    writer().write(rows(at, 100))
    assert [n for n in numbers(broker, "ev.S") if n >= 0] == expected(at + 100)


def test_forged_messages_of_a_batch_end_it_and_lose_nothing(broker: Any, writer: Any) -> None:
    one = writer()
    at = one.begin()
    batch = broker.marker("S", "p").ingest

    def disturb() -> None:
        sid, inbox = broker.connection.new_inbox_tree(">")
        reply = f"{inbox}.{batch.batch_id}.500.fail.{1001}.1.$FI"
        broker.connection.send(frames.publish("ev.S", b"-1", reply=reply))
        broker.connection.unsubscribe(sid)
        broker.call("INFO")

    broker.connection.retry_while_unavailable("disturbing", disturb)
    one.write(rows(at, 700), rows(at + 700, 10))
    assert [n for n in numbers(broker, "ev.S") if n >= 0] == expected(at + 710)


@pytest.mark.parametrize(
    "answer",
    [b"x", b"[]", b"{}", b"1", b'{"type":"ack"}', b'{"type":"ack","seq":"x","msgs":1}',
     b'{"type":"ack","seq":99999999,"msgs":-5}', b'{"error":{"code":400,"err_code":10071}}'],
)  # fmt: skip
def test_forged_answers_confirm_nothing(
    broker: Any, writer: Any, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    """Readers of the rows learn the inbox of their acks, but not that of the marker's."""
    one = writer()
    at = one.begin()
    send = ingest.IngestPath._send

    def answered(self: Any, batch: Any, *given: Any) -> None:
        inbox = batch.reply(self._inbox(ingest._ROWS))
        forged = [f"{inbox}.{batch.sent + 600}.{code}.$FI" for code in (1, 4)]
        broker.connection.retry_while_unavailable("connecting", lambda: None)
        for subject in (*forged, f"{inbox}.x"):
            broker.connection.send(frames.publish(subject, answer))
        broker.call("INFO")
        send(self, batch, *given)

    monkeypatch.setattr(ingest.IngestPath, "_send", answered)
    one.write(rows(at, 600), rows(at + 600, 600))
    assert numbers(broker, "ev.S") == expected(at + 1200)


def test_a_row_that_is_too_large_ends_the_batch(broker: Any, writer: Any) -> None:
    config = broker.call("STREAM.INFO.S")["config"]
    broker.call("STREAM.UPDATE.S", **{**config, "max_msg_size": 200})
    one = writer(timeout_s=1)
    at = one.begin()
    run = rows(at, 300)
    data = run.column("data")
    large = pa.array([b"%0300d" % (at + 100)], pa.binary())
    column = pa.concat_arrays([data.slice(0, 100), large, data.slice(101)])
    run = run.set_column(2, run.schema.field(2), column)
    for again in (one, writer(timeout_s=1)):
        with pytest.raises(RefusedError, match="a message of 300 bytes"):
            again.write(run)
        assert numbers(broker, "ev.S") == expected(at + 100)
    broker.call("STREAM.UPDATE.S", **{**config, "max_msg_size": -1})
    writer().write(run, rows(at + 300, 10), rows(at + 310, 10))
    assert numbers(broker, "ev.S") == expected(at + 320)


@pytest.mark.slow
def test_rows_after_those_that_a_full_server_refuses_are_not_stored(
    serve: Callable[[str], server.NatsServer],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is space again when the server has the later ones."""
    broker = connect(serve("jetstream: {max_file_store: 4MB}"), timeout_s=1)
    request.addfinalizer(broker.connection.close)
    broker.create("S", "ev.>", allow_batched=True)
    broker.create("JUNK", "junk")
    one, two = Writer(broker.url, 1, 20), Writer(broker.url, 1, 20)
    at = one.begin()
    pieces: list[bytes] = []
    send = one.connection.send

    def piece(data: bytes) -> None:
        if data.startswith(b"HPUB ev.S "):
            pieces.append(data)
            if len(pieces) == 1:
                sizes = [900_000] * 4 + [1_000] * 600
                broker.connection.send(
                    b"".join(frames.publish("junk", bytes(size)) for size in sizes)
                )
                with pytest.raises(UnavailableError):
                    broker.publish("junk", bytes(1_000))
            else:
                # The first piece is refused, and the next is not.
                assert one.connection.is_readable(30)
                broker.call("STREAM.PURGE.JUNK")
        send(data)

    monkeypatch.setattr(one.connection, "send", piece)
    made = one.publisher()
    path = made.atomic
    monkeypatch.setattr(path, "_ingested", lambda step: step(path.ingest))
    with pytest.raises(DisconnectedError, match="insufficient"):
        made.write(rows(at, 900))
    assert len(pieces) == 2
    stored = numbers(broker, "ev.S")
    assert stored == expected(len(stored))
    two.write(rows(at - 10, 400), rows(at + 390, 520), rows(at + 910, 5), rows(at + 915, 5))
    assert numbers(broker, "ev.S") == expected(at + 920)
    for connection in (one.connection, two.connection):
        connection.close()


@pytest.mark.parametrize(
    "config",
    [
        {"allow_batched": False}, {"max_msgs": 100_000}, {"max_bytes": 1 << 20},
        {"retention": "workqueue"}, {"discard": "new"},
        {"max_age": 1_000_000_000, "duplicate_window": 1_000_000_000},
    ],
)  # fmt: skip
def test_other_streams_get_atomic_batches(broker: Any, config: dict[str, Any]) -> None:
    broker.create("S", **{"allow_batched": True, **config})
    one = Writer(broker.url, 1, 20)
    try:
        one.write(rows(0, 3), rows(3, 1000), rows(1003, 5))
    finally:
        one.connection.close()
    assert broker.marker("S", "p").ingest is None
    assert broker.marker("S", "p").position == 1007


def test_several_streams_and_producers_of_a_run(broker: Any, writer: Any) -> None:
    broker.create("T", "to.T", allow_batched=True)
    broker.create("A", "at.A")
    one = writer()

    def both(at: int) -> publish.RowPublisher:
        made: publish.RowPublisher = one.publisher()
        for producer in ("p", "q"):
            made.add(rows(at, 600, producer))
        for stream, subject in (("T", "to.T"), ("A", "at.A")):
            batch = rows(at, 600, "p", stream)
            column = pa.array([subject] * 600)
            made.add(batch.set_column(1, batch.schema.field(1), column))
        return made

    for at in range(0, 3000, 600):
        both(at).finish()
    assert sorted(numbers(broker, "ev.S")) == sorted(expected(3000) * 2)
    assert [int(n) for n in broker.payloads("T", "to.T")] == expected(3000)
    assert [int(n) for n in broker.payloads("A", "at.A")] == expected(3000)
