"""Time constants, ``1 hour 30 min``; and the numbers that types hold.

Those are 32-bit floats, and whole numbers within bounds.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError
from mesh.language.syntax import UNIT_MS, Literal, TimeUnit
from mesh.language.tokens import KEYWORDS, TokenKind
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor


#: Spellings of each unit.
UNIT_WORDS: Final = {
    "year": TimeUnit.YEAR,
    "years": TimeUnit.YEAR,
    "month": TimeUnit.MONTH,
    "months": TimeUnit.MONTH,
    "week": TimeUnit.WEEK,
    "weeks": TimeUnit.WEEK,
    "day": TimeUnit.DAY,
    "days": TimeUnit.DAY,
    "hour": TimeUnit.HOUR,
    "hours": TimeUnit.HOUR,
    "min": TimeUnit.MINUTE,
    "minute": TimeUnit.MINUTE,
    "minutes": TimeUnit.MINUTE,
    "sec": TimeUnit.SECOND,
    "second": TimeUnit.SECOND,
    "seconds": TimeUnit.SECOND,
    "millisec": TimeUnit.MILLISECOND,
    "millisecond": TimeUnit.MILLISECOND,
    "milliseconds": TimeUnit.MILLISECOND,
}
_ORDER: Final = tuple(TimeUnit)
_MEANT: Final = {"s": "sec", "secs": "sec", "ms": "millisec", "millis": "millisec", "m": "min",
                 "mins": "min", "h": "hour", "hr": "hour", "hrs": "hours"}  # fmt: skip

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


def sees_time(cursor: Cursor) -> bool:
    """Whether a time constant starts at ``cursor``."""
    return cursor.peek().kind is TokenKind.INT and cursor.sees_word(*UNIT_WORDS, ahead=1)


def expect_time(cursor: Cursor, example: str) -> Literal:
    """A time constant, which must be next; ``example`` shows a valid one."""
    if not sees_time(cursor):
        number = cursor.peek()
        following = cursor.peek(1)
        is_misspelt = following.kind is TokenKind.NAME and following.text.lower() not in KEYWORDS
        if number.kind is TokenKind.INT and is_misspelt:
            cursor.skip()
            fail_at_unit(cursor)
        cursor.fail("a time", hint=f"Write it with its unit: {example}.")
    time = parse_time(cursor)
    is_longer = cursor.peek(1).kind is TokenKind.INT and cursor.sees_word(*UNIT_WORDS, ahead=2)
    if cursor.sees_word("and") and is_longer:
        cursor.fail("a unit of time", hint="Units follow each other: '1 hour 30 min'.")
    return time


def parse_time(cursor: Cursor) -> Literal:
    """The time constant that starts here; its units descend from years to milliseconds."""
    start = cursor.position
    parts: list[tuple[int, TimeUnit]] = []
    while sees_time(cursor):
        number = cursor.take().value
        assert isinstance(number, int)
        word = cursor.peek().text.lower()
        if parts and _ORDER.index(UNIT_WORDS[word]) <= _ORDER.index(parts[-1][1]):
            cursor.fail("a smaller unit of time", hint="Units fall: '1 min 5 sec'.")
        cursor.expect_word(word)
        parts.append((number, UNIT_WORDS[word]))
    total = sum(number * UNIT_MS[unit] for number, unit in parts)
    position = cursor.since(start)
    if total > LONG_MAX:
        raise MeshError(
            "MESH-L103",
            "time is too long",
            detail="Times are milliseconds of type long.",
            position=position,
        )
    return Literal(total, AttributeType.LONG, is_time=True, parts=tuple(parts), position=position)


def fail_at_unit(cursor: Cursor) -> None:
    """Refuse a token other than a unit of time, where one is required."""
    meant = _MEANT.get(cursor.peek().text.lower())
    hint = f"Did you mean '{meant}'?" if meant else None
    cursor.fail("a unit of time", words=tuple(UNIT_WORDS), hint=hint)


def round_to_float(value: float) -> float:
    """The nearest 32-bit float; OverflowError beyond their range."""
    return float(struct.unpack("f", struct.pack("f", value))[0])
