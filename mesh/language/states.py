"""Patterns and sequences: ``every A -> B within t``, ``every A, B+``.

Both are parsed here because they are alike up to their first ``->`` or ``,``, which decides between
them.  Open brackets are kept on an explicit stack; redundant brackets leave no trace in the tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, Position
from mesh.language.inputs import parse_handlers
from mesh.language.references import parse_stream_reference, parse_whole_number
from mesh.language.syntax import (
    AbsentElement,
    CountElement,
    EventElement,
    EveryElement,
    LogicalElement,
    LogicalOperator,
    NextElement,
    StateElement,
    StateInput,
    StateKind,
)
from mesh.language.times import expect_time

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor

#: Words that may follow a stream's name; after ``every`` they show that "every" is a stream.
_CLAUSES: Final = (
    "select", "insert", "delete", "update", "return", "output", "join", "inner", "outer", "left",
    "right", "full", "unidirectional", "as", "within", "and", "or", "for",
)  # fmt: skip
_COUNT_SIGNS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_SEPARATORS: Final = {"->": StateKind.PATTERN, ",": StateKind.SEQUENCE}


def starts_state(cursor: Cursor) -> bool:
    """Whether a pattern or a sequence starts here, judged by its first words."""
    return (
        cursor.sees("(")
        or _sees_before_stream(cursor, "every")
        or _sees_before_stream(cursor, "not")
        or (cursor.sees_name() and cursor.sees("=", ahead=1))
    )


def continues_as_state(cursor: Cursor) -> bool:
    """Whether the stream with filters read so far is the first event of a pattern."""
    return any(cursor.sees(s) for s in ("->", ",", "<", "*", "+", "?")) or (
        cursor.sees_word("and", "or", "within")
    )


def parse_state(cursor: Cursor, first: EventElement | None = None) -> StateInput:
    """The pattern or sequence that starts here, or continues here after its first event."""
    position = first.position if first else cursor.position
    reading = _States(cursor)
    element = reading.whole(first)
    within = None
    if cursor.accept_word("within"):
        within = expect_time(cursor, "'within 10 min'")
        if cursor.sees("->") or cursor.sees(",") or cursor.sees_word("within"):
            cursor.fail(
                "'select'", hint="'within' is written once, at the end, and applies to all."
            )
    return StateInput(reading.kind, element, within, position=position)


def _sees_before_stream(cursor: Cursor, word: str) -> bool:
    """Whether ``word`` is next and is a keyword, not the name of a stream."""
    if not cursor.sees_word(word):
        return False
    if any(cursor.sees(symbol, ahead=1) for symbol in ("(", "!")):
        return True
    if cursor.sees("#", ahead=1):
        # ``every #S`` is an inner stream, ``every#log()`` a handler of stream "every".
        return not (cursor.sees("(", ahead=3) or cursor.sees(":", ahead=3)) and not (
            cursor.sees(".", ahead=3)
        )
    if not cursor.sees_name(1):
        return False
    if not cursor.sees_word(*_CLAUSES, ahead=1):
        return True
    # A stream may have the name of a clause's keyword; then one more such word follows.
    return (
        cursor.sees("=", ahead=2)
        or cursor.sees_word(cursor.peek(1).text.lower(), ahead=2)
        or (word == "not" and cursor.sees_word("for", "and", ahead=2))
    )


@dataclass(slots=True)
class _Group:
    """An open bracket, or the whole input."""

    position: Position
    is_every: bool = False
    elements: list[StateElement] = field(default_factory=list)

    @property
    def chain(self) -> StateElement:
        if len(self.elements) == 1:
            return self.elements[0]
        return NextElement(tuple(self.elements), position=self.elements[0].position)


class _States:
    """State of the parser for one input."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._kind: StateKind | None = None
        self._groups: list[_Group] = []
        #: Position of the first construct that only patterns or only sequences have.
        self._pattern_only: Position | None = None
        self._sequence_only: Position | None = None
        #: Positions of brackets around the first event: sequences allow them only around an absent
        #: event.
        self._first_brackets: Position | None = None
        self._has_absence = False

    @property
    def kind(self) -> StateKind:
        """Pattern or sequence; a single event is a pattern."""
        return self._kind or StateKind.PATTERN

    def whole(self, first: EventElement | None) -> StateElement:
        cursor = self._cursor
        self._groups = [_Group(cursor.position)]
        if first is not None:
            self._add(self._rest_of_event(first))
        else:
            self._element()
        while True:
            if cursor.sees("->") or cursor.sees(","):
                self._separator()
                self._element()
            elif cursor.sees(")") and len(self._groups) > 1:
                self._close()
            else:
                break
        if len(self._groups) > 1:
            hint = None
            if cursor.sees_word("within"):
                hint = "It follows the brackets: (e1=S -> e2=T) within 1 min."
            separator = "','" if self._kind is not StateKind.PATTERN else "'and'"
            cursor.fail("'->'", separator, "')'", hint=hint)
        self._check_kind()
        return self._groups[0].chain

    def _separator(self) -> None:
        cursor = self._cursor
        kind = _SEPARATORS[cursor.peek().text]
        if self._kind is None:
            self._kind = kind
        elif kind is not self._kind:
            cursor.fail(
                f"'{self._kind}'", hint="A pattern (->) and a sequence (,) don't mix in one query."
            )
        cursor.take()

    def _element(self) -> None:
        """Open the brackets at this point, and parse the unit in them."""
        cursor = self._cursor
        while True:
            position = cursor.position
            if _sees_before_stream(cursor, "every"):
                self._check_every(position)
                cursor.expect_word("every")
                if not cursor.sees("("):
                    self._add(EveryElement(self._unit(), position=position))
                    return
                cursor.take()
                self._groups.append(_Group(position, is_every=True))
            elif cursor.accept("("):
                self._groups.append(_Group(position))
            else:
                self._add(self._unit())
                return

    def _check_every(self, position: Position) -> None:
        if any(group.is_every for group in self._groups):
            self._cursor.fail(
                "an event", hint="'every' can't be inside another; leave the inner one out."
            )
        if self._kind is StateKind.SEQUENCE:
            self._cursor.fail("an event", hint="In a sequence 'every' is at the start only.")
        if len(self._groups) > 1 or self._groups[0].elements:
            self._pattern_only = self._pattern_only or position

    def _close(self) -> None:
        self._cursor.take()
        group = self._groups.pop()
        element = group.chain
        is_first = len(self._groups) == 1 and not self._groups[0].elements
        if is_first:
            self._first_brackets = self._first_brackets or group.position
        if group.is_every:
            self._add(EveryElement(element, position=group.position))
        elif isinstance(element, NextElement):
            for inner in element.elements:
                self._add(inner)
        else:
            self._add(element)
        if any(self._cursor.sees(sign) for sign in ("<", "+", "*", "?")):
            self._cursor.fail("'->'", hint="Only one event is counted, not those in brackets.")

    def _add(self, element: StateElement) -> None:
        elements = self._groups[-1].elements
        if elements and _is_absent(element) and _is_absent(elements[-1]):
            raise MeshError(
                "MESH-L104",
                "one absent event follows another",
                hint="Join them by 'and': not S for 5 sec and not U for 5 sec.",
                position=element.position,
            )
        elements.append(element)

    def _check_kind(self) -> None:
        if not self._has_absence:
            self._pattern_only = self._pattern_only or self._first_brackets
        if self.kind is StateKind.SEQUENCE and self._pattern_only is not None:
            raise MeshError(
                "MESH-L104",
                "brackets and 'every' of a pattern in a sequence",
                hint="A sequence has one 'every', before its first event, which has no brackets.",
                position=self._pattern_only,
            )
        if self.kind is StateKind.PATTERN and self._sequence_only is not None:
            raise MeshError(
                "MESH-L104",
                "'*', '+' and '?' follow events of sequences only",
                hint="In a pattern write <0:>, <1:> or <0:1>.",
                position=self._sequence_only,
            )

    # Units: one event, counted, absent, or two joined by 'and' or 'or'

    def _unit(self) -> StateElement:
        if _sees_before_stream(self._cursor, "not"):
            return self._logical(self._absent())
        return self._rest_of_event(self._event())

    def _event(self) -> EventElement:
        cursor = self._cursor
        position = cursor.position
        reference = None
        if cursor.sees_name() and cursor.sees("=", ahead=1):
            reference = cursor.expect_name("a name")
            cursor.take_close()
            cursor.no_space_before()
        stream = parse_stream_reference(cursor)
        handlers = parse_handlers(cursor, with_window=False)
        if cursor.sees_word("as"):
            cursor.fail("'->'", hint="An event is named before its stream: e1=S.")
        return EventElement(stream, reference, handlers, position=position)

    def _rest_of_event(self, event: EventElement) -> StateElement:
        count = self._count()
        if count is None:
            return self._logical(event)
        if self._cursor.sees("["):
            self._cursor.fail("'->'", hint="A filter precedes the count: S[a > 1]<2:5>.")
        if self._cursor.sees_word("and", "or"):
            self._cursor.fail("'->'", hint="An event that is counted has no 'and' and no 'or'.")
        least, most = count
        return CountElement(event, least, most, position=event.position)

    def _count(self) -> tuple[int, int | None] | None:
        cursor = self._cursor
        sign = cursor.peek().text
        if any(cursor.sees(s) for s in _COUNT_SIGNS):
            self._sequence_only = self._sequence_only or cursor.position
            cursor.take_close()
            return _COUNT_SIGNS[sign]
        if not cursor.sees("<"):
            return None
        cursor.take_close()
        cursor.no_space_before()
        if cursor.sees(":"):
            cursor.take()
            return 0, self._end_of_count()
        least = parse_whole_number(cursor)
        if cursor.sees(":"):
            cursor.take()
            if cursor.sees(">"):
                cursor.take_close()
                return least, None
            return least, self._end_of_count()
        cursor.no_space_before()
        cursor.expect(">")
        return least, least

    def _end_of_count(self) -> int:
        number = parse_whole_number(self._cursor)
        self._cursor.no_space_before()
        self._cursor.expect(">")
        return number

    def _absent(self) -> AbsentElement:
        self._has_absence = True
        cursor = self._cursor
        position = cursor.position
        cursor.expect_word("not")
        if cursor.sees_name() and cursor.sees("=", ahead=1):
            cursor.fail("a stream", hint="An event that is absent has no name.")
        event = self._event()
        waiting = None
        if cursor.accept_word("for"):
            waiting = expect_time(cursor, "'for 10 sec'")
        elif not cursor.sees_word("and"):
            cursor.fail("'for'", "'and'", hint="Say how long: not S for 10 sec.")
        return AbsentElement(event, waiting, position=position)

    def _logical(self, left: EventElement | AbsentElement) -> StateElement:
        cursor = self._cursor
        if not cursor.sees_word("and", "or"):
            return left
        operator = LogicalOperator(cursor.expect_word("and", "or"))
        right: EventElement | AbsentElement
        right = (
            self._right_absent(left, operator)
            if _sees_before_stream(cursor, "not")
            else (self._event())
        )
        if cursor.sees_word("and", "or"):
            cursor.fail("'->'", hint="'and' and 'or' join two events, no more.")
        return LogicalElement(operator, left, right, position=left.position)

    def _right_absent(
        self, left: EventElement | AbsentElement, operator: LogicalOperator
    ) -> AbsentElement:
        """``.. and not S``; the time is optional if the other side is a plain event."""
        self._has_absence = True
        cursor = self._cursor
        position = cursor.position
        cursor.expect_word("not")
        event = self._event()
        waiting = expect_time(cursor, "'for 10 sec'") if cursor.accept_word("for") else None
        is_bound = operator is LogicalOperator.AND and isinstance(left, EventElement)
        has_left_time = isinstance(left, EventElement) or left.waiting is not None
        if (waiting is None and not is_bound) or not has_left_time:
            cursor.fail("'for'", hint="Say how long: not S for 10 sec.")
        return AbsentElement(event, waiting, position=position)


def _is_absent(element: StateElement) -> bool:
    inner = element.element if isinstance(element, EveryElement) else element
    return isinstance(inner, AbsentElement)
