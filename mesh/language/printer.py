"""Syntax trees to text: what is printed parses to an equal tree.

One clause a line, brackets only where the grammar needs them, and names in backquotes where they
are keywords.
"""

from __future__ import annotations

import re
from typing import assert_never

from mesh.language.expressions import PREFIX_TIGHTNESS, TIGHTNESS, TIME_UNITS, round_to_float
from mesh.language.syntax import (
    Annotation,
    App,
    Binary,
    Call,
    EventKind,
    Expression,
    Filter,
    Handler,
    Literal,
    PatternInput,
    PatternStep,
    Query,
    QueryInput,
    Selector,
    StreamDefinition,
    StreamInput,
    Unary,
    UnaryOperator,
    Variable,
    WindowHandler,
)
from mesh.language.tokens import KEYWORDS
from mesh.model.types import AttributeType

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z_0-9]*([.:-][A-Za-z_][A-Za-z_0-9]*)*\Z")
_CONTROL = re.compile(r"[\x00-\x1f]")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def print_app(app: App) -> str:
    """An app as SiddhiQL text that parses to an equal tree."""
    parts = []
    if app.annotations:
        parts.append("\n".join(print_annotation(a, of_app=True) for a in app.annotations))
    elements = [print_stream(s) for s in app.streams] + [print_query(q) for q in app.queries]
    parts.extend(f"{element};" for element in elements)
    return "\n\n".join(parts) + "\n"


def print_annotation(annotation: Annotation, *, of_app: bool = False) -> str:
    """``@dist(execGroup='g')``; ``of_app`` for ``@App:name('A')``."""
    name = print_name(annotation.name)
    if of_app:
        prefix, _, rest = annotation.name.partition(":")
        name = f"{prefix}:{print_name(rest)}"
    inside = [
        print_string(text) if key is None else f"{_key(key)}={print_string(text)}"
        for key, text in annotation.elements
    ]
    inside.extend(print_annotation(nested) for nested in annotation.annotations)
    return f"@{name}({', '.join(inside)})" if inside else f"@{name}"


def _key(key: str) -> str:
    return key if _PLAIN_KEY.match(key) else print_string(key)


def print_stream(stream: StreamDefinition) -> str:
    """``define stream S (a int)``, its annotations before it."""
    attributes = ", ".join(f"{print_name(a.name)} {a.type}" for a in stream.attributes)
    definition = f"define stream {print_name(stream.name)} ({attributes})"
    return "\n".join([*(print_annotation(a) for a in stream.annotations), definition])


def print_query(query: Query) -> str:
    """A query, a clause a line, its annotations before it."""
    lines = [print_annotation(a) for a in query.annotations]
    lines.append(f"from {_input(query.input)}")
    lines.extend(_selector(query.selector))
    events = "" if query.output.events is EventKind.CURRENT else f"{query.output.events} events "
    lines.append(f"insert {events}into {print_name(query.output.stream)}")
    return "\n".join(lines)


def _input(source: QueryInput) -> str:
    match source:
        case StreamInput():
            return print_name(source.stream) + "".join(_handler(h) for h in source.handlers)
        case PatternInput():
            return _pattern(source)
        case _:
            assert_never(source)


def _handler(handler: Handler) -> str:
    match handler:
        case Filter():
            return f"[{print_expression(handler.condition)}]"
        case WindowHandler():
            arguments = ", ".join(print_expression(a) for a in handler.arguments)
            name = ":".join(print_name(part) for part in handler.name.split(":"))
            return f"#window.{name}({arguments})"
        case _:
            assert_never(handler)


def _pattern(pattern: PatternInput) -> str:
    steps = [_step(step) for step in pattern.steps]
    if pattern.every is not None:
        start, stop = pattern.every
        repeated = " -> ".join(steps[start:stop])
        # One step alone takes brackets as well: a stream may have a name that needs them.
        steps[start:stop] = [f"every ({repeated})"]
    text = " -> ".join(steps)
    if len(steps) == 1 and pattern.every is None and pattern.steps[0].reference is None:
        text = f"({text})"
    return text if pattern.within_ms is None else f"{text} within {print_time(pattern.within_ms)}"


def _step(step: PatternStep) -> str:
    reference = f"{print_name(step.reference)}=" if step.reference is not None else ""
    return reference + print_name(step.stream) + "".join(_handler(f) for f in step.filters)


def _selector(selector: Selector) -> list[str]:
    columns = [
        print_expression(a.expression) + (f" as {print_name(a.alias)}" if a.alias else "")
        for a in selector.attributes
    ]
    lines = [f"select {', '.join(columns) or '*'}"]
    if selector.group_by:
        lines.append(f"group by {', '.join(print_expression(v) for v in selector.group_by)}")
    if selector.having is not None:
        lines.append(f"having {print_expression(selector.having)}")
    return lines


def print_expression(expression: Expression, loosest: int = 0) -> str:
    """An expression; in brackets if its operator binds less tightly than ``loosest``."""
    match expression:
        case Literal():
            return _literal(expression)
        case Variable():
            return _variable(expression)
        case Call():
            arguments = ", ".join(print_expression(a) for a in expression.arguments)
            namespace = f"{print_name(expression.namespace)}:" if expression.namespace else ""
            return f"{namespace}{print_name(expression.name)}({arguments})"
        case Unary():
            return _unary(expression)
        case Binary():
            tightness = TIGHTNESS[expression.operator]
            left = print_expression(expression.left, tightness)
            right = print_expression(expression.right, tightness + 1)
            text = f"{left} {expression.operator} {right}"
            return f"({text})" if tightness < loosest else text
        case _:
            assert_never(expression)


def _unary(expression: Unary) -> str:
    operand = expression.operand
    match expression.operator:
        case UnaryOperator.IS_NULL:
            assert isinstance(operand, Variable | Call), "'is null' follows a name or a call"
            return f"{print_expression(operand)} is null"
        case UnaryOperator.NOT:
            return f"not {print_expression(operand, PREFIX_TIGHTNESS)}"
        case UnaryOperator.NEGATE:
            # ``--`` starts a comment, and a minus before a number is the number's.
            plain = isinstance(operand, Variable | Call)
            return f"-{print_expression(operand)}" if plain else f"-({print_expression(operand)})"
        case _:
            assert_never(expression.operator)


def _variable(variable: Variable) -> str:
    if variable.source is None:
        return print_name(variable.name)
    index = ""
    if variable.index is not None:
        back = -1 - variable.index
        last = "last" if back == 0 else f"last-{back}"
        index = f"[{variable.index if variable.index >= 0 else last}]"
    return f"{print_name(variable.source)}{index}.{print_name(variable.name)}"


def _literal(literal: Literal) -> str:
    value = literal.value
    match literal.type:
        case AttributeType.STRING:
            return print_string(str(value))
        case AttributeType.BOOL:
            return "true" if value else "false"
        case AttributeType.INT:
            return str(value)
        case AttributeType.LONG:
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
    """Milliseconds as a time constant, in weeks and less: months and years vary in the mind."""
    parts = []
    rest = time_ms
    for words, unit_ms in TIME_UNITS[2:]:
        count, rest = divmod(rest, unit_ms)
        if count:
            parts.append(f"{count} {words[0]}")
    return " ".join(parts) or "0 sec"


def print_name(name: str) -> str:
    """A name, in backquotes unless it is a plain one."""
    return name if _NAME.match(name) and name.lower() not in KEYWORDS else f"`{name}`"


def print_string(text: str) -> str:
    """A string in the plainest quotes that can hold it."""
    has_control = _CONTROL.search(text) is not None
    if not has_control and "'" not in text and '"' not in text:
        return f"'{text}'"
    if not has_control and '"' not in text:
        return f'"{text}"'
    escaped = "".join(_ESCAPES.get(char, _control(char)) for char in text)
    return f'"""{escaped}"""'


def _control(char: str) -> str:
    return f"\\u{ord(char):04x}" if char < " " else char
