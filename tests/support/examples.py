"""Numbers of examples of properties, by the tier of tests."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

#: Of the profile of `make test-ci`.
_ALL: Final = 100
#: The first example is the simplest one: fewer than these would say little.
_FEWEST: Final = 3


def examples(count: int) -> int:
    """``count`` in `make test-ci`, an eighth of it in the default tier, but at least three."""
    return max(min(count, _FEWEST), count * min(settings().max_examples, _ALL) // _ALL)
