"""Several errors from one run, and none that only follows from another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from mesh.errors import MeshError, MeshErrors, all_errors

if TYPE_CHECKING:
    from collections.abc import Callable

#: How many errors are told: each takes time to word, and nobody reads hundreds.
ERRORS_MAX: Final = 100

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")


class DependsOnError(Exception):
    """Something rests on what is wrong itself, and has been told; nothing more is to be said."""


class TooManyErrors(Exception):
    """So many errors have been found that nobody reads more of them."""


class Diagnostics:
    """The errors found so far."""

    def __init__(self) -> None:
        self._errors: list[MeshError] = []
        #: How often something could not be made, told or not.
        self.failures = 0

    def attempt(
        self, make: Callable[Arguments, Value], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Value | None:
        """What ``make`` gives for the arguments; None if it fails, which is noted."""
        try:
            return make(*args, **kwargs)
        except DependsOnError:
            self.failures += 1
        except MeshError as error:
            self.add(error)
        return None

    def add(self, error: MeshError) -> None:
        """Note an error.

        Raises:
            Enough: it is the last of those that are told.
        """
        self.failures += 1
        self._errors.extend(all_errors(error))
        if len(self._errors) >= ERRORS_MAX:
            raise TooManyErrors

    def raise_any(self) -> None:
        """Raise what was found, in the order of the text.

        Raises:
            MeshError: the only one, or several as ``MeshErrors``.
        """
        if not self._errors:
            return
        ordered = sorted(self._errors, key=_place)[:ERRORS_MAX]
        raise ordered[0] if len(ordered) == 1 else MeshErrors(ordered)


def _place(error: MeshError) -> tuple[int, int]:
    at = error.position
    return (at.line, at.column) if at is not None else (0, 0)
