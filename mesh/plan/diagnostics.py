"""Several errors from one run, and none that only follows from another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from mesh.errors import MeshError, MeshErrors, all_errors

if TYPE_CHECKING:
    from collections.abc import Callable

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
