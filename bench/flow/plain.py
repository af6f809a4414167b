"""A plain Python program that does what an app does, at least once, with no state that survives.

``python -m bench.flow.plain JOB``, a JSON object of ``Job``'s fields.  It reads a stream through
a pull consumer, decodes each event with orjson, and publishes with a bounded window of acks.
Nothing here is of ``pyspark_nats``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import orjson

from bench.connector.plain import acks
from bench.connector.wire import Access, Wire
from mesh.processes.bounded_process import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator

_PULL: Final = 50_000
#: A pull lasts so long, seconds: messages of one that expires are never asked for again.
_PULL_S: Final = 600.0
#: Messages that are sent at once, and the most without an ack.
_CHUNK: Final = 1000
_WINDOW: Final = 8000


@dataclass(frozen=True)
class Job:
    """Input, computation and output."""

    access: Access
    stream: str
    #: Number of messages to read.
    count: int
    subject: str
    #: ``filter`` (W1) or ``average`` by key and second (W2).
    kind: str


class Publisher:
    """Publishes messages and counts their acks."""

    def __init__(self, wire: Wire, subject: str) -> None:
        self._wire = wire
        self._head = f"PUB {subject} {wire.inbox}.a ".encode()
        self._frames: list[bytes] = []
        self._open = 0
        self._rest = b""

    def add(self, data: bytes) -> None:
        """Publish a message, now or with later ones."""
        self._frames.append(b"%b%d\r\n%b\r\n" % (self._head, len(data), data))
        if len(self._frames) >= _CHUNK:
            self._send()

    def finish(self) -> None:
        """Wait for all acks."""
        self._send()
        while self._open:
            self._acks()

    def _send(self) -> None:
        while self._open > _WINDOW - len(self._frames):
            self._acks()
        self._wire.send(b"".join(self._frames))
        self._open += len(self._frames)
        self._frames.clear()

    def _acks(self) -> None:
        done, self._rest = acks(self._wire, self._rest)
        self._open -= done


def fill(access: Access, subject: str, count: int) -> None:
    """Store ``count`` events on a subject, numbered from 0, with 50 keys."""
    with Wire(access) as wire:
        out = Publisher(wire, subject)
        pad = b"x" * 60
        for n in range(count):
            values = (n, n % 100, n % 50, pad)
            out.add(b'{"n": %d, "v": %d.5, "k": "key%d", "note": "%b"}' % values)
        out.finish()


def messages(wire: Wire, job: Job) -> Iterator[list[tuple[int, bytes]]]:
    """The messages of the stream in parts: broker's time in seconds, payload."""
    name = f"plain-{wire.inbox[-8:]}"
    config = {"name": name, "deliver_policy": "all", "ack_policy": "none", "mem_storage": True,
              "num_replicas": 1}  # fmt: skip
    wire.call(f"CONSUMER.CREATE.{job.stream}.{name}", stream_name=job.stream, config=config)
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{job.stream}.{name}"
    pull = json.dumps({"batch": _PULL, "expires": int(_PULL_S * 1e9)}).encode()
    asked = got = 0
    buffer = b""
    while got < job.count:
        while asked < job.count and asked - got <= _PULL:
            wire.publish(subject, pull, "m")
            asked += _PULL
        buffer += wire.receive()
        at = 0
        part: list[tuple[int, bytes]] = []
        while (end := buffer.find(b"\r\n", at)) >= 0:
            words = buffer[at:end].split(b" ")
            start = end + 2
            if words[0] == b"PING":
                wire.send(b"PONG\r\n")
                at = start
                continue
            size = int(words[-1])
            if start + size + 2 > len(buffer):
                break
            if words[0] == b"MSG":
                time_ns = int(words[3].split(b".")[7])
                part.append((time_ns // 10**9, buffer[start : start + size]))
            at = start + size + 2
        buffer = buffer[at:]
        got += len(part)
        yield part


def work(job: Job) -> float:
    """Do it; the seconds that it took."""
    source, target = Wire(job.access), Wire(job.access)
    out = Publisher(target, job.subject)
    started_s = time.perf_counter()
    if job.kind == "filter":
        for part in messages(source, job):
            for _, data in part:
                event = orjson.loads(data)
                if event["v"] >= 0:
                    out.add(orjson.dumps({"n": event["n"], "w": event["v"] * 2, "k": event["k"]}))
    else:
        second = 0
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for part in messages(source, job):
            for at_s, data in part:
                if at_s != second:
                    for key, (total, count) in sums.items():
                        out.add(orjson.dumps({"k": key, "mean": total / count}))
                    sums.clear()
                    second = at_s
                event = orjson.loads(data)
                found = sums[event["k"]]
                found[0] += event["v"]
                found[1] += 1
    out.finish()
    return time.perf_counter() - started_s


def run(job: Job) -> float:
    """Run a job in a process of its own; the seconds that it took."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.flow.plain", json.dumps(asdict(job))],
        stdout=subprocess.PIPE, check=True, preexec_fn=die_with_parent(),
    )  # fmt: skip
    return float(done.stdout)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(work(Job(**{**given, "access": Access.of(given["access"])})))
