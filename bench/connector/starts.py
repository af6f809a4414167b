"""Time of a further query of a warm session from its start to its first row."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Final

from bench.connector.harness import Figure
from bench.connector.queries import queries

if TYPE_CHECKING:
    from bench.connector.harness import Bench

#: The first one warms the session; the others count.
QUERIES: Final = 10


def measure(bench: Bench) -> list[Figure]:
    """Ten queries, one after the other, none stopped before the last has its row."""
    loads_s: list[float] = []
    starts_s: list[float] = []
    with queries(bench, "STARTS", QUERIES) as made:
        for number in range(QUERIES):
            began_s = time.perf_counter()
            rows = made.load(number)
            loads_s.append(time.perf_counter() - began_s)
            starts_s.append(made.start(number, rows))
        stops_s = []
        for query in made.running:
            began_s = time.perf_counter()
            query.stop()
            stops_s.append(time.perf_counter() - began_s)
    first, *further = starts_s
    each = ", ".join(f"{one:.2f}" for one in further)
    return [
        Figure(
            "start of a further query to its first row, slowest of 9",
            max(further), "s", 1.0, at_least=False, runs=tuple(further),
            note=f"each: {each}; the first {first:.2f}",
        ),
        Figure(
            "load() of a further query, median",
            statistics.median(loads_s[1:]), "s", runs=tuple(loads_s[1:]),
        ),
        Figure(
            "stop() of an idle query, slowest of 10", max(stops_s), "s", runs=tuple(stops_s),
            note="while its planner waits for messages",
        ),
    ]  # fmt: skip
