"""A process that publishes events at a steady rate: ``python -m bench.connector.steady``.

Every event has the time at which it was sent.  Times are planned from the start, so a single delay
does not slow the publisher down.
"""

from __future__ import annotations

import sys
import time

from bench.connector.wire import Wire


def publish(port: int, subject: str, rate: int, seconds: float) -> int:
    """Publish JSON events ``{"id", "sent_ns"}``, ``rate`` a second; returns their number."""
    count = round(rate * seconds)
    with Wire(port) as wire:
        started_s = time.perf_counter()
        for number in range(count):
            wait_s = started_s + number / rate - time.perf_counter()
            if wait_s > 0:
                time.sleep(wait_s)
            data = b'{"id": %d, "sent_ns": %d}' % (number, time.time_ns())
            wire.send(b"PUB %s %d\r\n%s\r\n" % (subject.encode(), len(data), data))
        # The server has read everything when it answers the last request.
        wire.call("INFO")
    return count


if __name__ == "__main__":
    publish(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
