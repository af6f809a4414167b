"""All errors and warnings of a text, in the order of their positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mesh.client.references import typed
from mesh.errors import MeshError, all_errors
from mesh.language.naming import named
from mesh.language.substitution import substitute
from mesh.plan.bind import bind, parse_bindable
from mesh.plan.build import plan
from mesh.plan.diagnostics import place_of
from mesh.plan.notes import noted_options, unread_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Code of valid SiddhiQL that this version does not run.
NOT_RUN_YET: Final = "MESH-P900"
#: Codes that planning raises before it binds names and types.
_OF_THE_NAME: Final = frozenset(("MESH-P101", "MESH-P102"))


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
        found = sorted((*self.errors, *self.warnings), key=place_of)
        return replace(self, errors=tuple(found), warnings=())


def check(text: str, variables: Mapping[str, str], name: str = "") -> Checked:
    """Parse, bind and plan ``text`` after substituting ``variables``.

    ``name``: that of the app, if the text has none.
    """
    try:
        written = named(typed(substitute(text, variables)), name)
        app = parse_bindable(written)
    except MeshError as error:
        return _checked(None, all_errors(error))
    try:
        spec = plan(written).spec
    except MeshError as error:
        found = list(all_errors(error))
    else:
        groups = tuple(group.name for group in spec.groups)
        return Checked(spec.name, groups, (), (), (*unread_sources(spec), *noted_options(spec)))
    if any(error.code in _OF_THE_NAME for error in found):
        try:
            bind(app)
        except MeshError as error:
            found += all_errors(error)
    return _checked(app.name, found)


def _checked(app: str | None, found: Iterable[MeshError]) -> Checked:
    in_order = sorted(found, key=place_of)
    return Checked(
        app,
        (),
        tuple(error for error in in_order if error.code != NOT_RUN_YET),
        tuple(error for error in in_order if error.code == NOT_RUN_YET),
    )
