"""States of a group by the text that it has now."""

from __future__ import annotations

from tests.support.kept_states import INSIDE, kept_inside
from tests.support.recorder import DEFINE


def test_queries_of_a_partition_come_from_one_partition() -> None:
    """Its keys have the numbers that this one gave them."""
    text = DEFINE + "partition with (k of S) begin {} end; partition with (k of S) begin {} end;"
    one, two = (query.format(f"P{n}") for n, query in enumerate(INSIDE[:2]))
    together = DEFINE + f"partition with (k of S) begin {one} {two} end;"
    assert kept_inside(text.format(one, two), together) == {"P0"}
    # Both parts of a division continue.
    assert kept_inside(together, text.format(one, two)) == {"P0", "P1"}
