"""Repeats that a core subscriber sees: none, with any number of workers and instances.

Core subscribers also receive a message that the server stages in an atomic batch and then refuses,
so a publisher with an outdated marker shows itself as repeats.
"""

from __future__ import annotations

from typing import Final

from bench.connector.harness import Figure
from bench.flow.latency import metered
from bench.mesh import harness

#: Of each arrangement.
EVENTS: Final = 1_000_000
_RATE: Final = 20_000
_APP: Final = """
@App:name('{name}')
define stream Input (n long, v double);
@dist(execGroup='first', parallel='{instances}')
from Input[v >= 0] select n, v * 2 as w insert into Output;
"""
#: By number of workers and of the app's instances.
_ARRANGEMENTS: Final = {
    (1, 1): "one worker, one instance",
    (1, 2): "one worker, two instances",
    (2, 2): "two workers, two instances",
    (2, 4): "two workers, four instances",
}


async def measure(events: int = EVENTS) -> list[Figure]:
    """Repeats and losses of ``events`` in each arrangement, as a subscriber sees them."""
    figures = []
    async with harness.mesh(2) as view:
        await view.service.order_node("w2", "cordoned")
        for (workers, instances), label in _ARRANGEMENTS.items():
            if workers > 1:
                await view.service.order_node("w2", "open")
            name = f"Workers{workers}Instances{instances}"
            await harness.deploy(view, [name], _APP.replace("{instances}", str(instances)))
            found = await metered(view, name, _RATE, events / _RATE)
            await view.service.undeploy(name)
            figures.append(
                Figure(f"{label}: events seen twice, or not at all",
                       found.repeats + found.missing, "", 0.0, at_least=False,
                       note=f"{found.count:,} seen; p99 {found.p99_ms:.0f} ms")
            )  # fmt: skip
    return figures
