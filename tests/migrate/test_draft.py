"""Drafts: what is named with its lines."""

from __future__ import annotations

from mesh.migrate import NoteKind, migrate_app


def test_functions_with_other_values_are_named_with_their_lines() -> None:
    text = """@App:name('A')
define stream S (a string);
-- UUID() of a comment
from S select UUID() as id, time:currentTimestamp() as t, str:upper('UUID()') as u
insert into T;
"""
    notes = [note for note in migrate_app(text, "A").notes if note.kind is NoteKind.DIFFERS]
    assert [(note.line, note.text.partition(" ")[0]) for note in notes] == [
        (4, "UUID()"), (4, "time:currentTimestamp()"),
    ]  # fmt: skip
