"""Rows that a database refuses, found by halving; which statements write them is the caller's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: Writes rows, by number: all of them, or none; then it returns the reason.
    Attempt = Callable[[Sequence[int]], str | None]


def write_most(rows: Sequence[int], attempt: Attempt) -> dict[int, str]:
    """Write all rows but those that are refused by themselves; these by number, with reasons.

    One refused row of n costs some 2 log n attempts.  A row that is refused only beside an old row
    is written once the other has changed: what is refused is tried again, until that changes
    nothing.
    """
    refused = _halved(rows, attempt)
    while 0 < len(refused) < len(rows):
        rows = sorted(refused)
        refused = _halved(rows, attempt)
    return refused


def _halved(rows: Sequence[int], attempt: Attempt) -> dict[int, str]:
    refused: dict[int, str] = {}
    parts = [rows] if rows else []
    while parts:
        part = parts.pop()
        reason = attempt(part)
        if reason is None:
            continue
        if len(part) == 1:
            refused[part[0]] = reason
            continue
        middle = len(part) // 2
        # The earlier half first: of two rows that exclude each other, the earlier one is written.
        parts += [part[middle:], part[:middle]]
    return refused
