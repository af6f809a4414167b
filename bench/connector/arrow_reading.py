"""Reading messages of a thousand events each, as Arrow IPC streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.connector import plain, reading
from bench.connector.harness import figure

if TYPE_CHECKING:
    from bench.connector.harness import Bench, Figure

#: More than the million of the JSON events, which would be over too soon for a measurement.
ROWS: Final = 8_000_000
ROWS_PER_MESSAGE: Final = 1000
BATCH_ROWS: Final = 2_000_000

_TURNS: Final = ("warm up", "limit", "ours", "ours", "limit", "ours")
_TARGET: Final = 3_000_000.0


def measure(bench: Bench) -> list[Figure]:
    """Rows a second, beside programs that only receive the same bytes."""
    streams = reading.filled(bench, "ARROW", 70, ROWS, ROWS_PER_MESSAGE)
    messages = ROWS // ROWS_PER_MESSAGE // reading.PARTITIONS
    jobs = [plain.CountBytes(bench.server.port, name, messages, pull=400) for name in streams]
    limits: list[float] = []
    ours: list[reading.Read] = []
    for turn in _TURNS:
        if turn == "limit":
            limits.append(ROWS / plain.together(jobs))
            continue
        done = reading.read(
            bench, streams, 70, "arrow", ROWS, BATCH_ROWS, per_message=ROWS_PER_MESSAGE
        )
        if turn == "ours":
            ours.append(done)
    for name in streams:
        bench.delete_stream(name)
    what = f"read Arrow, {ROWS_PER_MESSAGE} rows a message"
    return [
        figure("limit: two programs that count the bytes, Arrow", limits, "rows/s"),
        figure(what, [r.steady for r in ours], "rows/s", target=_TARGET, note=ours[-1].cpu),
        figure(f"{what}, with start and end", [r.whole for r in ours], "rows/s"),
    ]
