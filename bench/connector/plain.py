"""Plain programs that set the limit: they do one thing with the server and nothing else.

Each runs in a process of its own, as Spark's workers do: ``python -m bench.connector.plain JOB``,
where JOB is a JSON object of the program's arguments.  It prepares, reports that, waits for a line,
works, and prints its start and end, on the clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bench.connector import events
from bench.connector.wire import SILENCE_S, Access, Wire
from mesh.processes.bounded_process import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Messages that are sent at once, and the maximum without an answer.
_PUBLISH_CHUNK: Final = 1000
_PUBLISH_WINDOW: Final = 8000
_JOB_TIMEOUT_S: Final = 120.0
#: More than the line before a message needs.
_HEAD_BYTES: Final = 256


@dataclass(frozen=True)
class CountBytes:
    """Read a stream from its start up to ``last`` and count the bytes, nothing else."""

    port: int | Access
    stream: str
    last: int
    #: Number of messages of a request; two are under way at a time.  Their size must stay below the
    #: 64 MB that the server keeps for a client.
    pull: int = 100_000

    def prepare(self) -> Callable[[], int]:
        """Create the consumer; the returned function reads, and returns the bytes."""
        wire = Wire(self.port)
        name = f"count-{wire.inbox[-8:]}"
        config = {"name": name, "deliver_policy": "by_start_sequence", "opt_start_seq": 1,
                  "ack_policy": "none", "mem_storage": True, "num_replicas": 1}  # fmt: skip
        wire.call(f"CONSUMER.CREATE.{self.stream}.{name}", stream_name=self.stream, config=config)
        next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{name}"
        pull = json.dumps({"batch": self.pull, "expires": int(SILENCE_S * 1e9)}).encode()

        def work() -> int:
            buffer = bytearray(4 << 20)
            view = memoryview(buffer)
            receive = wire.socket.recv_into
            asked = at = size = got = 0
            marker = b".%d.%d." % (self.last, self.last)
            while at < self.last:
                while asked < self.last and asked - at <= self.pull:
                    wire.publish(next_subject, pull, "m")
                    asked += self.pull
                # A head may be cut in two; so the end of the last data is kept as a prefix of the
                # next.
                view[:_HEAD_BYTES] = view[got : got + _HEAD_BYTES]
                got = receive(view[_HEAD_BYTES:])
                if not got:
                    raise RuntimeError("the server closed the connection")
                size += got
                # The last head that is certainly complete has the position of reading:
                # $JS.ACK.stream.consumer.delivered.sequence.consumer_sequence.time.pending
                head = buffer.rfind(b"$JS.ACK.", 0, got)
                if head >= 0:
                    at = int(bytes(view[head : head + _HEAD_BYTES]).split(b".", 6)[5])
                # The very last one may arrive too late for that.
                if buffer.find(marker, got, got + _HEAD_BYTES) >= 0:
                    at = self.last
            wire.socket.close()
            return size

        return work


@dataclass(frozen=True)
class Publish:
    """Publish prebuilt messages with a bounded window of acks, which are only counted."""

    port: int | Access
    subject: str
    #: Bytes of an event as JSON: 70 or 120.
    size: int
    first: int
    count: int
    #: 0 for one event a message as JSON, else events a message as Arrow.
    rows_per_message: int = 0
    #: Lines of each message's header.
    header: Sequence[str] = ()

    def prepare(self) -> Callable[[], int]:
        """Build the frames; the returned function sends them, and returns their number."""
        wire = Wire(self.port)
        target = f"{self.subject} {wire.inbox}.a"
        header = self.header
        if self.rows_per_message:
            header = (*header, f"Content-Type: {events.ARROW_CONTENT_TYPE}")
            payloads = events.as_arrow(self.size, self.first, self.count, self.rows_per_message)
        else:
            payloads = events.as_json(self.size, self.first, self.count)
        if header:
            block = "\r\n".join(("NATS/1.0", *header, "\r\n")).encode()
            frames = [
                b"HPUB %b %d %d\r\n%b%b\r\n"
                % (target.encode(), len(block), len(block) + len(data), block, data)
                for data in payloads
            ]
        else:
            frames = [b"PUB %b %d\r\n%b\r\n" % (target.encode(), len(p), p) for p in payloads]
        # Arrow messages are big; a chunk of them is bounded by its bytes.
        step = _PUBLISH_CHUNK if not self.rows_per_message else 10
        window = _PUBLISH_WINDOW if not self.rows_per_message else 80
        chunks = [
            (b"".join(frames[at : at + step]), len(frames[at : at + step]))
            for at in range(0, len(frames), step)
        ]

        def work() -> int:
            _send_within(wire, chunks, window)
            return len(frames)

        return work


def _send_within(wire: Wire, chunks: Sequence[tuple[bytes, int]], window: int) -> None:
    """Send chunks, each with its number of acks, of which at most ``window`` are open at a time."""
    open_acks = 0
    rest = b""
    for chunk, count in chunks:
        while open_acks > window - count:
            done, rest = acks(wire, rest)
            open_acks -= done
        wire.send(chunk)
        open_acks += count
    while open_acks > 0:
        done, rest = acks(wire, rest)
        open_acks -= done
    wire.socket.close()


def acks(wire: Wire, rest: bytes) -> tuple[int, bytes]:
    """Receive, and count the acks; a possible first part of another is an argument and a result."""
    got = wire.receive()
    data = rest + got
    if b'"error"' in data or b"-ERR" in data:
        raise RuntimeError(f"the server refused a message: {data[:300]!r}")
    return data.count(b'"seq":'), data[-5:] if not data.endswith(b'"seq":') else b""


@dataclass(frozen=True)
class PublishAtomically:
    """Publish prebuilt atomic batches, several under way at a time."""

    port: int | Access
    subject: str
    #: Bytes of an event as JSON: 70 or 120.
    size: int
    first: int
    count: int
    window: int = 8
    #: Messages of a batch.
    rows: int = 1000

    def prepare(self) -> Callable[[], int]:
        """Build the frames; the returned function sends them, and returns their number."""
        wire = Wire(self.port)
        payloads = events.as_json(self.size, self.first, self.count)
        batches = [
            (self._batch(payloads[at : at + self.rows], f"{wire.inbox}.a"), 1)
            for at in range(0, len(payloads), self.rows)
        ]

        def work() -> int:
            _send_within(wire, batches, self.window)
            return len(payloads)

        return work

    def _batch(self, payloads: list[bytes], inbox: str) -> bytes:
        name = os.urandom(8).hex()
        frames: list[bytes] = []
        for number, data in enumerate(payloads, 1):
            is_last = number == len(payloads)
            commit = "Nats-Batch-Commit: 1\r\n" if is_last else ""
            block = (
                f"NATS/1.0\r\nNats-Batch-Id: {name}\r\nNats-Batch-Sequence: {number}\r\n"
                f"{commit}\r\n"
            ).encode()
            target = f"{self.subject} {inbox}" if is_last else self.subject
            sizes = len(block), len(block) + len(data)
            frames.append(b"HPUB %b %d %d\r\n%b%b\r\n" % (target.encode(), *sizes, block, data))
        return b"".join(frames)


@dataclass(frozen=True)
class PublishIngested:
    """Publish prebuilt messages in one ingest batch, as fast as the server's acks allow."""

    port: int | Access
    subject: str
    #: Bytes of an event as JSON: 70 or 120.
    size: int
    first: int
    count: int
    #: Lines of each message's header.
    header: Sequence[str] = ()
    #: Most messages between two acks.
    flow: int = 500

    def prepare(self) -> Callable[[], int]:
        """Build the frames; the returned function sends them, and returns their number."""
        wire = Wire(self.port)
        block = "\r\n".join(("NATS/1.0", *self.header, "\r\n")).encode()
        reply = f"{wire.inbox}.{os.urandom(4).hex()}.{self.flow}.fail"
        payloads = events.as_json(self.size, self.first, self.count)
        frames: list[bytes] = []
        for number, data in enumerate(payloads, 1):
            operation = 0 if number == 1 else 2 if number == self.count else 1
            target = f"{self.subject} {reply}.{number}.{operation}.$FI"
            sizes = len(block), len(block) + len(data)
            frames.append(b"HPUB %b %d %d\r\n%b%b\r\n" % (target.encode(), *sizes, block, data))
        starts = range(1, len(frames), self.flow)
        pieces = [frames[0], *(b"".join(frames[at : at + self.flow]) for at in starts)]

        def work() -> int:
            acked, rest, told = 0, b"", list[dict[str, Any]]()
            for number, piece in enumerate(pieces):
                # Two acks may be missing; the first message has one of its own.
                while number - 2 > acked:
                    told, rest = _answers(wire, rest)
                    acked = max([acked, *(int(one["seq"]) // self.flow for one in told)])
                wire.send(piece)
            while not any("batch" in one for one in told):
                told, rest = _answers(wire, rest)
            wire.socket.close()
            return len(frames)

        return work


def _answers(wire: Wire, rest: bytes) -> tuple[list[dict[str, Any]], bytes]:
    """Receive answers in JSON; a possible first part of another is an argument and a result."""
    got = wire.receive()
    *lines, rest = (rest + got).split(b"\r\n")
    told = [json.loads(line) for line in lines if line.startswith(b"{")]
    if refused := [one for one in told if "error" in one or one.get("type") == "gap"]:
        raise RuntimeError(f"the server refused a message: {refused[0]}")
    return told, rest


@dataclass(frozen=True)
class NatsPyLoop:
    """The usual program of a nats-py user: fetch, decode each message with orjson, fetch again."""

    port: int | Access
    stream: str
    count: int
    fetch: int

    def prepare(self) -> Callable[[], int]:
        """Nothing can be prepared outside its event loop; connecting needs milliseconds."""
        return lambda: asyncio.run(self._read())

    async def _read(self) -> int:
        import nats
        import orjson
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        client = await nats.connect(f"nats://127.0.0.1:{self.port}", pending_size=1 << 26)
        context = client.jetstream()
        config = ConsumerConfig(
            ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL, mem_storage=True
        )
        subscription = await context.pull_subscribe(
            "", stream=self.stream, config=config,
            pending_msgs_limit=-1, pending_bytes_limit=-1,
        )  # fmt: skip
        rows = 0
        while rows < self.count:
            for message in await subscription.fetch(self.fetch, timeout=SILENCE_S):
                orjson.loads(message.data)
                rows += 1
        await client.close()
        return rows


Job: TypeAlias = CountBytes | Publish | PublishAtomically | PublishIngested | NatsPyLoop

_JOBS: Final[dict[str, type[Job]]] = {
    kind.__name__: kind
    for kind in (CountBytes, Publish, PublishAtomically, PublishIngested, NatsPyLoop)
}


def together(jobs: Sequence[Job]) -> float:
    """Run ``jobs`` at the same time, a process each; the seconds from first start to last end.

    Raises:
        RuntimeError: one failed; subprocess.TimeoutExpired: one took over two minutes.
    """
    children = [_start(job) for job in jobs]
    try:
        for child in children:
            assert child.stdout is not None
            if child.stdout.readline() != "ready\n":
                raise RuntimeError(f"a plain program did not get ready: {child.args!r}")
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        said = [child.communicate(timeout=_JOB_TIMEOUT_S)[0] for child in children]
        if any(child.returncode for child in children):
            raise RuntimeError("a plain program failed; what it said is above")
    finally:
        for child in children:
            child.kill()
            child.wait()
    spans = [json.loads(text) for text in said]
    return float(max(s["ended_s"] for s in spans) - min(s["started_s"] for s in spans))


def _start(job: Job) -> subprocess.Popen[str]:
    given = json.dumps({"kind": type(job).__name__, **asdict(job)})
    return subprocess.Popen(
        [sys.executable, "-m", "bench.connector.plain", given],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        preexec_fn=die_with_parent(),
    )  # fmt: skip


def main() -> None:
    """Do the one job that is given."""
    given = json.loads(sys.argv[1])
    work = _JOBS[given.pop("kind")](**given).prepare()
    print("ready", flush=True)
    sys.stdin.readline()
    started_s = time.monotonic()
    done = work()
    print(json.dumps({"done": done, "started_s": started_s, "ended_s": time.monotonic()}))


if __name__ == "__main__":
    main()
