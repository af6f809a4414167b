"""Printer of expressions, with brackets only where the grammar needs them.

Nothing here recurses: an expression may be a thousand levels deep.
"""

from __future__ import annotations

import re
from typing import Final

from mesh.language.syntax import (
    UNIT_MS,
    Binary,
    BinaryOperator,
    Call,
    EventReference,
    Expression,
    InTable,
    Literal,
    StreamReference,
    Unary,
    UnaryOperator,
    Variable,
)
from mesh.language.times import round_to_float
from mesh.language.tokens import KEYWORDS
from mesh.model.types import AttributeType

#: Precedence of the operators; a greater number binds tighter.
TIGHTNESS: Final = {
    BinaryOperator.OR: 1,
    BinaryOperator.AND: 2,
    BinaryOperator.EQUAL: 4,
    BinaryOperator.NOT_EQUAL: 4,
    BinaryOperator.LESS: 5,
    BinaryOperator.LESS_OR_EQUAL: 5,
    BinaryOperator.GREATER: 5,
    BinaryOperator.GREATER_OR_EQUAL: 5,
    BinaryOperator.ADD: 6,
    BinaryOperator.SUBTRACT: 6,
    BinaryOperator.MULTIPLY: 7,
    BinaryOperator.DIVIDE: 7,
    BinaryOperator.MODULO: 7,
}
IN_TIGHTNESS: Final = 3
PREFIX_TIGHTNESS: Final = 8

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z")
_CONTROL: Final = re.compile(r"[\x00-\x1f]")


def print_expression(expression: Expression) -> str:
    """An expression as text that parses to an equal one."""
    out: list[str] = []
    # Parts left to write, the next at the end: texts, and expressions with the loosest precedence
    # allowed.
    pending: list[str | tuple[Expression, int]] = [(expression, 0)]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            out.append(item)
            continue
        node, loosest = item
        match node:
            case Literal():
                out.append(print_literal(node))
            case Variable():
                out.append(print_variable(node))
            case EventReference():
                out.append(f"{node.kind}{print_name(node.source)}{_index(node.index)}")
            case Call():
                pending.extend(reversed(_call(node)))
            case Unary():
                pending.extend(reversed(_unary(node)))
            case Binary() | InTable():
                pending.extend(reversed(_infix(node, loosest)))
    return "".join(out)


_Pieces = list[str | tuple[Expression, int]]


def _call(call: Call) -> _Pieces:
    pieces: _Pieces = [print_function(call.name, call.namespace), "("]
    if call.takes_all:
        pieces.append("*")
    for number, argument in enumerate(call.arguments):
        if number:
            pieces.append(", ")
        pieces.append((argument, 0))
    pieces.append(")")
    return pieces


def _unary(expression: Unary) -> _Pieces:
    operand = expression.operand
    match expression.operator:
        case UnaryOperator.IS_NULL:
            return [(operand, PREFIX_TIGHTNESS + 1), " is null"]
        case UnaryOperator.NOT:
            return ["not ", (operand, PREFIX_TIGHTNESS)]
        case UnaryOperator.NEGATE:
            # ``--`` starts a comment, and a minus before a number is the number's.
            if isinstance(operand, Variable | Call):
                return ["-", (operand, 0)]
            return ["-(", (operand, 0), ")"]


def _infix(node: Binary | InTable, loosest: int) -> _Pieces:
    pieces: _Pieces
    if isinstance(node, InTable):
        tightness = IN_TIGHTNESS
        pieces = [(node.operand, tightness), f" in {print_name(node.table)}"]
    else:
        tightness = TIGHTNESS[node.operator]
        pieces = [(node.left, tightness), f" {node.operator} ", (node.right, tightness + 1)]
    return ["(", *pieces, ")"] if tightness < loosest else pieces


def print_variable(variable: Variable) -> str:
    """``e1[last-1].temp``."""
    if variable.source is None:
        return print_name(variable.name)
    function = ""
    if variable.function is not None:
        function = f"#{print_name(variable.function)}{_index(variable.function_index)}"
    source = f"{variable.kind}{print_name(variable.source)}{_index(variable.index)}"
    return f"{source}{function}.{print_name(variable.name)}"


def _index(index: int | None) -> str:
    if index is None:
        return ""
    if index >= 0:
        return f"[{index}]"
    return "[last]" if index == -1 else f"[last-{-1 - index}]"


def print_literal(literal: Literal) -> str:
    """A constant, a time in the units that it was written in."""
    value = literal.value
    match literal.type:
        case AttributeType.STRING:
            return print_string(str(value))
        case AttributeType.BOOL:
            return "true" if value else "false"
        case AttributeType.INT:
            return str(value)
        case AttributeType.LONG:
            if literal.parts:
                return " ".join(f"{number} {unit}" for number, unit in literal.parts)
            assert isinstance(value, int)
            return print_time(value) if literal.is_time else f"{value}L"
        case AttributeType.FLOAT:
            return f"{_shortest_float(float(value))}f"
        case _:
            return repr(float(value))


def _shortest_float(value: float) -> str:
    """The shortest decimal that is the same 32-bit float."""
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    return next(text for text in texts if round_to_float(float(text)) == value)


def print_time(time_ms: int) -> str:
    """Milliseconds as a time constant, in weeks and less: months and years are ambiguous."""
    parts = []
    rest = time_ms
    for unit, unit_ms in list(UNIT_MS.items())[2:]:
        count, rest = divmod(rest, unit_ms)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or "0 sec"


def print_function(name: str, namespace: str | None) -> str:
    """``ns:fn``."""
    return f"{print_name(namespace)}:{print_name(name)}" if namespace else print_name(name)


def print_reference(stream: StreamReference) -> str:
    """``#S``."""
    return f"{stream.kind}{print_name(stream.name)}"


def print_name(name: str) -> str:
    """A name, in backquotes unless it is a plain one."""
    return name if _NAME.match(name) and name.lower() not in KEYWORDS else f"`{name}`"


def print_string(text: str) -> str:
    """A string in the plainest quotes that can hold it; no kind of quotes has escapes.

    Raises:
        ValueError: no kind can hold the text, because it has three double quotes or ends with one,
            and something else that needs the third kind.  No text of an app has such strings.
    """
    has_control = _CONTROL.search(text) is not None
    if not has_control and "'" not in text and '"' not in text:
        return f"'{text}'"
    if not has_control and '"' not in text:
        return f'"{text}"'
    if text.endswith('"') or '"""' in text:
        raise ValueError(f"no quotes of SiddhiQL can hold {text!r}")
    return f'"""{text}"""'
