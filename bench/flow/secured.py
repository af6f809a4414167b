"""Measurements with TLS, client certificates and roles beside those without, of the same run.

Each measurement is made on one server and on three, plain and secured in turns, as often as wanted.
The best of each is compared: other load of a machine makes a figure worse, and never better.  Of
the most important ones the meshes run at the same time, and only what is timed alternates.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.connector.harness import Figure
from bench.connector.report import number
from bench.mesh.harness import Arrangement, arranged, in_turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

#: Secured to plain: most of a latency, and least of a rate.
LATENCY: Final = 1.3
RATE: Final = 0.8
#: Latencies that one slow event of thousands does not decide, by the end of their names.
_COMPARED: Final = re.compile(r"p(50|99)$")


def measured(
    measure: Callable[[], Sequence[Figure]], servers: Sequence[int], rounds: int
) -> list[Figure]:
    """The figures of a measurement on secured servers, beside those on plain ones.

    Args:
        measure: makes the measurement once, on the servers of the arrangement.
        servers: numbers of servers.
        rounds: how often each is measured.
    """
    found: list[Figure] = []
    for count in servers:
        pair = Arrangement(count), Arrangement(count, is_secured=True)
        runs: dict[Arrangement, list[Sequence[Figure]]] = {one: [] for one in pair}
        for _ in range(rounds):
            for one in pair:
                with arranged(one):
                    runs[one].append(measure())
        plain, secured = (best(runs[one]) for one in pair)
        found += beside(plain, secured, str(pair[0]))
    return found


async def alternated(
    measure: Callable[[], Awaitable[Sequence[Figure]]], servers: Sequence[int], rounds: int
) -> list[Figure]:
    """As ``measured``, with both meshes at the same time."""
    found: list[Figure] = []
    for count in servers:
        pair = Arrangement(count), Arrangement(count, is_secured=True)
        runs = [await in_turns(measure, pair) for _ in range(rounds)]
        plain, secured = (best([run[at] for run in runs]) for at in (0, 1))
        found += beside(plain, secured, str(pair[0]))
    return found


def best(runs: Sequence[Sequence[Figure]]) -> dict[str, Figure]:
    """The best of each figure, by name."""
    found: dict[str, Figure] = {}
    for one in (figure for run in runs for figure in run):
        before = found.get(one.name)
        is_better = before is None or (
            one.value > before.value if is_rate(one) else one.value < before.value
        )
        values = (*(before.runs if before is not None else ()), one.value)
        found[one.name] = replace(one if is_better or before is None else before, runs=values)
    return found


def beside(plain: dict[str, Figure], secured: dict[str, Figure], servers: str) -> list[Figure]:
    """The figures that both have, with the ratio of secured to plain and its target."""
    return [
        Figure(
            f"{name}; {servers}",
            one.value,
            one.unit,
            _target(one),
            is_rate(one),
            f"plain {number(plain[name].value)} {one.unit}",
            plain[name].value if plain[name].value else None,
            one.runs,
        )
        for name, one in secured.items()
        if name in plain
    ]


def is_rate(figure: Figure) -> bool:
    """Whether more is better."""
    return figure.unit == "k/s"


def _target(figure: Figure) -> float | None:
    if is_rate(figure):
        return RATE
    if figure.unit == "ms" and _COMPARED.search(figure.name):
        return LATENCY
    # Events that a subscriber saw twice, or not at all.
    return 0.0 if figure.target == 0.0 else None
