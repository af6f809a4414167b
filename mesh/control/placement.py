"""Where instances go: spread, sticky, with the fewest moves.

A pure function from who is there and where everything is now to where everything should be.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


def place(
    instances: Sequence[str],
    current: Mapping[str, str],
    ready: Sequence[str],
    leaving: Collection[str],
) -> dict[str, str]:
    """Place ``instances`` on workers.

    Args:
        instances: all that should run, in a fixed order; those of one group stand together.
        current: instance to worker, for what is placed now.
        ready: workers that can be given something.
        leaving: workers that are gone; what they have must move.

    Returns:
        Instance to worker.  What is on a worker that is neither ready nor gone stays there.  What
        can't be placed, because nobody is ready, is missing.  Counts on ready workers differ by one
        at most when nothing on the others could be moved for it.
    """
    placed = {i: current[i] for i in instances if i in current and current[i] not in leaving}
    if not ready:
        return placed
    counts = Counter(dict.fromkeys(ready, 0))
    counts.update(worker for worker in placed.values() if worker in counts)

    for instance in instances:
        if instance not in placed:
            worker = min(ready, key=lambda w: (counts[w], _kin(instance, w, placed), w))
            placed[instance] = worker
            counts[worker] += 1

    # Level out with the fewest moves: one at a time from the fullest to the emptiest.
    while True:
        fullest = max(ready, key=lambda w: (counts[w], w))
        emptiest = min(ready, key=lambda w: (counts[w], w))
        if counts[fullest] - counts[emptiest] < 2:
            return placed
        mover = next(i for i in reversed(instances) if placed.get(i) == fullest)
        placed[mover] = emptiest
        counts[fullest] -= 1
        counts[emptiest] += 1


def _kin(instance: str, worker: str, placed: Mapping[str, str]) -> int:
    """How many instances of the same group the worker has: copies belong on different workers."""
    group = instance.rsplit("-", 1)[0]
    return sum(1 for i, w in placed.items() if w == worker and i.rsplit("-", 1)[0] == group)
