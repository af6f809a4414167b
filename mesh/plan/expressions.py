"""Expressions bound: names to columns, operators and calls to types, as the reference engine types.

Trees may be deep, so they are walked with a stack of our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from mesh.errors import MeshError, Position, not_supported
from mesh.functions.catalogue import (
    AGGREGATORS,
    DOCUMENTED_FUNCTIONS,
    SCALARS,
    Argument,
    ArgumentForm,
    CallRefusal,
    NameKind,
    Reason,
    Resolution,
    Signature,
    resolve,
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
    Column,
    Constant,
    EventIsNull,
    FunctionCall,
    TableCheck,
    UnaryExpression,
)
from mesh.plan.scopes import TableScope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.plan.scopes import NamedSource, Scope

FUNCTIONS: Final[Mapping[str, Signature]] = SCALARS | AGGREGATORS | DOCUMENTED_FUNCTIONS

_LOGIC: Final = (BinaryOperator.AND, BinaryOperator.OR)
_EQUALITY: Final = (BinaryOperator.EQUAL, BinaryOperator.NOT_EQUAL)
_ORDER: Final = (
    BinaryOperator.LESS,
    BinaryOperator.LESS_OR_EQUAL,
    BinaryOperator.GREATER,
    BinaryOperator.GREATER_OR_EQUAL,
)
_NUMBERS_ONLY: Final = "It takes numbers."
_COMPARED: Final = (AttributeType.STRING, AttributeType.BOOL)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The functions and tables that the expressions of an app can use."""

    #: Looks a table up for ``in``; MESH-L217 without one of that name.
    table: Callable[[InTable], NamedSource]
    functions: Mapping[str, Signature]
    #: The names among ``functions`` that the app defines.
    scripts: frozenset[str] = frozenset()


def bind_condition(
    expression: Expression, scope: Scope, vocabulary: Vocabulary, where: str
) -> BoundExpression:
    """A condition; ``where`` names its place in errors."""
    bound = bind_expression(expression, scope, vocabulary)
    _require_bool(bound, expression, where)
    return bound


def bind_test(
    expression: Expression, scope: Scope, vocabulary: Vocabulary, where: str
) -> BoundExpression:
    """A condition for which the engine accepts no bare name, constant or aggregator."""
    bound = bind_condition(expression, scope, vocabulary, where)
    if isinstance(bound, Column | Constant | AggregateCall):
        raise MeshError(
            "MESH-L208",
            f"{where} takes a condition, not a bare name, constant or aggregator",
            hint="Compare it: a == true.",
            position=expression.position,
        )
    return bound


def bind_expression(root: Expression, scope: Scope, vocabulary: Vocabulary) -> BoundExpression:
    """``root`` with every name looked up in ``scope`` and every type known.

    Raises:
        MeshError: MESH-L202 to L208, L217 and L218 at the first part that doesn't fit.
    """
    done: list[BoundExpression] = []
    # Expressions to bind; and, after their operands, expressions to assemble from these.
    pending: list[tuple[Expression, Scope, int | None]] = [(root, scope, None)]
    while pending:
        expression, place, count = pending.pop()
        if count is not None:
            parts = done[len(done) - count :]
            del done[len(done) - count :]
            done.append(_together(expression, parts, place, vocabulary))
            continue
        leaf = _leaf(expression, place)
        if leaf is not None:
            done.append(leaf)
            continue
        operands, inner = _operands(expression, place, vocabulary)
        pending.append((expression, place, len(operands)))
        pending.extend((operand, inner, None) for operand in reversed(operands))
    (bound,) = done
    return bound


def type_of(expression: BoundExpression) -> AttributeType:
    """The expression's type; the language has no bare null, so there is one."""
    assert expression.type is not None
    return expression.type


def argument(expression: Expression, bound: BoundExpression) -> Argument:
    """The facts about an argument that the catalogue needs."""
    if isinstance(expression, Literal):
        return Argument(expression.type, ArgumentForm.CONSTANT, expression.value)
    if isinstance(expression, Variable):
        return Argument(type_of(bound), ArgumentForm.ATTRIBUTE, name=expression.name)
    return Argument(type_of(bound), ArgumentForm.EXPRESSION)


def refused(
    refusal: CallRefusal, code: str, position: Position, arguments: Sequence[Expression] = ()
) -> MeshError:
    """The catalogue's refusal as an error, at the argument that is to blame if there is one."""
    if refusal.argument is not None and refusal.argument < len(arguments):
        position = arguments[refusal.argument].position
    if refusal.reason is Reason.ABSENT:
        return not_supported(refusal.message, position, hint=refusal.hint)
    return MeshError(
        code, refusal.message, detail=refusal.detail, hint=refusal.hint, position=position
    )


def _leaf(expression: Expression, scope: Scope) -> BoundExpression | None:
    match expression:
        case Literal():
            return Constant(expression.value, expression.type, position=expression.position)
        case Variable():
            _refuse_function_prefix(expression)
            return scope.column(expression)
        case EventReference(source, index, kind):
            event = scope.event(source, kind, index)
            if event is None:
                name = Variable(source, kind=kind, position=expression.position)
                raise _unknown_event(name)
            return _placed(event, expression.position)
        case Unary(UnaryOperator.IS_NULL, Variable(name, source=None) as operand):
            if scope.has(name):
                return None
            event = scope.event(name, operand.kind, None)
            return _placed(event, expression.position) if event is not None else None
        case Unary(UnaryOperator.IS_NULL, EventReference() as operand):
            return _leaf(operand, scope)
        case _:
            return None


def _placed(event: EventIsNull, position: Position) -> EventIsNull:
    return EventIsNull(event.name, event.step, event.index, position=position)


def _unknown_event(variable: Variable) -> MeshError:
    return MeshError(
        "MESH-L203",
        f'"{variable.kind}{variable.name}" is not known here',
        position=variable.position,
    )


def _refuse_function_prefix(variable: Variable) -> None:
    if variable.function is not None:
        raise MeshError(
            "MESH-L203",
            f'"{variable.source}#{variable.function}" is not known here',
            hint="What a stream function adds is called by its name alone.",
            position=variable.position,
        )


def _operands(
    expression: Expression, scope: Scope, vocabulary: Vocabulary
) -> tuple[tuple[Expression, ...], Scope]:
    """Expressions that have to be bound before ``expression``, with their scopes."""
    match expression:
        case Unary():
            return (expression.operand,), scope
        case Binary():
            return (expression.left, expression.right), scope
        case Call():
            return expression.arguments, scope
        case InTable():
            table = vocabulary.table(expression)
            if not scope.takes_tables():
                raise MeshError(
                    "MESH-L218",
                    "'in' in the filter of an event",
                    detail="The reference engine fails on it.",
                    hint="Insert the events that meet it into a separate stream first.",
                    position=expression.position,
                )
            return (expression.operand,), TableScope(table, scope.inside())
        case Literal() | Variable() | EventReference():
            raise AssertionError("these have no parts")
        case _:
            assert_never(expression)


def _together(
    expression: Expression, parts: list[BoundExpression], scope: Scope, vocabulary: Vocabulary
) -> BoundExpression:
    match expression:
        case Unary():
            return _unary(expression, parts[0])
        case Binary():
            return _binary(expression, parts[0], parts[1])
        case InTable():
            return TableCheck(expression.table, parts[0], position=expression.position)
        case Call():
            return _call(expression, parts, scope, vocabulary)
        case _:
            raise AssertionError("these have no parts")


def _unary(expression: Unary, operand: BoundExpression) -> BoundExpression:
    operator, kind = expression.operator, AttributeType.BOOL
    if operator is UnaryOperator.NOT:
        _require_bool(operand, expression.operand, "'not'")
    elif operator is UnaryOperator.NEGATE:
        kind = type_of(operand)
        if not kind.is_numeric:
            raise _mismatch(f"'-' takes a number, not {kind}", expression.position)
    return UnaryExpression(operator, operand, kind, position=expression.position)


def _binary(expression: Binary, left: BoundExpression, right: BoundExpression) -> BinaryExpression:
    operator, kind = expression.operator, AttributeType.BOOL
    left_type, right_type = type_of(left), type_of(right)
    if operator in _LOGIC:
        _require_bool(left, expression.left, f"'{operator}'")
        _require_bool(right, expression.right, f"'{operator}'")
    elif operator in _EQUALITY:
        both_numeric = left_type.is_numeric and right_type.is_numeric
        if not both_numeric and (left_type is not right_type or left_type not in _COMPARED):
            message = f"{left_type} can't be compared with {right_type}"
            raise _mismatch(message, expression.position, hint=_converted(left_type, right_type))
    elif operator in _ORDER:
        if not (left_type.is_numeric and right_type.is_numeric):
            message = f"'{operator}' can't have {left_type} and {right_type}"
            hint = _converted(left_type, right_type)
            if left_type is right_type is AttributeType.STRING:
                hint = f"Compare texts by str:strcmp(a, b) {operator} 0."
            raise _mismatch(message, expression.position, detail=_NUMBERS_ONLY, hint=hint)
    else:
        kind = _arithmetic(expression, left_type, right_type)
    return BinaryExpression(operator, left, right, kind, position=expression.position)


def _arithmetic(expression: Binary, left: AttributeType, right: AttributeType) -> AttributeType:
    """The type of the widest number; operands of other types don't count."""
    numbers = [kind for kind in (left, right) if kind.is_numeric]
    if not numbers:
        detail, hint = _NUMBERS_ONLY, _converted(left, AttributeType.DOUBLE)
        if expression.operator is BinaryOperator.ADD and AttributeType.STRING in (left, right):
            detail, hint = "Strings can't be joined with '+'.", "Write str:concat(a, b)."
        message = f"'{expression.operator}' can't have {left} and {right}"
        raise _mismatch(message, expression.position, detail=detail, hint=hint)
    return max(numbers, key=NUMERIC.index)


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


def _converted(left: AttributeType, right: AttributeType) -> str | None:
    """A hint at the function that gives two operands one type."""
    kinds = {left, right}
    if AttributeType.OBJECT in kinds:
        (other,) = (kinds - {AttributeType.OBJECT}) or {AttributeType.STRING}
        return f"Give it a type first: cast(x, '{other}')."
    if AttributeType.BOOL in kinds and AttributeType.STRING not in kinds:
        return "A bool is a condition by itself: write 'x' or 'not x'."
    if AttributeType.STRING in kinds and len(kinds) > 1:
        (other,) = kinds - {AttributeType.STRING}
        return f"Convert the text: convert(x, '{other}')."
    return None


def _mismatch(
    message: str, position: Position, *, detail: str | None = None, hint: str | None = None
) -> MeshError:
    return MeshError("MESH-L207", message, detail=detail, hint=hint, position=position)


def _call(
    call: Call, parts: list[BoundExpression], scope: Scope, vocabulary: Vocabulary
) -> BoundExpression:
    name = f"{call.namespace}:{call.name}" if call.namespace else call.name
    if call.takes_all:
        columns = scope.spread(call.position)
        parts = list(columns)
        arguments = [Argument(column.type, ArgumentForm.ATTRIBUTE) for column in columns]
    else:
        arguments = [argument(one, bound) for one, bound in zip(call.arguments, parts, strict=True)]
    resolution = resolve(vocabulary.functions, name, arguments)
    if isinstance(resolution, CallRefusal):
        code = "MESH-L205" if resolution.reason is Reason.UNKNOWN else "MESH-L206"
        error = refused(resolution, code, call.position, call.arguments)
        if call.takes_all and isinstance(resolve(vocabulary.functions, name, ()), Resolution):
            error.hint = f"'*' stands for all attributes: write {name}()."
        elif name == "eventTimestamp" and resolution.reason is Reason.COUNT:
            error.hint = "For another event's, select eventTimestamp() as t in an earlier query."
        raise error
    return _resolved(resolution, tuple(parts), call, name in vocabulary.scripts)


def _resolved(
    resolution: Resolution, arguments: tuple[BoundExpression, ...], call: Call, is_script: bool
) -> BoundExpression:
    assert resolution.type is not None, "functions and aggregators have a value"
    signature = resolution.signature
    if signature.kind is NameKind.AGGREGATOR:
        return AggregateCall(
            signature.bound_name, arguments, resolution.type, position=call.position
        )
    return FunctionCall(
        signature.name if is_script else signature.bound_name,
        arguments,
        resolution.type,
        is_script,
        fails=resolution.fails,
        position=call.position,
    )
