"""Comparison of the outputs of two apps: rows that both have, and rows that one alone has.

The rows of one producer have a fixed order; those of several mix as they are published.  So rows
are lined up within a **line**: the rows of one producer, or those with one key.  Within a line the
rows of both apps are walked in their order.  A row that the other app has later shows that the rows
before it there have no partner.

The producer of an old row may be unknown: markers are purged.  So rows without a partner in their
line are at last compared, without an order, with equal ones of other lines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from mesh.model.values import JsonObject

#: The line of rows whose producer is unknown.
UNKNOWN: Final = ""


@dataclass(frozen=True, slots=True)
class OutputItem:
    """An event of an output; a million of them fit into some hundred megabytes."""

    js_stream: str
    sequence: int
    #: Place in its message, from 0.
    index: int
    time_ms: int
    #: Its attributes as JSON, in an order that both apps have.
    data: bytes

    @property
    def event(self) -> JsonObject:
        """Its attributes."""
        values: JsonObject = orjson.loads(self.data)
        return values


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that one of the apps alone has, or two rows in one place."""

    #: ``new``: the fork alone has it; ``gone``: the app alone has it; ``changed``: both differ;
    #: ``same``: both have it, where rows are shown side by side.
    kind: str
    #: Of the app, and of the fork.
    before: OutputItem | None
    after: OutputItem | None

    @property
    def time_ms(self) -> int:
        """When the first of its rows was emitted."""
        return min(one.time_ms for one in (self.before, self.after) if one is not None)


@dataclass(slots=True)
class StreamComparison:
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

    def add(self, one: Difference | None) -> None:
        """Count a difference; None, or one of kind ``same``, is a row of both."""
        match one.kind if one is not None else "same":
            case "new":
                self.new += 1
            case "gone":
                self.gone += 1
            case "changed":
                self.changed += 1
            case _:
                self.same += 1
                return
        if one is not None and (self.first is None or one.time_ms < self.first.time_ms):
            self.first = one


def compare(
    before: Mapping[Hashable, Sequence[OutputItem]],
    after: Mapping[Hashable, Sequence[OutputItem]],
    *,
    begins_later: bool = False,
) -> StreamComparison:
    """Compare two outputs, line by line.

    Args:
        before: the rows of the app, by line.
        after: those of the fork.
        begins_later: whether the fork did not read the beginning of the input: rows of the app
            before the first row of a line that both have are not missed.
    """
    comparison = StreamComparison()
    lines = [
        list(_walk(before.get(line, ()), after.get(line, ())))
        for line in dict.fromkeys([*before, *after])
    ]
    # Rows of an unknown producer may be missing in any line, and shift its walk.
    has_producers = UNKNOWN not in before and UNKNOWN not in after
    for walk in _paired(lines, keeps_order=has_producers):
        if begins_later:
            common = next((n for n, one in enumerate(walk) if one is None), len(walk))
            differing = [one for one in walk[:common] if one is None or one.kind != "gone"]
            comparison.earlier += common - len(differing)
            walk = [*differing, *walk[common:]]
        for one in walk:
            comparison.add(one)
    return comparison


def by_key(items: Sequence[OutputItem], key: Sequence[str]) -> dict[Hashable, list[OutputItem]]:
    """Items by the values of attributes; one without an attribute has null there."""
    lines: dict[Hashable, list[OutputItem]] = {}
    for one in items:
        name = orjson.dumps([one.event.get(attribute) for attribute in key])
        lines.setdefault(name, []).append(one)
    return lines


def _paired(
    lines: Sequence[Sequence[Difference | None]], *, keeps_order: bool
) -> list[list[Difference | None]]:
    """The lines, in which equal rows of the two apps in different lines are one row of both.

    Equal rows of one line, too, unless it ``keeps_order``.
    """
    #: By content and line, the places of the rows of the fork.
    waiting: dict[bytes, dict[int, deque[int]]] = {}
    for line, walk in enumerate(lines):
        for place, one in enumerate(walk):
            if one is not None and one.after is not None:
                waiting.setdefault(one.after.data, {}).setdefault(line, deque()).append(place)
    paired_before: set[tuple[int, int]] = set()
    paired_after: set[tuple[int, int]] = set()
    for line, walk in enumerate(lines):
        for place, one in enumerate(walk):
            if one is None or one.before is None:
                continue
            others = waiting.get(one.before.data, {})
            other = next((at for at in others if at != line or not keeps_order), None)
            if other is not None:
                paired_before.add((line, place))
                paired_after.add((other, others[other].popleft()))
                if not others[other]:
                    del others[other]
    return [
        [
            left
            for place, one in enumerate(walk)
            for left in _left(one, (line, place) in paired_before, (line, place) in paired_after)
        ]
        for line, walk in enumerate(lines)
    ]


def _left(
    one: Difference | None, is_before_paired: bool, is_after_paired: bool
) -> Iterator[Difference | None]:
    """Rest of a difference; a row of both is counted where the app has it."""
    if is_before_paired:
        yield None
    if one is None:
        yield None
    elif not is_before_paired and not is_after_paired:
        yield one
    elif not is_before_paired and one.before is not None:
        yield Difference("gone", one.before, None)
    elif not is_after_paired and one.after is not None:
        yield Difference("new", None, one.after)


def _walk(before: Sequence[OutputItem], after: Sequence[OutputItem]) -> Iterator[Difference | None]:
    """The differences of one line in order, and None for each row that both have."""
    return (None if one.kind == "same" else one for one in side_by_side(before, after))


def side_by_side(before: Sequence[OutputItem], after: Sequence[OutputItem]) -> Iterator[Difference]:
    """The rows of one line in order, each with its partner; ``same`` are rows that both have."""
    ours, theirs = [one.data for one in before], [one.data for one in after]
    our_places, their_places = _places(ours), _places(theirs)
    left = right = 0
    while left < len(ours) and right < len(theirs):
        if ours[left] == theirs[right]:
            yield Difference("same", before[left], after[right])
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
    by_row: dict[bytes, list[int]] = {}
    for place, row in enumerate(rows):
        by_row.setdefault(row, []).append(place)
    return by_row


def _next(places: Mapping[bytes, Sequence[int]], row: bytes, start: int) -> int | None:
    """The first place of a row from ``start`` on; None if there is none."""
    matches = places.get(row, ())
    at = bisect_left(matches, start)
    return matches[at] if at < len(matches) else None
