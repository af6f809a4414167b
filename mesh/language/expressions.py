"""Expressions, with the precedence of the reference grammar.

From loose to tight, all left-associative: ``or``, ``and``, ``in``, ``== !=``, ``< <= > >=``,
``+ -``, ``* / %``, and the prefixes ``not`` and ``-``.  So ``not a > 5`` is ``(not a) > 5``, and
``is null`` belongs to the name or call right before it.  A minus before an operand other than a
number is our extension: the reference grammar has it before numbers only.

Open operators and brackets are kept on an explicit stack, so parsing accepts any nesting.  Trees
deeper than ``DEPTH_MAX`` are refused because later phases recurse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, Position
from mesh.language.hints import operator_hint
from mesh.language.print_expressions import IN_TIGHTNESS, PREFIX_TIGHTNESS, TIGHTNESS
from mesh.language.references import parse_reference
from mesh.language.syntax import (
    NOWHERE,
    Binary,
    BinaryOperator,
    Call,
    EventReference,
    Expression,
    InTable,
    Literal,
    Unary,
    UnaryOperator,
    Variable,
)
from mesh.language.times import (
    INT_MAX,
    LONG_MAX,
    UNIT_WORDS,
    fail_at_unit,
    parse_time,
    round_to_float,
    sees_time,
)
from mesh.language.tokens import KEYWORDS, TokenKind
from mesh.model.types import AttributeType

if TYPE_CHECKING:
    from mesh.language.cursor import Cursor

#: Maximum number of levels of a tree.
DEPTH_MAX: Final = 1000

_SYMBOLS: Final = {str(operator): operator for operator in TIGHTNESS}
_NUMBERS: Final = {
    TokenKind.INT: AttributeType.INT,
    TokenKind.LONG: AttributeType.LONG,
    TokenKind.FLOAT: AttributeType.FLOAT,
    TokenKind.DOUBLE: AttributeType.DOUBLE,
}
#: Words after ``not`` that show that ``not`` is the name of an attribute.
_AFTER_NAME: Final = ("as", "and", "or", "is", "in")
#: Operators that are aggregators where a bracket follows, as in ``not and(b)``.
_AGGREGATORS: Final = ("and", "or")
#: Clauses that follow an attribute, by their first two words.
_CLAUSES: Final = {
    "insert": ("into", "all", "current", "expired", "events"),
    "group": ("by",),
    "order": ("by",),
}
_BEFORE_OPERAND: Final = ("(", "-", "+", "#", "!")


def parse_expression(cursor: Cursor) -> Expression:
    """The longest expression that starts at ``cursor``."""
    return _Expressions(cursor).whole()


@dataclass(slots=True)
class _Open:
    """An operator without its right operand yet, or an open bracket."""

    position: Position
    #: 0 for brackets: nothing is joined across them.
    tightness: int
    operator: BinaryOperator | UnaryOperator | None = None
    #: The prefix of the call before the bracket, and the arguments read so far.
    call: tuple[str | None, str] | None = None
    arguments: list[tuple[Expression, int]] = field(default_factory=list)


class _Expressions:
    """State of the parser for one expression."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._open: list[_Open] = []
        #: Operands read, each with its number of levels.
        self._operands: list[tuple[Expression, int]] = []

    def whole(self) -> Expression:
        while True:
            while self._opens():
                pass
            self._operands.append((self._null_check(self._operand()), 1))
            while self._closes():
                pass
            if not self._continues():
                break
        self._join(1)
        if self._open:
            self._cursor.fail("an operator", "')'", hint=operator_hint(self._cursor))
        ((expression, _),) = self._operands
        return expression

    # Before an operand

    def _opens(self) -> bool:
        """Consume a token that may precede an operand: a prefix, a bracket, the start of a call."""
        cursor = self._cursor
        if cursor.sees_word("not") and not self._is_not_a_name():
            position = cursor.position
            cursor.accept_word("not")
            self._open.append(_Open(position, PREFIX_TIGHTNESS, UnaryOperator.NOT))
        elif cursor.sees("-") and cursor.peek(1).kind not in _NUMBERS:
            position = cursor.position
            cursor.take()
            # Two of them would start a comment.
            if not cursor.sees("-"):
                cursor.no_space_before()
            self._open.append(_Open(position, PREFIX_TIGHTNESS, UnaryOperator.NEGATE))
        elif cursor.accept("("):
            self._open.append(_Open(NOWHERE, 0))
        elif self._sees_call() and not self._sees_empty_call():
            position = cursor.position
            namespace, name = self._call_start()
            self._open.append(_Open(position, 0, call=(namespace, name)))
        else:
            return False
        return True

    def _is_not_a_name(self) -> bool:
        """Whether ``not`` is an attribute here, as in ``not as x``."""
        cursor = self._cursor
        following = cursor.peek(1)
        if cursor.sees_word(*_AGGREGATORS, ahead=1) and cursor.sees("(", ahead=2):
            return False
        for first, seconds in _CLAUSES.items():
            if cursor.sees_word(first, ahead=1) and cursor.sees_word(*seconds, ahead=2):
                return True
        return (
            cursor.sees_word(*_AFTER_NAME, ahead=1)
            or following.kind is TokenKind.END
            or (following.kind is TokenKind.SYMBOL and following.text not in _BEFORE_OPERAND)
        )

    def _sees_call(self) -> bool:
        cursor = self._cursor
        return cursor.sees_name() and (cursor.sees("(", ahead=1) or cursor.sees(":", ahead=1))

    def _sees_empty_call(self) -> bool:
        """Whether the call that starts here has no arguments, or ``*`` for all attributes."""
        cursor = self._cursor
        inside = 4 if cursor.sees(":", ahead=1) else 2
        if cursor.sees("*", ahead=inside):
            inside += 1
        return cursor.sees(")", ahead=inside)

    def _call_start(self) -> tuple[str | None, str]:
        """Namespace and name of a call, and its bracket."""
        cursor = self._cursor
        namespace = None
        name = cursor.expect_name("the name of a function")
        if cursor.accept(":"):
            namespace, name = name, cursor.expect_name("the name of a function")
        cursor.no_space_before()
        cursor.expect("(")
        return namespace, name

    # Operands

    def _operand(self) -> Expression:
        cursor = self._cursor
        token = cursor.peek()
        start = cursor.position
        if token.kind is TokenKind.STRING:
            cursor.take()
            return Literal(str(token.value), AttributeType.STRING, position=start)
        if sees_time(cursor):
            return parse_time(cursor)
        if token.kind in _NUMBERS:
            return self._number(start, sign=1)
        if cursor.sees("-") or cursor.sees("+"):
            sign = -1 if cursor.take().text == "-" else 1
            cursor.no_space_before()
            if cursor.peek().kind not in _NUMBERS:
                cursor.fail("a number")
            return self._number(start, sign)
        if cursor.sees_word("true", "false") and not cursor.sees(".", ahead=1):
            value = cursor.expect_word("true", "false") == "true"
            return Literal(value, AttributeType.BOOL, position=start)
        if self._sees_call():
            namespace, name = self._call_start()
            takes_all = cursor.accept("*")
            if takes_all:
                cursor.no_space_before(-1)
            cursor.expect(")")
            return Call(name, (), namespace, takes_all, position=start)
        if cursor.sees("*"):
            cursor.fail("an expression", hint="'*' is alone after 'select', or in f(*).")
        return parse_reference(cursor, "an expression")

    def _null_check(self, operand: Expression) -> Expression:
        cursor = self._cursor
        if not cursor.sees_word("is") or not isinstance(operand, Variable | EventReference | Call):
            return operand
        position = cursor.position
        cursor.expect_word("is")
        cursor.expect_word("null", hint="Only 'is null' exists; write 'not x is null'.")
        return Unary(UnaryOperator.IS_NULL, operand, position=position)

    def _number(self, start: Position, sign: int) -> Literal:
        token = self._cursor.take()
        kind = _NUMBERS[token.kind]
        self._refuse_unit(token.kind)
        position = self._cursor.since(start)
        if isinstance(token.value, int):
            return Literal(_checked(sign * token.value, kind, position), kind, position=position)
        assert isinstance(token.value, float)
        return Literal(_checked_real(sign * token.value, kind, position), kind, position=position)

    def _refuse_unit(self, number: TokenKind) -> None:
        """Refuse a name right after a number; after a whole number it may be a misspelt unit."""
        following = self._cursor.peek()
        if number is not TokenKind.INT or following.kind is not TokenKind.NAME:
            return
        word = following.text.lower()
        if word in UNIT_WORDS:
            self._cursor.fail("a number", hint="Times have no sign: write '0 - 1 sec'.")
        if (hint := operator_hint(self._cursor)) is not None:
            self._cursor.fail("an operator", hint=hint)
        if word not in KEYWORDS:
            fail_at_unit(self._cursor)

    # After an operand

    def _closes(self) -> bool:
        """Consume ``in T``, or the end of a bracket; True if one was there."""
        cursor = self._cursor
        if cursor.sees_word("in"):
            self._in_table()
            return True
        if not cursor.sees(")"):
            return False
        self._join(1)
        if not self._open:
            return False
        cursor.take()
        bracket = self._open.pop()
        if bracket.call is None:
            if cursor.sees_word("is"):
                cursor.fail("an operator", hint="'is null' follows a name or a call.")
            return True
        namespace, name = bracket.call
        bracket.arguments.append(self._operands.pop())
        arguments = tuple(argument for argument, _ in bracket.arguments)
        depth = max(levels for _, levels in bracket.arguments)
        call = Call(name, arguments, namespace, position=bracket.position)
        self._push(self._null_check(call), depth + 1)
        return True

    def _in_table(self) -> None:
        cursor = self._cursor
        position = cursor.position
        self._join(IN_TIGHTNESS)
        cursor.expect_word("in")
        if cursor.sees("("):
            cursor.fail("the name of a table", hint="Write 'or': a == 1 or a == 2.")
        table_position = cursor.position
        table = cursor.expect_name("the name of a table")
        if cursor.sees_word("is"):
            cursor.fail("an operator", hint="'is null' follows a name or a call.")
        operand, depth = self._operands.pop()
        node = InTable(operand, table, position=position, table_position=table_position)
        self._push(node, depth + 1)

    def _continues(self) -> bool:
        """Consume an operator, or the comma of a call's arguments; True if one was there."""
        cursor = self._cursor
        operator = self._operator()
        if operator is not None:
            tightness = TIGHTNESS[operator]
            self._join(tightness)
            position = cursor.position
            if not cursor.accept_word("and", "or"):
                cursor.take()
            self._open.append(_Open(position, tightness, operator))
            return True
        if cursor.sees(","):
            self._join(1)
            if self._open and self._open[-1].call is not None:
                cursor.take()
                self._open[-1].arguments.append(self._operands.pop())
                return True
        return False

    def _operator(self) -> BinaryOperator | None:
        token = self._cursor.peek()
        if token.kind is TokenKind.SYMBOL:
            if token.text == "=":
                self._cursor.fail("an operator", hint="Equality is '=='.")
            if token.text == "<" and self._cursor.sees(">", ahead=1):
                self._cursor.fail("an operator", hint="Inequality is '!='.")
            return _SYMBOLS.get(token.text)
        if token.kind is TokenKind.NAME and token.text.lower() in ("and", "or"):
            return BinaryOperator(token.text.lower())
        return None

    def _join(self, loosest: int) -> None:
        """Give the open operators that are at least as tight as ``loosest`` their operands."""
        while self._open and self._open[-1].tightness >= loosest:
            entry = self._open.pop()
            right, depth = self._operands.pop()
            if isinstance(entry.operator, BinaryOperator):
                left, left_depth = self._operands.pop()
                node: Expression = Binary(entry.operator, left, right, position=entry.position)
                depth = max(depth, left_depth)
            else:
                assert entry.operator is not None
                node = Unary(entry.operator, right, position=entry.position)
            self._push(node, depth + 1)

    def _push(self, expression: Expression, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise MeshError(
                "MESH-L105",
                "expression is nested too deeply",
                detail=f"{DEPTH_MAX} levels are possible; a chain of operators has one for each.",
                hint="Compute parts of it in a query before this one.",
                position=self._cursor.position,
            )
        self._operands.append((expression, depth))


def _checked(value: int, kind: AttributeType, position: Position) -> int:
    """``value`` if it is in the range of the integer type ``kind``; MESH-L103 otherwise."""
    most = INT_MAX if kind is AttributeType.INT else LONG_MAX
    if -most - 1 <= value <= most:
        return value
    hint = f"Write {value}L for a long." if -LONG_MAX - 1 <= value <= LONG_MAX else None
    raise _too_large_number(kind, position, hint)


def _checked_real(value: float, kind: AttributeType, position: Position) -> float:
    """``value`` rounded to ``kind``; MESH-L103 if it exceeds the range."""
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
