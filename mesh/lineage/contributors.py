"""Search for the inputs without which a row changes.

An input contributes if the row is another one, or none, when that input alone is left out of an
otherwise equal log.  Up to ``EACH_MAX`` inputs are left out one by one, which is this definition.
Of more, sets are left out and halved.  A set counts as without a contributor if the row stays the
same without all of it, without the halves of several random divisions, and without each of a few
members.  So inputs that offset each other, as +5 and -5 in a sum, are rarely missed; an answer that
was found like this says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]
    Longs = npt.NDArray[np.int64]

#: Inputs that are left out one by one.
EACH_MAX: Final = 1000
#: Events that are run to look at the inputs found in a longer log.
_CHECKED_MAX: Final = 5_000_000
#: Times that a set is divided at random.
_SPLITS: Final = 8
#: Members of a set that are left out alone.
_SINGLES: Final = 3


def inputs_of(whole: int, holds: Callable[[Bools], bool]) -> tuple[list[int], bool, bool]:
    """The inputs without which a row of a log changes, in order.

    They are searched for in the shortest prefix that gives the row, and then looked at in the whole
    log: what closes a batch or moves the clock there, a later event may do as well.  An input that
    the row can do without in a prefix is none in the whole log either.

    Args:
        whole: number of events of the log.
        holds: whether the row is the same for the events of a mask, bool[whole].

    Returns:
        The inputs; whether sets of them were left out; whether the log was looked at to its end.
    """
    count = shortest_prefix(whole, holds)

    def in_prefix(length: int) -> Callable[[Bools], bool]:
        return lambda mask: holds(np.pad(mask, (0, whole - length)))

    inputs = contributors(count, in_prefix(count))
    length = max(count, min(whole, _CHECKED_MAX // max(1, len(inputs))))
    if length > count:
        is_held = in_prefix(length)
        inputs = [one for one in inputs if not is_held(_without(length, np.array([one])))]
    return inputs, count > EACH_MAX, length == whole


def contributors(count: int, holds: Callable[[Bools], bool], each_max: int = EACH_MAX) -> list[int]:
    """The inputs without which the row changes, in order.

    Args:
        count: number of inputs.
        holds: whether the row is the same for the inputs of a mask, bool[count].
        each_max: the most inputs that are left out one by one.
    """
    if count <= each_max:
        return [one for one in range(count) if not holds(_without(count, np.array([one])))]
    # The same halves each time: the answer to a question doesn't change.
    random = np.random.default_rng(count)
    inputs: list[int] = []
    waiting = [np.arange(count)]
    while waiting:
        some = waiting.pop()
        if _is_free(count, some, holds, random):
            continue
        if len(some) == 1:
            inputs.append(int(some[0]))
            continue
        middle = len(some) // 2
        waiting += [some[:middle], some[middle:]]
    return sorted(inputs)


def shortest_prefix(count: int, holds: Callable[[Bools], bool]) -> int:
    """The length of a prefix of the inputs with which the row is the same; ``count`` if unsure."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if holds(np.arange(count) < middle):
            high = middle
        else:
            low = middle + 1
    return high if holds(np.arange(count) < high) else count


def _is_free(
    count: int,
    some: Longs,
    holds: Callable[[Bools], bool],
    random: np.random.Generator,
) -> bool:
    """Whether none of some inputs is taken to contribute."""
    if not holds(_without(count, some)):
        return False
    if len(some) == 1:
        return True
    middle = len(some) // 2
    for _ in range(_SPLITS):
        mixed = random.permutation(some)
        if not all(holds(_without(count, part)) for part in (mixed[:middle], mixed[middle:])):
            return False
    singles = random.permutation(some)[:_SINGLES]
    return all(holds(_without(count, one)) for one in singles[:, None])


def _without(count: int, some: Longs) -> Bools:
    mask = np.ones(count, np.bool_)
    mask[some] = False
    return mask
