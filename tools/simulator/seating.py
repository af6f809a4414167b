"""Maximum number of instances that can be placed, as a reference for placement."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mesh.control.placement import Candidate, Need

Guest = TypeVar("Guest")
Seat = TypeVar("Seat")


def most_placeable(needs: Iterable[Need], hosts: Iterable[Candidate]) -> int:
    """The largest number of ``needs`` that fit on ``hosts``; a capacity of 0 is unlimited.

    Deliberately another method than that of placement.
    """
    needs = list(needs)
    seats = [host for host in hosts for _ in range(host.capacity or len(needs))]
    return most_seated(needs, seats, lambda need, host: need.fits(host))


def most_seated(
    guests: Iterable[Guest], seats: Sequence[Seat], fits: Callable[[Guest, Seat], bool]
) -> int:
    """Maximum number of guests that can sit at once, each on a seat that fits, one to a seat.

    A maximum matching by augmenting paths: a guest without a free seat makes those on fitting seats
    move, and so on (H. W. Kuhn, "The Hungarian method for the assignment problem", 1955; C. Berge,
    "Two theorems in graph theory", 1957).  Time: O(guests * guests * seats).

    Example:
        >>> most_seated("ab", [1, 2], lambda guest, seat: guest == "a" or seat == 1)
        2
    """
    taken: dict[int, Guest] = {}

    def sit(guest: Guest, tried: set[int]) -> bool:
        for at, seat in enumerate(seats):
            if at in tried or not fits(guest, seat):
                continue
            tried.add(at)
            if at not in taken or sit(taken[at], tried):
                taken[at] = guest
                return True
        return False

    return sum(sit(guest, set()) for guest in guests)
