"""Rows that are sent ahead of their acks."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from typing import Any

import pyarrow as pa

from pyspark_nats.arrow import arrow
from pyspark_nats.protocol import frames
from pyspark_nats.sink import messages_out, publish

ROWS = 60_000
STEP = 10_000


def rows(first: int, count: int, stream: str = "S") -> pa.RecordBatch:
    data = pa.array([b"%d" % n for n in range(first, first + count)], pa.binary())
    return messages_out.with_schema_columns(
        arrow.record_batch({"data": data}),
        stream=stream, subject=f"ev.{stream}", producer="p", first_position=first,
    )  # fmt: skip


def write(publisher: publish.RowPublisher, first: int = 0, last: int = ROWS) -> None:
    for at in range(first, last, STEP):
        publisher.add(rows(at, min(STEP, last - at)))
    publisher.finish()


def numbers(broker: Any, subject: str = "ev.S") -> list[int]:
    """The numbers stored, in the stream's order, read by a consumer because there may be many."""
    connection = broker.connection
    config = {
        "name": "all", "ack_policy": "none", "filter_subject": subject, "deliver_policy": "all",
        "mem_storage": True, "num_replicas": 1,
    }  # fmt: skip
    made = broker.call("CONSUMER.CREATE.S.all", stream_name="S", config=config)
    wanted, found = int(made["num_pending"]), list[int]()
    sid, inbox = connection.new_inbox()
    ask = json.dumps({"batch": wanted}).encode()
    if wanted:
        connection.send(frames.publish("$JS.API.CONSUMER.MSG.NEXT.S.all", ask, reply=inbox))
    while len(found) < wanted:
        taken = connection.take_frames()
        found += [int(data) for data in taken.data.filter(pa.array(taken.sid == sid)).to_pylist()]
        if not len(taken):
            connection.receive(time.monotonic() + 10)
    connection.unsubscribe(sid)
    broker.call("CONSUMER.DELETE.S.all")
    return found


class Cutter:
    """A relay to the server that cuts the connection once, after a number of acks."""

    def __init__(self, port: int, *, acks: int, token: bytes = b'"batch":') -> None:
        self._port, self._acks, self._token = port, acks, token
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            remote = socket.create_connection(("127.0.0.1", self._port))
            self._ends += [client, remote]
            for ends in ((client, remote, False), (remote, client, True)):
                self._threads.append(threading.Thread(target=self._pump, args=ends))
                self._threads[-1].start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(65536):
                if is_answer:
                    self._acks -= chunk.count(self._token)
                    if self._acks < 0 and not self.cuts:
                        self.cuts += 1
                        break
                sink.sendall(chunk)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
