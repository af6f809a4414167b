"""An aggregation end to end, from NATS to NATS, beside the same app without it, in one session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.connector.harness import CORES, Bench
from bench.operators import spark
from tools.conformance.spark import session

if TYPE_CHECKING:
    from bench.connector.harness import Figure

#: Part of the stateless rate.
RATIO: Final = 0.6
_AGGREGATION: Final = """@dist(execGroup='one') define aggregation A from TempStream
select device, avg(temp) as mean, min(temp) as low, max(temp) as high, sum(room) as rooms
group by device aggregate every sec...year;
"""
#: The stateless app, whose group aggregates its events too.
_TEXT: Final = spark.STATELESS.replace("Stateless", "Aggregated").replace(
    "from ", f"{_AGGREGATION}@dist(execGroup='one') from "
)


def measure() -> list[Figure]:
    """Both rates, on a server and a session of their own."""
    with Bench() as bench, session(CORES) as sessions:
        return spark.rates(bench, sessions, _TEXT, "with an aggregation", RATIO)
