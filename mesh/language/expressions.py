"""Expressions, as the reference grammar groups them.

From loose to tight, each joining from the left: ``or``, ``and``, ``in``, ``== !=``,
``< <= > >=``, ``+ -``, ``* / %``, and before one operand ``not`` and ``-``.  So ``not a > 5`` is
``(not a) > 5``, and ``is null`` belongs to the name or call right before it.  A minus before
something else than a number is ours: the reference grammar knows it before numbers only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, Position, not_supported
from mesh.language.numbers import INT_MAX, LONG_MAX, round_to_float
from mesh.language.print_expressions import IN_TIGHTNESS, TIGHTNESS
from mesh.language.syntax import (
    Binary,
    BinaryOperator,
    Call,
    Expression,
    Literal,
    Unary,
    UnaryOperator,
    Variable,
)
from mesh.language.tokens import KEYWORDS, TokenKind
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor

_SYMBOLS: Final = {str(operator): operator for operator in TIGHTNESS}

#: Milliseconds of the units of time, in the order that a time constant has them.  A year is 365
#: days and a month 30, as in the reference engine.
TIME_UNITS: Final = (
    (("year", "years"), 31_536_000_000),
    (("month", "months"), 2_592_000_000),
    (("week", "weeks"), 604_800_000),
    (("day", "days"), 86_400_000),
    (("hour", "hours"), 3_600_000),
    (("min", "minute", "minutes"), 60_000),
    (("sec", "second", "seconds"), 1000),
    (("millisec", "millisecond", "milliseconds"), 1),
)

#: What an expression may hold before it is refused: Python's own stack bounds what comes after.
_OPERATORS_MAX: Final = 300
_DEPTH_MAX: Final = 60

_NUMBERS: Final = {
    TokenKind.INT: AttributeType.INT,
    TokenKind.LONG: AttributeType.LONG,
    TokenKind.FLOAT: AttributeType.FLOAT,
    TokenKind.DOUBLE: AttributeType.DOUBLE,
}


def parse_expression(cursor: Cursor) -> Expression:
    """The longest expression that starts at ``cursor``."""
    return _Expressions(cursor).whole()


def parse_variable(cursor: Cursor) -> Variable:
    """A reference to an attribute: ``temp``, ``e1.temp``, ``e1[last-1].temp``."""
    variable = _Expressions(cursor).reference()
    if not isinstance(variable, Variable):
        cursor.fail("an attribute")
    return variable


def sees_time(cursor: Cursor) -> bool:
    """Whether a time constant starts at ``cursor``."""
    return cursor.peek().kind is TokenKind.INT and _sees_unit(cursor, 1)


def parse_time(cursor: Cursor) -> Literal:
    """A time constant, ``1 hour 30 min``: its parts fall from years to milliseconds."""
    start = cursor.position
    total, next_unit = 0, 0
    while cursor.peek().kind is TokenKind.INT and (total == 0 or _sees_unit(cursor, 1)):
        number = _checked(int(cursor.peek().value or 0), AttributeType.INT, cursor.position)
        cursor.take()
        rest = TIME_UNITS[next_unit:]
        if not cursor.sees_word(*(word for words, _ in rest for word in words)):
            words = [word for words, _ in TIME_UNITS for word in words]
            if cursor.sees_word(*words):
                cursor.fail("a smaller unit of time", hint="Units fall: '1 min 5 sec'.")
            cursor.fail("a unit of time", words=words, hint=None)
        word = cursor.take().text.lower()
        index = next(i for i, (words, _) in enumerate(TIME_UNITS) if word in words)
        total += number * TIME_UNITS[index][1]
        next_unit = index + 1
        if next_unit == len(TIME_UNITS):
            break
    return Literal(total, AttributeType.LONG, is_time=True, position=start)


def _sees_unit(cursor: Cursor, ahead: int) -> bool:
    return cursor.sees_word(*(word for words, _ in TIME_UNITS for word in words), ahead=ahead)


class _Expressions:
    """One expression being read; counts what it holds."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._operators = 0
        self._depth = 0

    def whole(self) -> Expression:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._too_large("nested too deeply", f"{_DEPTH_MAX} levels are possible.")
        expression = self._binary(1)
        self._depth -= 1
        return expression

    def _binary(self, loosest: int) -> Expression:
        """Operators at least as tight as ``loosest``, joined from the left."""
        cursor = self._cursor
        left = self._prefixed()
        while True:
            if cursor.sees_word("in") and loosest <= IN_TIGHTNESS:
                raise not_supported("'in' a table", cursor.position)
            operator = self._operator()
            if operator is None or TIGHTNESS[operator] < loosest:
                return left
            position = cursor.take().position
            self._count()
            right = self._binary(TIGHTNESS[operator] + 1)
            left = Binary(operator, left, right, position=position)

    def _operator(self) -> BinaryOperator | None:
        token = self._cursor.peek()
        if token.kind is TokenKind.NAME and token.text.lower() in ("and", "or"):
            return BinaryOperator(token.text.lower())
        if token.kind is not TokenKind.SYMBOL:
            return None
        if token.text == "=":
            self._cursor.fail("an operator", hint="Equality is '=='.")
        return _SYMBOLS.get(token.text)

    def _prefixed(self) -> Expression:
        cursor = self._cursor
        position = cursor.position
        if cursor.sees_word("not") and not cursor.sees(".", ahead=1):
            cursor.take()
            self._count()
            return Unary(UnaryOperator.NOT, self._prefixed(), position=position)
        if cursor.sees("-") or cursor.sees("+"):
            sign = cursor.take().text
            if cursor.peek().kind in _NUMBERS:
                return self._number(position, negative=sign == "-")
            if sign == "+":
                cursor.fail("a number")
            self._count()
            return Unary(UnaryOperator.NEGATE, self._prefixed(), position=position)
        return self._primary()

    def _primary(self) -> Expression:
        cursor = self._cursor
        token = cursor.peek()
        if cursor.accept("("):
            inner = self.whole()
            cursor.expect(")")
            if cursor.sees_word("is"):
                cursor.fail("an operator", hint="'is null' follows a name or a call.")
            return inner
        if token.kind is TokenKind.STRING:
            cursor.take()
            return Literal(str(token.value), AttributeType.STRING, position=token.position)
        if sees_time(cursor):
            return parse_time(cursor)
        if token.kind in _NUMBERS:
            return self._number(token.position, negative=False)
        if cursor.sees_word("true", "false") and not cursor.sees(".", ahead=1):
            cursor.take()
            value = token.text.lower() == "true"
            return Literal(value, AttributeType.BOOL, position=token.position)
        return self._null_check(self.reference())

    def _null_check(self, operand: Variable | Call) -> Expression:
        cursor = self._cursor
        if not cursor.sees_word("is"):
            return operand
        position = cursor.take().position
        cursor.expect_word("null", hint="Only 'is null' exists; write 'not x is null'.")
        return Unary(UnaryOperator.IS_NULL, operand, position=position)

    def _number(self, start: Position, *, negative: bool) -> Literal:
        token = self._cursor.take()
        kind = _NUMBERS[token.kind]
        self._refuse_unit(token.kind)
        sign = -1 if negative else 1
        if isinstance(token.value, int):
            whole = _checked(sign * token.value, kind, token.position)
            return Literal(whole, kind, position=start)
        assert isinstance(token.value, float)
        return Literal(
            _checked_real(sign * token.value, kind, token.position), kind, position=start
        )

    def _refuse_unit(self, number: TokenKind) -> None:
        """A name can't follow a number; behind a whole one it may be a misspelt unit."""
        following = self._cursor.peek()
        is_name = following.kind is TokenKind.NAME and following.text.lower() not in KEYWORDS
        if number is TokenKind.INT and is_name:
            words = [word for words, _ in TIME_UNITS for word in words]
            self._cursor.fail("an operator", "a unit of time", words=words)

    def reference(self) -> Variable | Call:
        """An attribute or a call: all that starts with a name."""
        cursor = self._cursor
        start = cursor.position
        if (cursor.sees("#") or cursor.sees("!")) and cursor.sees_name(1):
            raise not_supported(
                "inner streams (#S)" if cursor.sees("#") else "fault streams (!S)", start
            )
        name = cursor.expect_name("an expression")
        if cursor.sees(":"):
            cursor.take()
            function = cursor.expect_name("the name of a function")
            return self._call(function, name, start)
        if cursor.sees("("):
            return self._call(name, None, start)
        index = self._index() if cursor.sees("[") else None
        if cursor.sees("#") and cursor.sees_name(1):
            raise not_supported("inner streams (#S)", cursor.position)
        if index is not None and cursor.sees_word("is"):
            raise not_supported("'is null' of an event", start)
        if index is None and not cursor.sees("."):
            return Variable(name, position=start)
        cursor.expect(".")
        last = cursor.position
        attribute = cursor.expect_name("the name of an attribute")
        return Variable(attribute, name, index, position=_span(start, last))

    def _index(self) -> int:
        """``[0]``, ``[last]``, ``[last-1]``."""
        cursor = self._cursor
        cursor.expect("[")
        if cursor.accept_word("last"):
            index = -1
            if cursor.accept("-"):
                index -= self._whole_number()
        else:
            index = self._whole_number()
        cursor.expect("]")
        return index

    def _whole_number(self) -> int:
        token = self._cursor.peek()
        if token.kind is not TokenKind.INT:
            self._cursor.fail("a whole number")
        self._cursor.take()
        assert isinstance(token.value, int)
        return _checked(token.value, AttributeType.INT, token.position)

    def _call(self, name: str, namespace: str | None, start: Position) -> Call:
        cursor = self._cursor
        # A name that is followed by ':' can only be a namespace, so the bracket must be there.
        cursor.expect("(")
        if cursor.sees("*") and cursor.sees(")", ahead=1):
            raise not_supported("all attributes as arguments (*)", cursor.position)
        arguments: list[Expression] = []
        if not cursor.sees(")"):
            arguments.append(self.whole())
            while cursor.accept(","):
                arguments.append(self.whole())
        if not cursor.sees(")"):
            cursor.fail("','", "')'")
        cursor.take()
        return Call(name, tuple(arguments), namespace, position=start)

    def _count(self) -> None:
        self._operators += 1
        if self._operators > _OPERATORS_MAX:
            self._too_large("too long", f"{_OPERATORS_MAX} operators are possible.")

    def _too_large(self, how: str, detail: str) -> None:
        raise MeshError(
            "MESH-L105",
            f"expression is {how}",
            detail=detail,
            hint="Compute parts of it in a query before this one.",
            position=self._cursor.position,
        )


def _span(first: Position, last: Position) -> Position:
    if first.line != last.line:
        return first
    return Position(first.line, first.column, last.column + last.length - first.column)


def _checked(value: int, kind: AttributeType, position: Position) -> int:
    """``value`` if whole numbers of type ``kind`` reach that far; MESH-L103 otherwise."""
    most = INT_MAX if kind is AttributeType.INT else LONG_MAX
    if -most - 1 <= value <= most:
        return value
    hint = f"Write {value}L for a long." if -LONG_MAX - 1 <= value <= LONG_MAX else None
    raise _too_large_number(kind, position, hint)


def _checked_real(value: float, kind: AttributeType, position: Position) -> float:
    """``value`` as ``kind`` holds it; MESH-L103 if it is beyond its range."""
    try:
        rounded = round_to_float(value) if kind is AttributeType.FLOAT else value
    except OverflowError:
        rounded = math.inf
    if math.isinf(rounded):
        raise _too_large_number(kind, position)
    return rounded


def _too_large_number(
    kind: AttributeType, position: Position, hint: str | None = None
) -> MeshError:
    return MeshError(
        "MESH-L103", f"number is too large for type {kind}", hint=hint, position=position
    )
