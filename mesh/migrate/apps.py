"""Migration of an app: its edits in order, and the plan of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, all_errors
from mesh.language.naming import named
from mesh.language.siddhi3 import signs
from mesh.language.substitution import VARIABLE, substitute
from mesh.migrate.annotations import rewrite_annotations
from mesh.migrate.calls import note_calls
from mesh.migrate.draft import Draft, Migrated, MigrationState, Note, NoteKind
from mesh.migrate.order import move_definitions
from mesh.migrate.siddhi3 import rewrite_siddhi3
from mesh.model import names
from mesh.plan.build import plan
from mesh.plan.typed_references import with_types

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Values of variables that have none, for the plan alone: most are addresses, or numbers.
_VALUES: Final = ("1", "http://localhost:1024/x")


def migrate_app(text: str, name: str, types: Mapping[str, str] | None = None) -> Migrated:
    """An app in the present language, as it can be deployed, with notes about each difference.

    Args:
        text: an app of Siddhi 3, 4 or 5.
        name: of the app, if the text has none: that of its file.
        types: types of references, by name.

    Returns:
        The text, with the author's layout and comments; errors if it still can't be deployed.
    """
    version = "3" if next(signs(text), None) is not None else "4, 5"
    original, notes = text, []
    app_name = _declared_name(text) or name
    subject = names.subject(names.app_token(app_name), "{}")
    if version == "3":
        draft = Draft(text)
        rewrite_siddhi3(draft, subject)
        text, notes = draft.result, draft.notes
    draft = Draft(text)
    rewrite_annotations(draft, subject)
    note_calls(draft)
    text, notes = draft.result, [*notes, *draft.notes]
    draft = Draft(text)
    move_definitions(draft)
    text, notes = draft.result, [*notes, *draft.notes]
    if not _declared_name(text):
        notes.append(Note(NoteKind.DIFFERS, 0, f'the app has no name, and is called "{name}"'))
    errors, missing = _planned(with_types(text, types or {}), app_name)
    if missing:
        listed = ", ".join(missing)
        notes.append(
            Note(NoteKind.DIFFERS, 0, f"values of {listed} are given at the deploy: --var")
        )
    state = MigrationState.AS_IS if text == original else MigrationState.CHANGED
    return Migrated(
        app_name,
        version,
        text,
        MigrationState.REFUSED if errors else state,
        tuple(sorted(notes, key=lambda one: (one.line, one.kind))),
        errors,
    )


def _planned(text: str, name: str) -> tuple[tuple[MeshError, ...], list[str]]:
    """Errors of an app's plan, and its variables without a value."""
    missing = list(dict.fromkeys(m[1] for m in VARIABLE.finditer(text) if m[2] is None))
    first: tuple[MeshError, ...] = ()
    for value in _VALUES if missing else ("",):
        try:
            plan(named(substitute(text, dict.fromkeys(missing, value)), name))
        except MeshError as error:
            first = first or all_errors(error)
        else:
            return (), missing
    return first, missing


def _declared_name(text: str) -> str:
    """The name that a text of any version has; empty without one."""
    for annotation in Draft(text).annotations():
        if annotation.name.lower() in ("app:name", "plan:name") and annotation.elements:
            return annotation.elements[0].text
    return ""
