"""Latency of the outputs of a run, by the times at which the servers stored the messages.

Absolute times depend on the machine, so a run is compared with another one of the same minutes.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.chaos import app
from mesh.model import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tools.cluster import Outside

#: Largest ratio and addition for the median of the last events of a run with a fault.
_AFTER: Final = (5.0, 250.0)
#: Largest ratio to the other run, and what is added to it, milliseconds: of the median, and of the
#: 99th percentile, which a busy machine makes worse.
_MEDIAN: Final = (2.0, 20.0)
_P99: Final = (3.0, 100.0)


@dataclass(frozen=True, slots=True)
class Latency:
    """Time from the storage of an event to that of its outputs, milliseconds."""

    outputs: int
    median_ms: float
    p99_ms: float

    @classmethod
    def of(
        cls,
        events_ms: Mapping[int, float],
        outputs_ms: Iterable[tuple[int, float]],
        numbers: range,
    ) -> Latency | None:
        """The latency of some events; None without outputs.

        Args:
            events_ms: when each event was stored, by its number.
            outputs_ms: the number of an output's event, and when the output was stored.
            numbers: of the events that count.
        """
        took = [at - events_ms[n] for n, at in outputs_ms if n in numbers and n in events_ms]
        if not took:
            return None
        return cls(len(took), float(np.median(took)), float(np.quantile(took, 0.99)))

    def excess(self, plain: Latency, *, is_after_fault: bool = False) -> str:
        """The reason why this is slower than a plain run may be; empty if it is not.

        After a fault only the median counts: processes may just have been started.
        """
        found = []
        bounds = [("median", self.median_ms, plain.median_ms, _AFTER)]
        if not is_after_fault:
            bounds = [
                ("median", self.median_ms, plain.median_ms, _MEDIAN),
                ("p99", self.p99_ms, plain.p99_ms, _P99),
            ]
        for name, mine, other, (ratio, more) in bounds:
            if mine > ratio * other + more:
                found.append(f"{name} {mine:.0f} ms beside {other:.0f} ms")
        return ", ".join(found)


async def stored_ms(outside: Outside, name: str) -> dict[int, float]:
    """When each event of an app's input was stored, by its number, milliseconds."""
    js_stream, subject = names.js_stream(name, app.INPUT), names.subject(name, app.INPUT)
    found: dict[int, float] = {}
    for message in await outside.messages(js_stream, subject):
        # Hostile publishers send others, and some again.
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            number = json.loads(message.data)["a"]
            found.setdefault(number, message.metadata.timestamp.timestamp() * 1000)
    return found
