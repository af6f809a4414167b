"""Publishes events at a rate, and notes when each comes out: ``python -m bench.flow.meter JOB``.

JOB is a JSON object of ``Job``'s fields.  The result is printed as JSON, ``Measured``'s fields.

It sends and receives on plain sockets, many events at a time.  A client library with a call for
each event takes a whole core at 10,000 events a second, which the measured mesh would not have.
Some events ask for an acknowledgement, so that the server never has more waiting for a stream than
it takes: it discards the others.
"""

from __future__ import annotations

import json
import re
import select
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from bench.connector.plain import acks
from bench.connector.wire import SILENCE_S, Access, Wire

#: Time limit for the last events, seconds.
_REST_S: Final = 10.0
#: Least time between two sends, seconds: events that are due in between go together.
_TICK_S: Final = 0.001
_QUIET_S: Final = 0.1
#: Most events that may not be stored yet; a server discards others while 10,000 wait.
_WINDOW: Final = 4_000
#: Of each app one of so many events asks for an acknowledgement, which is for those before it, too.
_ACKNOWLEDGED: Final = 50
_NUMBER: Final = re.compile(rb'"n": ?(\d+)[,}]')


@dataclass(frozen=True)
class Job:
    """Events to publish, and the stream in which they come out."""

    #: Of the publisher, and of the subscriber.
    source: Access
    target: Access
    #: Apps that get the events in turn.
    apps: tuple[str, ...]
    #: Stream of each app whose events have the attribute ``n`` of the input event.
    stream: str
    #: Events per second.
    rate: float
    count: int

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Measured:
    """Latencies of the stream's events."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    #: Events that came more than once, and that did not come.
    repeats: int
    missing: int


class _Arrivals:
    """Notes when the events of a job come, numbered from ``base``."""

    def __init__(self, wire: Wire, base: int, count: int) -> None:
        self._wire = wire
        self._base = base
        self._received: list[tuple[bytes, float]] = []
        self._rest = b""
        self._parts: list[tuple[np.ndarray, float]] = []
        self._counts = np.zeros(count, np.int64)

    def take(self) -> None:
        """Receive what is there; it is looked at later."""
        chunk = self._wire.receive()
        self._received.append((chunk, time.perf_counter()))
        if b"PING\r\n" in chunk:
            self._wire.send(b"PONG\r\n")

    def complete(self) -> bool:
        """Whether each event has come."""
        for chunk, at_s in self._received:
            data = self._rest + chunk
            end = 0
            found = []
            for match in _NUMBER.finditer(data):
                found.append(int(match[1]))
                end = match.end()
            self._rest = data[end:]
            numbers = np.array(found, np.int64) - self._base
            # Events of an earlier job may still come.
            numbers = numbers[(numbers >= 0) & (numbers < len(self._counts))]
            np.add.at(self._counts, numbers, 1)
            self._parts.append((numbers, at_s))
        self._received.clear()
        return bool(self._counts.all())

    def measured(self, sent_s: np.ndarray) -> Measured:
        """The latencies, with the time at which each event was sent."""
        missing = 0 if self.complete() else int(np.count_nonzero(self._counts == 0))
        parts = [(at_s - sent_s[numbers]) * 1000 for numbers, at_s in self._parts]
        latencies_ms = np.concatenate([*parts, np.empty(0)])
        p50, p99, highest = np.percentile(
            latencies_ms if len(latencies_ms) else np.array([np.nan]), [50, 99, 100]
        )
        repeats = len(latencies_ms) - (len(self._counts) - missing)
        return Measured(len(latencies_ms), float(p50), float(p99), float(highest), repeats, missing)


def run(job: Job) -> Measured:
    """Publish, and wait until all has come."""
    base = time.time_ns() // 1000
    sent_s = np.zeros(job.count)
    with Wire(job.source) as source, Wire(job.target) as target:
        subjects = [f"PUB mesh.{app}.Input " for app in job.apps]
        heads = [
            [f"{subject}{source.inbox}.a ".encode() for subject in subjects],
            *[[subject.encode() for subject in subjects]] * (_ACKNOWLEDGED - 1),
        ]
        for number, app in enumerate(job.apps, 2):
            target.send(f"SUB mesh.{app}.{job.stream} {number}\r\n".encode())
        target.flush()
        arrivals = _Arrivals(target, base, job.count)
        started_s = time.perf_counter()
        published = stored = 0
        rest = b""
        next_s = started_s

        def wait(seconds: float) -> bool:
            """Receive events or acknowledgements; whether there are any."""
            nonlocal stored, rest
            ready, _, _ = select.select([source.socket, target.socket], [], [], seconds)
            if target.socket in ready:
                arrivals.take()
            if source.socket in ready:
                count, rest = acks(source, rest)
                stored += count * _ACKNOWLEDGED
            return bool(ready)

        while published < job.count:
            room = max(0, stored + _WINDOW - published)
            # Also of a publisher that is late, what has arrived is received.
            rest_s = max(0.0, next_s - time.perf_counter()) if room else SILENCE_S
            if not wait(rest_s) and not room:
                raise RuntimeError("the server acknowledges nothing")
            now_s = time.perf_counter()
            if now_s < next_s or not room:
                continue
            due = min(job.count, int((now_s - started_s) * job.rate) + 1, published + room)
            frames = []
            for number in range(published, due):
                n = base + number
                # The value rises, also from one job to the next.
                event = b'{"n": %d, "v": %d.5}' % (n, n)
                turn, at = divmod(number, len(subjects))
                head = heads[turn % _ACKNOWLEDGED][at]
                frames.append(b"%b%d\r\n%b\r\n" % (head, len(event), event))
            sent_s[published:due] = time.perf_counter()
            source.send(b"".join(frames))
            published = due
            next_s = max(now_s + _TICK_S, started_s + published / job.rate)
        end_s = time.perf_counter() + _REST_S
        # Parsing takes time, so first everything is received that is there.
        while time.perf_counter() < end_s:
            if not wait(_QUIET_S) and arrivals.complete():
                break
        return arrivals.measured(sent_s)


def main() -> None:
    """Do the job that is given."""
    given = json.loads(sys.argv[1])
    given |= {name: Access.of(given[name]) for name in ("source", "target")}
    print(json.dumps(asdict(run(Job(**{**given, "apps": tuple(given["apps"])})))))


if __name__ == "__main__":
    main()
