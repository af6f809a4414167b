"""A process that sends events at a steady rate and records the arrival of their rows.

``python -m bench.operators.trip URL APP RATE WARM_UP_S MEASURED_S`` publishes to ``TempStream`` and
reads ``Out`` as any client of JetStream does, so a row counts when its batch is committed.  It
prints the latencies of the events after the warm-up, milliseconds, as one line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING, Final

import nats

from mesh.model import names

if TYPE_CHECKING:
    from nats.aio.msg import Msg

_KEYS: Final = 100
_PATIENCE_S: Final = 20.0


async def latencies_ms(
    url: str, app: str, rate: int, warm_up_s: float, measured_s: float
) -> list[float]:
    """Publish, and wait for everything to arrive.

    Raises:
        RuntimeError: rows are missing, or there are too many.
    """
    client = await nats.connect(url)
    count = round(rate * (warm_up_s + measured_s))
    found: list[tuple[int, int]] = []
    all_came = asyncio.Event()

    async def take(message: Msg) -> None:
        received_ns = time.time_ns()
        found.append((json.loads(message.data)["sent"], received_ns))
        if len(found) == count:
            all_came.set()

    js = client.jetstream()
    stream = names.js_stream(app, "Out")
    await js.subscribe(names.subject(app, "Out"), stream=stream, ordered_consumer=True, cb=take)
    subject = names.subject(app, "TempStream")
    started_s = time.perf_counter()
    for number in range(count):
        wait_s = started_s + number / rate - time.perf_counter()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        event = b'{"deviceID": %d, "roomNo": %d, "temp": %d.5, "sent": %d}'
        values = (number % _KEYS, number % 20, 20 + number % 15, time.time_ns())
        await client.publish(subject, event % values)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(all_came.wait(), _PATIENCE_S)
    await client.close()
    if len(found) != count or len({sent for sent, _ in found}) != count:
        raise RuntimeError(f"{len(found)} rows of {count} events arrived")
    measured_ns = min(sent for sent, _ in found) + int(warm_up_s * 1e9)
    return [(received - sent) / 1e6 for sent, received in found if sent >= measured_ns]


if __name__ == "__main__":
    url, app, rate, warm_up_s, measured_s = sys.argv[1:]
    got = asyncio.run(latencies_ms(url, app, int(rate), float(warm_up_s), float(measured_s)))
    print(json.dumps([round(one, 2) for one in got]))
