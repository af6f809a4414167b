"""Times of events."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

NOW = 1_795_440_000_000


def column(*ago_ms: int) -> pa.Array[Any]:
    return pa.array([NOW - one for one in ago_ms], pa.int64())
