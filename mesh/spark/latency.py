"""Latency of events: from the broker's storing to the end of the run that published their effect.

A run keeps the times of its events, and they are counted once a report.  The messages of a stream
are in the order of their times, so a few events stand for those around them in a large run: the
cost of a run does not depend on its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from mesh.model.histogram import LATENCY_BOUNDS_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Times, ms since 1970, and the number of events that each stands for.
Sample: TypeAlias = "tuple[Any, list[int]]"
#: Of the type of the times: others would have all of them converted.
_BOUNDS_MS: Final = np.array([round(bound * 1000) for bound in LATENCY_BOUNDS_S], np.int64)
#: Events of a run that are looked at, about.
SAMPLES: Final = 16


def sample(column: Any) -> Sample:
    """Some times of an int64 column, in order, and the number that each stands for."""
    times = column if isinstance(column, np.ndarray) else column.to_numpy(zero_copy_only=False)
    size = len(times)
    step = max(1, -(-size // SAMPLES))
    # The last one stands for the rest.
    weights = [step] * ((size - 1) // step) + [size - (size - 1) // step * step] if size else []
    return times[::step], weights


def count(
    runs: Iterable[tuple[Iterable[object], Sequence[int]]],
) -> tuple[tuple[int, ...], float]:
    """The latencies of the events of some runs.

    Args:
        runs: for each, int64 columns of Arrow, or arrays, with the broker's times, ms since 1970,
            each in order, or samples of them; and when their output was published, by this
            machine's clock: empty if it was not.

    Returns:
        The number of events in each bucket of ``LATENCY_BOUNDS_S``, empty without events; and the
        sum of their latencies, seconds; those of a broker with a later clock count as 0.
    """
    waits, weights = [], []
    for columns, published_ms in runs:
        for column in columns if published_ms else ():
            times, stand_for = column if isinstance(column, tuple) else sample(column)
            if stand_for:
                waits.append(published_ms[0] - times)
                weights += stand_for
    if not waits:
        return (), 0.0
    waits_ms = np.maximum(np.concatenate(waits), 0)
    counts = np.bincount(np.searchsorted(_BOUNDS_MS, waits_ms), weights, len(_BOUNDS_MS) + 1)
    return tuple(counts.astype(np.int64).tolist()), float(np.dot(waits_ms, weights)) / 1000
