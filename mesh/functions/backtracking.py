"""Bound of the steps that a backtracking search takes, from a pattern's syntax tree.

A search tries one choice after the other: how often a part is repeated, which alternative, where
the match begins.  The product of the numbers of choices bounds the number of tries.  It may be far
from what a search needs, and it is never below.
"""

from __future__ import annotations

import importlib
import math
from typing import Any, Final

# The module that ``re`` itself uses; it has no public name.
_parser: Any = importlib.import_module("re._parser")
_codes: Any = importlib.import_module("re._constants")

#: Texts are shorter.
LENGTH_MAX: Final = 1 << 30
_REPEATS: Final = (_codes.MAX_REPEAT, _codes.MIN_REPEAT, _codes.POSSESSIVE_REPEAT)


def tree_of(pattern: str, flags: int) -> object:
    """The syntax tree of a pattern, with arguments as for ``re.compile``."""
    return _parser.parse(pattern, flags)


def may_be_empty(tree: Any) -> bool:
    """Whether a match may have no character."""
    return int(tree.getwidth()[0]) == 0


def longest_text(tree: object, steps: float, *, is_search: bool) -> int:
    """The length of the longest text on which a match takes at most ``steps`` tries; -1 for none.

    Args:
        tree: of the pattern.
        steps: the bound.
        is_search: whether the match may begin anywhere.
    """

    def is_within(length: int) -> bool:
        starts = length + 1 if is_search else 1
        return starts * _choices(tree, length) <= steps

    if not is_within(0):
        return -1
    low, high = 0, LENGTH_MAX
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_within(middle) else (low, middle - 1)
    return low


def _choices(items: Any, length: int) -> float:
    """The choices of a sequence of items, in a text of a length."""
    product = 1.0
    for code, value in items:
        product *= _choices_of(code, value, length)
        if math.isinf(product):
            break
    return product


def _choices_of(code: object, value: Any, length: int) -> float:
    if code in _REPEATS:
        least, most, items = value
        inner = _choices(items, length)
        times = min(int(most), length + int(least))
        if inner > 1.0:
            return _power(inner, times)
        return float(times - int(least) + 1)
    if code is _codes.SUBPATTERN:
        return _choices(value[-1], length)
    if code is _codes.ATOMIC_GROUP:
        return _choices(value, length)
    if code is _codes.BRANCH:
        return sum(_choices(one, length) for one in value[1])
    if code in (_codes.ASSERT, _codes.ASSERT_NOT):
        return _choices(value[1], length)
    if code is _codes.GROUPREF_EXISTS:
        return sum(_choices(one, length) for one in value[1:] if one)
    if code is _codes.GROUPREF:
        # It compares as many characters.
        return float(length + 1)
    return 1.0


def _power(base: float, exponent: int) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf
