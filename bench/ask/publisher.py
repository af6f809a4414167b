"""Publisher of events at a rate: ``python -m bench.ask.publisher URL SUBJECT RATE SECONDS``.

A process of its own, so that it does not share an interpreter with those that ask.  Prints how
many events it has published.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

import nats
import numpy as np
import orjson

#: Different keys, and events of a message.
KEYS: Final = 1_000
LINES: Final = 100
_MESSAGES: Final = 64
_HEADERS: Final = {"Content-Type": "application/x-ndjson"}


def messages() -> list[bytes]:
    """Messages of JSON lines, which are published again and again."""
    keys = np.random.default_rng(3).integers(0, KEYS, (_MESSAGES, LINES)).tolist()
    return [
        b"\n".join(orjson.dumps({"k": f"key-{key}", "p": key / 8, "q": 1}) for key in row)
        for row in keys
    ]


async def run(url: str, subject: str, rate: float, seconds: float) -> int:
    """Publish, and return the number of events that JetStream has stored."""
    client = await nats.connect(url, pending_size=1 << 26)
    stream = client.jetstream(publish_async_max_pending=1_000)
    given, sent = messages(), 0
    started_s = time.perf_counter()
    while (number := sent // LINES) * LINES < rate * seconds:
        left_s = started_s + sent / rate - time.perf_counter()
        if left_s > 0:
            await asyncio.sleep(left_s)
        await stream.publish_async(subject, given[number % _MESSAGES], headers=_HEADERS)
        sent += LINES
    await stream.publish_async_completed()
    await client.close()
    return sent


def main() -> None:
    """Do what the command line says."""
    url, subject, rate, seconds = sys.argv[1:]
    print(asyncio.run(run(url, subject, float(rate), float(seconds))))


if __name__ == "__main__":
    main()
