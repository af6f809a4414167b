"""Comparison of found with expected rows: missing, duplicate, or out of order."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Compared:
    """Number of rows that differ, over all streams."""

    rows: int = 0
    lost: int = 0
    #: There more often than they should be; a row that should not be there at all counts as well.
    doubled: int = 0
    #: Not in the order of their key.
    disordered: int = 0
    #: The first differences, as text.
    told: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return not (self.lost or self.doubled or self.disordered)


def compare(
    found: Mapping[str, Sequence[Row]],
    expected: Mapping[str, Sequence[Row]],
    unordered: Collection[str] = (),
) -> Compared:
    """Compare rows by stream.

    Args:
        found: the output, in the order of each stream's log.
        expected: the expected output, in an order that is right for each key.
        unordered: streams of parallel instances, whose rows have no order.

    Rows of one key, their first value, are compared in order.  A row in the place of another row of
    its key counts as disordered only if no row of that key is lost or duplicate.
    """
    lost = doubled = disordered = rows = 0
    told: list[str] = []
    for stream in sorted(expected):
        have, want = _counted(found.get(stream, ())), _counted(expected[stream])
        missing, surplus = want - have, have - want
        rows += have.total()
        lost += missing.total()
        doubled += surplus.total()
        told += (f"{stream} lost {row}" for row in list(missing)[:3])
        told += (f"{stream} doubled {row}" for row in list(surplus)[:3])
        if stream in unordered:
            continue
        wanted = _by_key(expected[stream])
        for key, mine in _by_key(found.get(stream, ())).items():
            theirs = wanted.get(key, [])
            if Counter(mine) != Counter(theirs):
                continue
            wrong = [got for got, right in zip(mine, theirs, strict=True) if got != right]
            disordered += len(wrong)
            told += (f"{stream} out of order {row}" for row in wrong[:3])
    return Compared(rows, lost, doubled, disordered, tuple(told[:12]))


def _text(row: Row) -> str:
    return json.dumps(list(row))


def _counted(rows: Sequence[Row]) -> Counter[str]:
    return Counter(map(_text, rows))


def _by_key(rows: Sequence[Row]) -> dict[Any, list[str]]:
    found: dict[Any, list[str]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(_text(row))
    return found
