"""Comparison of the outputs of two apps: rows that both have, and rows that one alone has.

The rows of one producer have a fixed order; those of several mix as they are published.  So rows
are lined up within a **line**: the rows of one producer, or those with one key.  Within a line the
rows of both apps are walked in their order.  A row that the other app has later shows that the rows
before it there have no partner.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Item:
    """An event of an output; a million of them fit into some hundred megabytes."""

    js_stream: str
    sequence: int
    #: Place in its message, from 0.
    index: int
    time_ms: int
    #: Its attributes as JSON, in an order that both apps have.
    data: bytes

    @property
    def event(self) -> dict[str, Any]:
        """Its attributes."""
        found: dict[str, Any] = orjson.loads(self.data)
        return found


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that one of the apps alone has, or two rows in one place."""

    #: ``new``: the fork alone has it; ``gone``: the app alone has it; ``changed``: both differ.
    kind: str
    #: Of the app, and of the fork.
    before: Item | None
    after: Item | None

    @property
    def time_ms(self) -> int:
        """When the first of its rows was emitted."""
        return min(one.time_ms for one in (self.before, self.after) if one is not None)


@dataclass(slots=True)
class Compared:
    """The result for one stream, or the sum of several."""

    same: int = 0
    new: int = 0
    gone: int = 0
    changed: int = 0
    #: Rows of the app from before the fork's first row, if the fork began later.
    earlier: int = 0
    first: Difference | None = None

    @property
    def differs(self) -> bool:
        """Whether any row differs."""
        return bool(self.new or self.gone or self.changed)


def compare(
    before: Mapping[Hashable, Sequence[Item]],
    after: Mapping[Hashable, Sequence[Item]],
    *,
    begins_later: bool = False,
) -> Compared:
    """Compare two outputs, line by line.

    Args:
        before: the rows of the app, by line.
        after: those of the fork.
        begins_later: whether the fork did not read the beginning of the input: rows of the app
            before the first row of a line that both have are not missed.
    """
    made = Compared()
    for line in dict.fromkeys([*before, *after]):
        ours, theirs = before.get(line, ()), after.get(line, ())
        found = list(_walk(ours, theirs))
        if begins_later:
            common = next((n for n, one in enumerate(found) if one is None), len(found))
            earlier = [one for one in found[:common] if one is not None and one.kind == "gone"]
            made.earlier += len(earlier)
            found = [one for one in found if one not in earlier] if earlier else found
        for one in found:
            _count(made, one)
    return made


def by_key(items: Sequence[Item], key: Sequence[str]) -> dict[Hashable, list[Item]]:
    """Items by the values of attributes; one without an attribute has null there."""
    lines: dict[Hashable, list[Item]] = {}
    for one in items:
        name = orjson.dumps([one.event.get(attribute) for attribute in key])
        lines.setdefault(name, []).append(one)
    return lines


def _count(made: Compared, one: Difference | None) -> None:
    match one.kind if one is not None else "same":
        case "new":
            made.new += 1
        case "gone":
            made.gone += 1
        case "changed":
            made.changed += 1
        case _:
            made.same += 1
    if one is not None and (made.first is None or one.time_ms < made.first.time_ms):
        made.first = one


def _walk(before: Sequence[Item], after: Sequence[Item]) -> Iterator[Difference | None]:
    """The differences of one line in order, and None for each row that both have."""
    ours, theirs = [one.data for one in before], [one.data for one in after]
    our_places, their_places = _places(ours), _places(theirs)
    left = right = 0
    while left < len(ours) and right < len(theirs):
        if ours[left] == theirs[right]:
            yield None
            left, right = left + 1, right + 1
            continue
        ours_later = _next(their_places, ours[left], right)
        theirs_later = _next(our_places, theirs[right], left)
        if ours_later is None and theirs_later is None:
            yield Difference("changed", before[left], after[right])
            left, right = left + 1, right + 1
        elif ours_later is None or (
            theirs_later is not None and theirs_later - left <= ours_later - right
        ):
            yield Difference("gone", before[left], None)
            left += 1
        else:
            yield Difference("new", None, after[right])
            right += 1
    yield from (Difference("gone", one, None) for one in before[left:])
    yield from (Difference("new", None, one) for one in after[right:])


def _places(rows: Sequence[bytes]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for place, row in enumerate(rows):
        found.setdefault(row, []).append(place)
    return found


def _next(places: Mapping[bytes, Sequence[int]], row: bytes, start: int) -> int | None:
    """The first place of a row from ``start`` on; None if there is none."""
    own = places.get(row, ())
    at = bisect_left(own, start)
    return own[at] if at < len(own) else None
