"""Several errors from one run, and none that only follows from another.

Errors about names: unknown, ambiguous or duplicate; with the most similar known name.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from mesh.errors import MeshError, MeshErrors, all_errors
from mesh.functions.catalogue import AGGREGATORS, SCALARS, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mesh.errors import Position
    from mesh.language.syntax import Variable
    from mesh.model.types import Attribute
    from mesh.plan.bound import Column


#: Maximum number of reported errors: each takes time to word, and users don't read hundreds.
ERRORS_MAX: Final = 100

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")


class DependsOnError(Exception):
    """The part depends on another one with an error that has been reported; nothing to add."""


class TooManyErrors(Exception):
    """The maximum number of errors has been found."""


class Diagnostics:
    """The errors found so far."""

    def __init__(self) -> None:
        self._errors: list[MeshError] = []
        #: Number of parts that could not be made, reported or not.
        self.failures = 0

    def attempt(
        self, make: Callable[Arguments, Value], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Value | None:
        """Call ``make`` with the arguments; None if it fails, and its error is recorded."""
        try:
            return make(*args, **kwargs)
        except DependsOnError:
            self.failures += 1
        except MeshError as error:
            self.add(error)
        return None

    def add(self, error: MeshError) -> None:
        """Record an error.

        Raises:
            TooManyErrors: it is the last of the reported errors.
        """
        self.failures += 1
        self._errors.extend(all_errors(error))
        if len(self._errors) >= ERRORS_MAX:
            raise TooManyErrors

    def raise_any(self) -> None:
        """Raise the recorded errors, in the order of the text.

        Raises:
            MeshError: the only one, or several as ``MeshErrors``.
        """
        errors = self.errors
        if errors:
            raise errors[0] if len(errors) == 1 else MeshErrors(errors)

    @property
    def errors(self) -> tuple[MeshError, ...]:
        """The recorded errors, in the order of the text."""
        return tuple(sorted(self._errors, key=place_of)[:ERRORS_MAX])


def place_of(error: MeshError) -> tuple[int, int]:
    """Line and column of an error, to sort by; those without a position are first."""
    at = error.position
    return (at.line, at.column) if at is not None else (0, 0)


#: Maximum number of names in a message.
_SHOWN_MAX: Final = 20
#: Limits of the search for the nearest name, in names and length: it takes time.
_NEAR_MAX: Final = 1000
_LENGTH_MAX: Final = 100


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """A hint at the name that ``name`` probably means; None if none is similar."""
    if len(name) > _LENGTH_MAX:
        return None
    return did_you_mean(name, islice(candidates, _NEAR_MAX))


def shortened(names: Iterable[str], joint: str = ", ") -> str:
    """Names for a message; of many the first."""
    listed = list(islice(names, _SHOWN_MAX + 1))
    more = f"{joint}.." if len(listed) > _SHOWN_MAX else ""
    return f"{joint.join(listed[:_SHOWN_MAX])}{more}"


def refuse_doubles(columns: Sequence[Column], position: Position) -> None:
    """MESH-L210 where two of ``columns`` have one name."""
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise MeshError(
                "MESH-L210",
                f'attribute "{column.name}" is from two inputs',
                hint="Select the attributes one by one, and give one of them another name.",
                position=position,
            )
        seen.add(column.name)


def unknown_attribute(variable: Variable, attributes: Iterable[Attribute], of: str) -> MeshError:
    """MESH-L202."""
    candidates = list(attributes)
    shown = shortened(dict.fromkeys(f"{a.name} {a.type}" for a in candidates))
    return MeshError(
        "MESH-L202",
        f'attribute "{variable.name}" is not defined',
        detail=f"Attributes of {of}: {shown}." if shown else f"There are no attributes of {of}.",
        hint=_as_null(variable.name)
        or nearest(variable.name, [a.name for a in candidates])
        or _as_function(variable.name),
        position=variable.position,
    )


def _as_null(name: str) -> str | None:
    """A hint at the test for null, which is no value of its own."""
    return "Null is not written as a value: test 'a is null'." if name.lower() == "null" else None


def _as_function(name: str) -> str | None:
    """A hint at the parentheses of a function's name."""
    is_function = name in SCALARS or name in AGGREGATORS
    return f"A function has parentheses: {name}()." if is_function else None


def unknown_source(
    variable: Variable, candidates: Sequence[str], hint: str | None = None
) -> MeshError:
    """MESH-L203."""
    return MeshError(
        "MESH-L203",
        f'"{variable.kind}{variable.source}" is not known here',
        detail=f"Known: {shortened(dict.fromkeys(candidates))}." if candidates else None,
        hint=hint or nearest(str(variable.source), candidates),
        position=variable.position,
    )


def ambiguous(variable: Variable, owners: Sequence[str]) -> MeshError:
    """MESH-L204."""
    return MeshError(
        "MESH-L204",
        f'attribute "{variable.name}" is ambiguous',
        detail=f"{shortened(dict.fromkeys(owners), ' and ')} have it.",
        hint=f"Write {owners[0]}.{variable.name}, for instance."
        if len(set(owners)) > 1
        else "Give them other names: S as one join S as other; e1=S -> e2=S.",
        position=variable.position,
    )
