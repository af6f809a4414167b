"""All errors and warnings of a text, in the order of their positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mesh import settings
from mesh.connect.references import types_of
from mesh.language.substitution import substitute
from mesh.language_service.document import NOT_RUN_YET, Document
from mesh.plan.connectors import needs_types, with_types
from mesh.plan.diagnostics import place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mesh.errors import MeshError


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of checking a text."""

    #: None when it has none, or can't be parsed.
    app: str | None
    #: Names of its execution groups; empty when it can't be deployed.
    groups: tuple[str, ...]
    errors: tuple[MeshError, ...]
    #: Valid elements that don't run yet.
    warnings: tuple[MeshError, ...]
    #: Parts that run to no effect, a sentence each.
    notes: tuple[str, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether it has no error; parts of it may not run yet."""
        return not self.errors

    def with_warnings_as_errors(self) -> Checked:
        """The same result with warnings as errors."""
        errors = sorted((*self.errors, *self.warnings), key=place_of)
        return replace(self, errors=tuple(errors), warnings=())


def check(text: str, variables: Mapping[str, str], name: str = "") -> Checked:
    """Parse, bind and plan ``text`` after substituting ``variables``.

    ``name``: that of the app, if the text has none.
    """
    document = Document(text, name, lambda source: typed(substitute(source, variables)))
    readable, plan = document.readable, document.plan
    is_parsed = readable is not None and not readable.reading.errors
    return Checked(
        readable.reading.app.name if readable is not None and is_parsed else None,
        tuple(group.name for group in plan.spec.groups) if plan is not None else (),
        tuple(error for error in document.problems if error.code != NOT_RUN_YET),
        tuple(error for error in document.problems if error.code == NOT_RUN_YET),
        document.notes,
    )


def typed(text: str) -> str:
    """A text with the types of its references, if this process has their file.

    Raises:
        MeshError: MESH-C131 for a file that can't be read.
    """
    if not needs_types(text):
        return text
    return with_types(text, types_of(settings.load().receiver.refs_file))
