"""Patterns: ``every A -> B within t``.

Sequences (``A, B``) look the same up to their first comma, so both are read here, and all that a
pattern can't have yet is refused where it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.errors import not_supported
from mesh.language.expressions import parse_time, sees_time
from mesh.language.sources import parse_filters, parse_source
from mesh.language.syntax import (
    EventElement,
    EveryElement,
    NextElement,
    StateElement,
    StateInput,
    StateKind,
)

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.language.cursor import Cursor

#: Words that follow a stream's name: behind ``every`` they tell that it is a stream called so.
_CLAUSES = (
    "select", "insert", "delete", "update", "return", "output", "join", "inner", "outer", "left",
    "right", "full", "unidirectional", "as", "within", "and", "or",
)  # fmt: skip
_DEPTH_MAX = 30


def starts_pattern(cursor: Cursor) -> bool:
    """Whether a pattern or a sequence starts here, as far as its first words tell."""
    if cursor.sees("("):
        ahead = 1
        while cursor.sees("(", ahead=ahead):
            ahead += 1
        if cursor.sees_word("from", ahead=ahead) and cursor.sees_name(ahead + 1):
            raise not_supported("queries inside queries (from (from ..))", cursor.position)
        return True
    return _sees_every(cursor) or _sees_not(cursor) or _sees_reference(cursor)


def parse_pattern(cursor: Cursor, first: EventElement | None = None) -> StateInput:
    """The pattern that starts here, or goes on here behind its first step."""
    position = first.position if first else cursor.position
    chain = _Chain(cursor)
    if first:
        chain.add(first)
        chain.rest()
    else:
        chain.all()
    within = None
    if cursor.accept_word("within"):
        if not sees_time(cursor):
            cursor.fail("a time", hint="Write it with its unit: 'within 10 min'.")
        within = parse_time(cursor)
    return StateInput(StateKind.PATTERN, chain.element, within, position=position)


def _sees_every(cursor: Cursor) -> bool:
    if not cursor.sees_word("every"):
        return False
    if cursor.sees("(", ahead=1) or cursor.sees("!", ahead=1):
        return True
    return cursor.sees_name(1) and not cursor.sees_word(*_CLAUSES, ahead=1)


def _sees_not(cursor: Cursor) -> bool:
    if not cursor.sees_word("not"):
        return False
    return cursor.sees("!", ahead=1) or (
        cursor.sees_name(1) and not cursor.sees_word(*_CLAUSES, ahead=1)
    )


def _sees_reference(cursor: Cursor) -> bool:
    return cursor.sees_name() and cursor.sees("=", ahead=1)


class _Chain:
    """Steps joined by ``->``, with the brackets taken away."""

    def __init__(self, cursor: Cursor) -> None:
        self.steps: list[EventElement] = []
        self.every: tuple[int, int] | None = None
        self._cursor = cursor
        self._depth = 0

    @property
    def element(self) -> StateElement:
        """What was read, as a tree."""
        elements: list[StateElement] = list(self.steps)
        if self.every is not None:
            start, stop = self.every
            repeated = self.steps[start:stop]
            inner: StateElement = (
                NextElement(tuple(repeated), position=repeated[0].position)
                if len(repeated) > 1
                else repeated[0]
            )
            elements[start:stop] = [EveryElement(inner, position=repeated[0].position)]
        if len(elements) == 1:
            return elements[0]
        return NextElement(tuple(elements), position=self.steps[0].position)

    def add(self, step: EventElement) -> None:
        """Append a step that is read already, but for what may follow it."""
        self.steps.append(step)
        self._refuse_after_step()

    def all(self) -> None:
        """A whole chain: elements joined by ``->``."""
        self._element()
        self.rest()

    def rest(self) -> None:
        """What follows the first element of a chain."""
        cursor = self._cursor
        while cursor.accept("->"):
            self._element()
        if cursor.sees(","):
            raise not_supported("sequences (A, B)", cursor.position)

    def _element(self) -> None:
        """``every X``, ``(..)`` or one step."""
        cursor = self._cursor
        if _sees_every(cursor):
            position = cursor.take().position
            self._refuse_second_every(position)
            start = len(self.steps)
            # Until its end is known, so that an ``every`` inside is seen as a second one.
            self.every = (start, start)
            if cursor.sees("("):
                self._group()
            else:
                self._step()
            self.every = (start, len(self.steps))
        elif cursor.sees("("):
            self._group()
        else:
            self._step()

    def _refuse_second_every(self, position: Position) -> None:
        if self.every is not None:
            raise not_supported("more than one 'every' in a pattern", position)

    def _group(self) -> None:
        cursor = self._cursor
        cursor.expect("(")
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise not_supported(f"brackets deeper than {_DEPTH_MAX} in a pattern", cursor.position)
        self.all()
        if not cursor.sees(")"):
            cursor.fail("'->'", "')'")
        cursor.take()
        self._depth -= 1
        self._refuse_after_step()

    def _step(self) -> None:
        cursor = self._cursor
        position = cursor.position
        if _sees_not(cursor):
            raise not_supported("absent events (not S)", position)
        reference = None
        if _sees_reference(cursor):
            reference = cursor.expect_name("a name")
            cursor.take()
        stream = parse_source(cursor)
        filters = parse_filters(cursor)
        self.add(EventElement(stream, reference, filters, position=position))

    def _refuse_after_step(self) -> None:
        cursor = self._cursor
        if cursor.sees("<"):
            raise not_supported("counts of events (<m:n>)", cursor.position)
        if cursor.sees_word("and", "or"):
            raise not_supported("'and' and 'or' between events", cursor.position)
        if cursor.sees("*") or cursor.sees("+") or cursor.sees("?"):
            raise not_supported("sequences (S*, S+, S?)", cursor.position)
        if cursor.sees("#") and cursor.sees_word("window", ahead=1):
            cursor.fail("'->'", hint="Events of a pattern have no window.")
        if cursor.sees("#") and cursor.sees_name(1):
            raise not_supported("stream functions (#name(..))", cursor.position)
