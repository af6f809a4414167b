"""Output of the reference engine for the demo's app over a whole year of weather.

The directory holds a Parquet file for each output stream, with the stream's attributes and
``time_ms``: the event's time, counted from the first event's.  ``made.json`` has its origin, and
the number of rows and a digest of each.  ``tests/cases/temperature/make.py`` writes it.

Doubles are the engine's to the last bit, and JSON keeps them so: Python and orjson write the
shortest text that reads back as the same double.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa

#: The streams that leave the app.
STREAMS = ("AvgTempStream", "AlertStream", "HighTempStream")
TIME = "time_ms"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Expectations:
    """The rows of each output stream, in the engine's order; ``times_ms`` beside them."""

    rows: Mapping[str, list[Row]]
    times_ms: Mapping[str, list[int]]

    def differences(self, stream: str, rows: Iterable[Row], *, ordered: bool = True) -> list[str]:
        """Differences between ``rows`` (objects decoded from JSON) and the expected ones.

        Args:
            stream: one of ``STREAMS``.
            rows: the received rows, in order.
            ordered: whether the order counts; otherwise they are compared as multisets.

        Returns:
            At most ten sentences; none if all is well.
        """
        found, wanted = [line(row) for row in rows], [line(row) for row in self.rows[stream]]
        if not ordered:
            missing, extra = Counter(wanted), Counter(found)
            missing.subtract(found)
            extra.subtract(wanted)
            lines = [f"missing {n} times: {text}" for text, n in missing.items() if n > 0]
            lines += [f"too often, by {n}: {text}" for text, n in extra.items() if n > 0]
            return lines[:10]
        lines = [
            f"row {number} is {a}, expected {b}"
            for number, (a, b) in enumerate(zip(found, wanted, strict=False))
            if a != b
        ]
        if len(found) != len(wanted):
            lines.insert(0, f"{len(found)} rows, expected {len(wanted)}")
        return lines[:10]


def line(row: Row) -> str:
    """A row as text that two rows share only if they are equal to the last bit."""
    return json.dumps(row, sort_keys=True, separators=(",", ":"))


def digest(rows: Iterable[Row]) -> str:
    """SHA-256 over the lines of ``rows``."""
    total = hashlib.sha256()
    for row in rows:
        total.update(line(row).encode() + b"\n")
    return total.hexdigest()


def save(directory: Path, stream: str, table: pa.Table) -> None:
    """Write one stream's table: ``time_ms`` and the attributes."""
    pq.write_table(table, directory / f"{stream}.parquet", compression="zstd")


def load(directory: Path) -> Expectations:
    """Read the files that ``make.py`` wrote to ``directory``, and check their digests."""
    made = json.loads((directory / "made.json").read_text())
    rows, times = {}, {}
    for stream in STREAMS:
        table = pq.read_table(directory / f"{stream}.parquet")
        times[stream] = table.column(TIME).to_numpy().tolist()
        rows[stream] = table.drop_columns([TIME]).to_pylist()
        assert digest(rows[stream]) == made["streams"][stream]["sha256"], f"{stream} was changed"
    return Expectations(rows, times)
