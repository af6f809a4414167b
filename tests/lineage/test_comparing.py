"""Outputs of two apps lined up, counted, and their first difference."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import orjson

from mesh.lineage.comparing import OutputItem, by_key, compare

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable


def items(values: Iterable[int], key: str = "a") -> list[OutputItem]:
    return [
        OutputItem("s", number, 0, number, orjson.dumps({"k": key, "v": value}))
        for number, value in enumerate(values, 1)
    ]


def counts(before: Iterable[int], after: Iterable[int], **more: bool) -> tuple[int, ...]:
    found = compare({"p": items(before)}, {"p": items(after)}, **more)
    return found.same, found.new, found.gone, found.changed


def test_equal_outputs_have_no_difference() -> None:
    assert counts(range(5), range(5)) == (5, 0, 0, 0)
    assert not compare({}, {}).differs


def test_rows_that_one_alone_has_move_nothing_else() -> None:
    assert counts(range(10), [n for n in range(10) if n % 3]) == (6, 0, 4, 0)
    assert counts([1, 2, 3], [1, 9, 2, 8, 3]) == (3, 2, 0, 0)
    assert counts([1, 2, 3], [1, 7, 3]) == (2, 0, 0, 1)


def test_the_first_difference_is_the_earliest() -> None:
    found = compare({"p": items([1, 2, 3]), "q": items([5])}, {"p": items([1, 3]), "q": []})
    assert found.first is not None
    assert (found.first.kind, found.first.time_ms) == ("gone", 1)


def test_rows_before_a_fork_began_are_not_missed() -> None:
    assert counts([1, 2, 3, 4, 5], [3, 5], begins_later=True) == (2, 0, 1, 0)
    assert counts([1, 2, 3, 4, 5], [3, 5]) == (2, 0, 3, 0)


def test_rows_whose_producer_is_unknown_are_found_in_other_lines() -> None:
    ours: dict[Hashable, list[OutputItem]] = {
        "": items([1, 2]),
        "p": items([3, 4]),
        "q": items([5]),
    }
    found = compare(ours, {"p": items([1, 2, 3, 4]), "q": items([5])})
    assert (found.same, found.differs, found.first) == (5, False, None)
    # A row that a purged marker gave to the line of another producer.
    found = compare(
        {"p": items([1, 2, 6]), "q": items([5])}, {"p": items([1, 2]), "q": items([5, 7])}
    )
    assert (found.same, found.new, found.gone, found.changed) == (3, 1, 1, 0)
    found = compare({"p": items([1, 8]), "q": items([9])}, {"p": items([1, 9]), "q": items([8])})
    assert (found.same, found.differs) == (3, False)
    # Within a line the order counts, and so does how often a row is there.
    assert counts([1, 2], [2, 1]) != (2, 0, 0, 0)
    found = compare({"": items([1, 1]), "p": []}, {"p": items([1])})
    assert (found.same, found.gone, found.new) == (1, 1, 0)


def test_any_attribution_of_equal_rows_is_no_difference() -> None:
    draw = random.Random(5)
    for _ in range(100):
        rows = [(draw.choice("pq"), draw.randrange(8)) for _ in range(40)]
        whole: dict[Hashable, list[OutputItem]] = {
            name: items(value for at, value in rows if at == name) for name in "pq"
        }
        lost = draw.randrange(40)
        ours: dict[Hashable, list[OutputItem]] = {
            name: items(v for at, v in rows[lost:] if at == name) for name in "pq"
        }
        found = compare({**ours, "": items(value for _, value in rows[:lost])}, whole)
        assert (found.same, found.differs) == (40, False)


def test_any_subset_is_found_exactly() -> None:
    draw = random.Random(3)
    for _ in range(100):
        rows = [draw.randrange(8) for _ in range(60)]
        kept = [row for row in rows if row > 3]
        # All rows of a value go or stay, as with another threshold.
        assert counts(rows, kept) == (len(kept), 0, len(rows) - len(kept), 0)


def test_rows_with_one_key_are_lined_up() -> None:
    mixed = items([1, 2, 3], "a") + items([1, 2], "b")
    other = items([1, 2], "b") + items([1, 4, 3], "a")
    found = compare(by_key(mixed, ["k"]), by_key(other, ["k"]))
    assert (found.same, found.changed, found.new, found.gone) == (4, 1, 0, 0)
