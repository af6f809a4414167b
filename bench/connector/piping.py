"""A whole query: JSON events from two streams, typed, and out to a third exactly once.

The rate is that of the steady batches, as for reading.  There is no target: reading and writing
share the processor with the server, which does both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.connector import events, reading
from bench.connector.harness import figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.connector.harness import Bench, Figure

ROWS: Final = 1_000_000
_SIZE: Final = 70
_TURNS: Final = 3


def measure(bench: Bench) -> list[Figure]:
    """From NATS to NATS, typed on the way."""
    streams = reading.filled(bench, "PIPE", _SIZE, ROWS)
    told = [_piped(bench, streams, f"PIPED_{turn}") for turn in range(_TURNS + 1)][1:]
    for name in streams:
        bench.delete_stream(name)
    return [
        figure(
            "NATS to NATS, exactly once, JSON 70 B", [rate for rate, _ in told], "rows/s",
            note=told[-1][1],
        )
    ]  # fmt: skip


def _piped(bench: Bench, streams: Sequence[str], target: str) -> tuple[float, str]:
    """Rows a second of the steady batches, and the processor time of the whole query.

    Raises:
        AssertionError: the target does not hold each row once.
    """
    bench.create_stream(target, f"bench.{target}")
    given = {"servers": bench.url, "format": "json"}
    source = (
        bench.spark.readStream.format("nats")
        .options(**given)
        .option("stream", ",".join(streams))
        .option("metadata", "_stream,_sequence")
        .option("maxOffsetsPerTrigger", reading.BATCH_ROWS)
        .schema(f"{events.SCHEMAS[_SIZE]}, _stream string, _sequence long")
        .load()
    )
    before = bench.cpu()
    batches = reading.run_to_the_end(
        bench,
        source.writeStream.format("nats")
        .options(**given)
        .option("stream", target)
        .option("subject", f"bench.{target}"),
    )
    used = bench.cpu().since(before)
    assert bench.messages(target, f"bench.{target}") == ROWS
    bench.delete_stream(target)
    return reading.steady_rate(batches), used.per_million(ROWS)
