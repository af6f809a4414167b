"""Interface of an event function: the state of one partition instance, and its answer to an event.

A model is a fold over the events of its instance, in their order.  It uses no clock and no random
number, so a replay from a stored state gives the same values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mesh.functions.vectors import Vector
    from mesh.model.values import Row

#: The attributes that an event gets.
Added = tuple[Any, ...]
#: Of larger numbers the squares, and sums of them, have no double.
LARGEST: Final = 1e100


def finite(values: Iterable[Any]) -> list[float]:
    """The values as doubles.

    Raises:
        ValueError: one of them would make all later results NaN or infinite.
    """
    numbers = [float(one) for one in values]
    for one in numbers:
        if not abs(one) <= LARGEST:
            raise ValueError(f"the value {one:g} is not finite, or beyond {LARGEST:g}")
    return numbers


def all_finite(values: Iterable[float]) -> bool:
    """Whether a model may continue with these numbers."""
    return all(map(math.isfinite, values))


class Model(Protocol):
    """The state of one partition instance; its size is bounded by the arguments of the call."""

    def step(self, values: Row, kind: int, time_ms: int) -> Added | None:
        """Process one event.

        Args:
            values: of the arguments; none of them is null.
            kind: ``CURRENT``, or ``EXPIRED`` for one that leaves the window before the function.
            time_ms: the event's own time.

        Returns:
            The values of the added attributes; None: the event is dropped.

        Raises:
            ValueError, ArithmeticError: the event fails; the state is as before.
        """
        ...

    def dump(self) -> object:
        """Its state as JSON."""
        ...

    def load_dump(self, state: object) -> None:
        """Restore what ``dump`` returned."""
        ...


@dataclass(frozen=True, slots=True)
class Form:
    """One call of an event function.

    ``make``: a model without events. ``read``: the vectors of all arguments, of one length, as the
    values that models receive; None: their Python values. ``is_shared``: one model serves all
    partition instances, and other queries. ``skips_constants``: models receive the values of the
    other arguments alone. ``skips``: places of further arguments that they don't receive.
    """

    make: Callable[[], Model]
    read: Callable[[Sequence[Vector]], Sequence[Sequence[Any]]] | None = None
    is_shared: bool = False
    skips_constants: bool = False
    skips: tuple[int, ...] = ()
