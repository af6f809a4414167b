"""Rate at which a large backlog is worked off, beside that of a small one."""

from __future__ import annotations

from typing import Final

from bench.connector.harness import Figure
from bench.flow import rates
from bench.mesh import harness

_SMALL: Final = 100_000
#: ``--events`` gives another size.
EVENTS: Final = 1_000_000


async def measure(events: int = EVENTS) -> list[Figure]:
    """W1 with ``events`` and with 100,000; the second run of each, as the first one warms up."""
    async with harness.mesh(1) as view:
        await rates.worked_off(view, "Warm", "filter", 1, _SMALL)
        small = await rates.worked_off(view, "Small", "filter", 1, _SMALL)
        large = await rates.worked_off(view, "Large", "filter", 1, events)
    name = f"W1, backlog of {events:,} beside one of {_SMALL:,}"
    return [
        Figure(name, large.rate / 1000, "k/s", 0.9, limit=small.rate / 1000, note=large.note),
        Figure("processor time of the JVM in it, per million events",
               large.per_million(large.jvm_s), "s", 0.5, at_least=False),
    ]  # fmt: skip
