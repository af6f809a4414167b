"""Registry of event functions: by name, what makes the models of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mesh.operators.event_functions import sketches
from mesh.plan.bound import Constant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mesh.operators.event_functions.model import Form
    from mesh.plan.bound import BoundExpression, BoundStreamFunction

    _Maker = Callable[[BoundStreamFunction], Form]


def _of_constants(form: Callable[..., Form]) -> _Maker:
    """``form`` of the constants that follow the first argument."""

    def make(handler: BoundStreamFunction) -> Form:
        return form(*_constants(handler.arguments[1:]))

    return make


def _constants(arguments: Sequence[BoundExpression]) -> list[Any]:
    return [one.value for one in arguments if isinstance(one, Constant)]


#: By name, the form of a call.
EVENT_FUNCTIONS: Final[Mapping[str, _Maker]] = {
    "approximate:count": _of_constants(sketches.value_count),
    "approximate:distinctCount": _of_constants(sketches.distinct_values(forgets=True)),
    "approximate:distinctCountEver": _of_constants(sketches.distinct_values(forgets=False)),
}
