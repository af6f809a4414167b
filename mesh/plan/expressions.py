"""Expressions bound: names to columns, operators and calls to types, as the reference engine types.

One rule is stricter than the reference engine's: it lets arithmetic over bool pass and fails at the
first event; here it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from mesh.errors import MeshError, Position, not_supported
from mesh.functions.signatures import (
    KNOWN_ELSEWHERE,
    NAMESPACES_ELSEWHERE,
    SIGNATURES,
    Parameter,
    Signature,
)
from mesh.language.syntax import (
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
from mesh.model.types import NUMERIC, AttributeType
from mesh.plan.bound import (
    AggregateCall,
    BinaryExpression,
    BoundExpression,
    Constant,
    FunctionCall,
    UnaryExpression,
    has_aggregate,
)
from mesh.plan.scopes import nearest

if TYPE_CHECKING:
    from mesh.plan.scopes import Scope

_LOGIC = (BinaryOperator.AND, BinaryOperator.OR)
_EQUALITY = (BinaryOperator.EQUAL, BinaryOperator.NOT_EQUAL)
_ORDER = (
    BinaryOperator.LESS,
    BinaryOperator.LESS_OR_EQUAL,
    BinaryOperator.GREATER,
    BinaryOperator.GREATER_OR_EQUAL,
)


def bind_condition(expression: Expression, scope: Scope, where: str) -> BoundExpression:
    """A condition: bool, and without aggregators; ``where`` says whose, for errors."""
    bound = bind_expression(expression, scope)
    if has_aggregate(bound):
        raise not_supported(
            f"an aggregator in {where}",
            expression.position,
            hint="Compute it in 'select', and test it in 'having' by its name.",
        )
    _require_bool(bound, expression, where)
    return bound


def bind_expression(expression: Expression, scope: Scope) -> BoundExpression:
    """``expression`` with every name looked up in ``scope`` and every type known."""
    match expression:
        case Literal():
            return Constant(expression.value, expression.type)
        case Variable():
            return scope.column(expression)
        case Unary():
            return _unary(expression, scope)
        case Binary():
            return _binary(expression, scope)
        case Call():
            return _call(expression, scope)
        case EventReference() | InTable():
            raise not_supported("'is null' of an event, and 'in' a table", expression.position)
        case _:
            assert_never(expression)


def _unary(expression: Unary, scope: Scope) -> BoundExpression:
    operand = expression.operand
    match expression.operator:
        case UnaryOperator.IS_NULL:
            if _is_event(operand, scope):
                raise not_supported("'is null' of an event", operand.position)
            kind = AttributeType.BOOL
            bound = bind_expression(operand, scope)
        case UnaryOperator.NOT:
            kind = AttributeType.BOOL
            bound = bind_expression(operand, scope)
            _require_bool(bound, operand, "'not'")
        case UnaryOperator.NEGATE:
            bound = bind_expression(operand, scope)
            kind = type_of(bound)
            if not kind.is_numeric:
                raise _mismatch(f"'-' takes a number, not {kind}", expression.position)
        case _:
            assert_never(expression.operator)
    return UnaryExpression(expression.operator, bound, kind)


def _is_event(operand: Expression, scope: Scope) -> bool:
    return isinstance(operand, Variable) and operand.source is None and scope.is_event(operand.name)


def _binary(expression: Binary, scope: Scope) -> BoundExpression:
    operator = expression.operator
    left, right = bind_expression(expression.left, scope), bind_expression(expression.right, scope)
    left_type, right_type = type_of(left), type_of(right)
    kind = AttributeType.BOOL
    if operator in _LOGIC:
        _require_bool(left, expression.left, f"'{operator}'")
        _require_bool(right, expression.right, f"'{operator}'")
    elif operator in _EQUALITY:
        both_numeric = left_type.is_numeric and right_type.is_numeric
        if not both_numeric and left_type is not right_type:
            raise _mismatch(f"{left_type} can't be compared with {right_type}", expression.position)
    elif not (left_type.is_numeric and right_type.is_numeric):
        detail = "It takes numbers."
        hint = None
        if operator is BinaryOperator.ADD and AttributeType.STRING in (left_type, right_type):
            detail = "Strings can't be joined with '+'."
        raise _mismatch(
            f"'{operator}' can't have {left_type} and {right_type}",
            expression.position,
            detail=detail,
            hint=hint,
        )
    elif operator not in _ORDER:
        kind = max(left_type, right_type, key=NUMERIC.index)
    return BinaryExpression(operator, left, right, kind)


def type_of(expression: BoundExpression) -> AttributeType:
    """The expression's type; the language has no bare null, so there is one."""
    assert expression.type is not None
    return expression.type


def _require_bool(bound: BoundExpression, expression: Expression, where: str) -> None:
    if bound.type is not AttributeType.BOOL:
        raise MeshError(
            "MESH-L208",
            f"{where} takes a condition, not {bound.type}",
            hint="'not' binds tighter than comparison: write not (a > b)."
            if where == "'not'"
            else None,
            position=expression.position,
        )


def _mismatch(
    message: str, position: Position, *, detail: str | None = None, hint: str | None = None
) -> MeshError:
    return MeshError("MESH-L207", message, detail=detail, hint=hint, position=position)


def _call(call: Call, scope: Scope) -> BoundExpression:
    name = f"{call.namespace}:{call.name}" if call.namespace else call.name
    signature = SIGNATURES.get(name)
    if signature is None:
        raise _unknown_function(name, call)
    arguments = tuple(bind_expression(argument, scope) for argument in call.arguments)
    if signature.is_aggregator and any(has_aggregate(a) for a in arguments):
        raise not_supported("an aggregator inside another", call.position)
    _check_arguments(signature, arguments, call)
    result = signature.result
    if not isinstance(result, AttributeType):
        index, by_type = result
        result = by_type[type_of(arguments[index])]
    node = AggregateCall if signature.is_aggregator else FunctionCall
    return node(signature.bound_name, arguments, result)


def _unknown_function(name: str, call: Call) -> MeshError:
    if name in KNOWN_ELSEWHERE or call.namespace in NAMESPACES_ELSEWHERE:
        return not_supported(f"function {name}", call.position)
    return MeshError(
        "MESH-L205",
        f'function "{name}" is not defined',
        hint=nearest(name, (*SIGNATURES, *KNOWN_ELSEWHERE)),
        position=call.position,
    )


def _check_arguments(
    signature: Signature, arguments: tuple[BoundExpression, ...], call: Call
) -> None:
    most = None if signature.repeats else len(signature.parameters)
    if len(arguments) < signature.required or (most is not None and len(arguments) > most):
        raise _argument_error(
            signature, f"takes {_how_many(signature)}, not {len(arguments)}", call.position
        )
    last = len(signature.parameters) - 1
    for index, argument in enumerate(arguments):
        parameter = signature.parameters[min(index, last)]
        position = call.arguments[index].position
        kind = type_of(argument)
        if kind not in parameter.types:
            raise _argument_error(
                signature, f"can't have {kind} as its {_ordinal(index)} argument", position
            )
        wanted = parameter.same_as
        if wanted is not None and kind is not type_of(arguments[wanted]):
            raise _argument_error(
                signature,
                f"has arguments of types {type_of(arguments[wanted])} and {kind}",
                position,
            )
        if parameter.is_constant and not isinstance(argument, Constant):
            raise _argument_error(
                signature, f"takes a constant as its {_ordinal(index)} argument", position
            )


def _argument_error(signature: Signature, what: str, position: Position) -> MeshError:
    return MeshError(
        "MESH-L206",
        f'function "{signature.name}" {what}',
        detail=f"It is {_shown(signature)}.",
        hint="Arguments that belong together have one type: write 1L, 1.0f or 1.0 for 1."
        if "arguments of types" in what
        else None,
        position=position,
    )


def _shown(signature: Signature) -> str:
    """``sum(value int|long|float|double)``."""
    parts = [
        _parameter(p) if i < signature.required else f"[{_parameter(p)}]"
        for i, p in enumerate(signature.parameters)
    ]
    more = ", .." if signature.repeats else ""
    return f"{signature.name}({', '.join(parts)}{more})"


def _parameter(parameter: Parameter) -> str:
    takes_all = parameter.types >= set(AttributeType) - {AttributeType.OBJECT}
    types = "any" if takes_all else "|".join(t for t in AttributeType if t in parameter.types)
    return f"{parameter.name} {types}" + (" constant" if parameter.is_constant else "")


def _how_many(signature: Signature) -> str:
    least, most = signature.required, len(signature.parameters)
    if signature.repeats:
        return f"at least {_counted(least)}"
    return _counted(most) if least == most else f"{least} to {_counted(most)}"


def _counted(count: int) -> str:
    return "1 argument" if count == 1 else f"{count} arguments"


def _ordinal(index: int) -> str:
    return ("first", "second", "third")[index] if index < 3 else f"{index + 1}th"
