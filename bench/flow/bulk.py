"""Rates with many events in a message: JSON lines, and Arrow in and out; and with two instances."""

from __future__ import annotations

import asyncio
import io
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.ipc

from bench.connector.harness import Figure
from bench.mesh import harness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.mesh.harness import View

_LINES_EVENTS: Final = 2_000_000
#: So many that the start of the instances, a third of a second, does not count.
_ARROW_EVENTS: Final = 8_000_000
_LINES: Final = 200
_ROWS: Final = 1000
_NDJSON: Final = "application/x-ndjson"
_ARROW: Final = "application/vnd.apache.arrow.stream"
#: Messages published at once.
_CHUNK: Final = 500

#: The second group reads what the first writes, an Arrow channel, and emits the last event alone.
_TEXT: Final = """
@App:name('{name}')
define stream Input (n long, v double, k string);
@dist(execGroup='first', parallel='{parallel}')
from Input[v >= 0] select n, v * 2 as w, k insert into Middle;
@dist(execGroup='second')
from Middle[n < 0] select n, w, k insert into Output;
"""


async def measure() -> list[Figure]:
    """Events per second from a full stream to the last output of the second group."""
    async with harness.mesh(1) as view:
        lines = _LINES_EVENTS / await _took_s(view, "Lines", _NDJSON, _lines(), 1)
        arrow = _ARROW_EVENTS / await _took_s(view, "Arrow", _ARROW, _arrow(), 1)
        both = _ARROW_EVENTS / await _took_s(view, "Both", _ARROW, _arrow(), 2)
    note = "{:,} events, through two groups with an Arrow channel between".format
    return [
        Figure(f"JSON lines, {_LINES} in a message", lines / 1000, "k/s", 400.0,
               note=note(_LINES_EVENTS)),
        Figure(f"Arrow, {_ROWS} rows in a message", arrow / 1000, "k/s", 2000.0,
               note=note(_ARROW_EVENTS)),
        Figure("the same, two instances of the first group", both / 1000, "k/s"),
    ]  # fmt: skip


async def _took_s(
    view: View, app: str, kind: str, messages: Iterator[bytes], parallel: int
) -> float:
    await view.service.order_node("w1", "cordoned")
    await view.service.deploy(_TEXT.format(name=app, parallel=parallel))
    headers = {"Content-Type": kind}
    waiting: list[bytes] = []
    for message in messages:
        waiting.append(message)
        if len(waiting) == _CHUNK:
            await _publish(view, app, waiting, headers)
            waiting.clear()
    await _publish(view, app, waiting, headers)
    await view.js.publish(f"mesh.{app}.Input", b'{"n": -1, "v": 0.0, "k": "end"}')
    started_s = time.perf_counter()
    await view.service.order_node("w1", "open")
    while True:
        await asyncio.sleep(0.02)
        if (await view.js.stream_info(f"mesh-{app}-Output")).state.messages:
            break
    took_s = time.perf_counter() - started_s
    await view.service.undeploy(app)
    return took_s


async def _publish(view: View, app: str, messages: list[bytes], headers: dict[str, str]) -> None:
    await asyncio.gather(
        *(view.js.publish(f"mesh.{app}.Input", one, headers=headers) for one in messages)
    )


def _lines() -> Iterator[bytes]:
    for first in range(0, _LINES_EVENTS, _LINES):
        events = ({"n": n, "v": n % 100 + 0.5, "k": f"key{n % 50}"}
                  for n in range(first, first + _LINES))  # fmt: skip
        yield b"\n".join(map(orjson.dumps, events))


def _arrow() -> Iterator[bytes]:
    keys = [f"key{n}" for n in range(50)]
    for first in range(0, _ARROW_EVENTS, _ROWS):
        numbers = np.arange(first, first + _ROWS)
        columns: list[pa.Array[Any]] = [
            pa.array(numbers),
            pa.array(numbers % 100 + 0.5),
            pa.array([keys[n] for n in numbers % len(keys)]),
        ]
        rows = pa.RecordBatch.from_arrays(columns, ["n", "v", "k"])
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        yield sink.getvalue()
