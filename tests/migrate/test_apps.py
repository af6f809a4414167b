"""Apps as strangers write them, and what becomes of each: deployable, changed, or refused."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from mesh.errors import MeshError
from mesh.language.naming import named
from mesh.language.substitution import substitute
from mesh.migrate import MigrationState, NoteKind, migrate_app
from mesh.plan.build import plan
from tests.support.paths import ROOT
from tests.support.together import together

CORPUS = ROOT / "tests/cases/migrate/corpus.txt"


@dataclass(frozen=True)
class Case:
    title: str
    expected: str
    message: str
    text: str


def read_corpus() -> list[Case]:
    found = []
    for block in CORPUS.read_text("utf-8").split("\n====\n"):
        first, _, text = block.partition("\n")
        title, expected, *message = first.removeprefix("# ").split(": ", 2)
        found.append(Case(title, expected, message[0] if message else "", text + "\n"))
    return found


CASES = read_corpus()


def refusals(text: str) -> str:
    try:
        plan(named(substitute(text, {}), "app"))
    except MeshError as error:
        # A deploy gives the values of variables.
        return "" if error.message.startswith("variable ") else error.message
    return ""


@together("case", CASES, ids=lambda case: case.title)
def test_an_app_of_the_corpus_has_the_expected_outcome(case: Case) -> None:
    made = migrate_app(case.text, "app")
    shown = "\n".join(error.render(made.text, case.title) for error in made.errors)
    match case.expected:
        case "as is":
            assert made.state is MigrationState.AS_IS, shown
            assert made.text == case.text
            assert not refusals(case.text)
        case "changed":
            assert made.state is MigrationState.CHANGED, shown
            assert refusals(case.text)
            assert not refusals(made.text)
            assert any(note.kind is not NoteKind.DIFFERS for note in made.notes)
        case _:
            assert case.expected == "refused"
            assert made.state is MigrationState.REFUSED
            assert case.message in shown
            assert "hint:" in shown


@together("case", CASES, ids=lambda case: case.title)
def test_nothing_that_is_taken_out_is_lost(case: Case) -> None:
    """Each word of the author's text is in the result, or a note is about its line."""
    made = migrate_app(case.text, "app")
    told = {note.line for note in made.notes}
    for number, line in enumerate(case.text.splitlines(), 1):
        words = Counter(re.findall(r"[\w.]+", line)) - Counter(re.findall(r"[\w.]+", made.text))
        assert not words or number in told, (number, words)
    again = migrate_app(made.text, "app")
    assert again.text == made.text


def test_most_of_the_corpus_is_deployable() -> None:
    counts = Counter(case.expected for case in CASES)
    assert len(CASES) >= 60
    assert counts["refused"] <= len(CASES) / 10


def test_options_that_nothing_has_are_left_out_with_their_commas() -> None:
    text = """@App:name('A')
@source(type='tcp', first.x='1', context='C', queue.x='2', last.x='3', @map(type='json'))
define stream S (k string);
@sink(type='log', prefix='p', other.x='*/')
define stream T (k string);
from S select k insert into T;
"""
    made = migrate_app(text, "app")
    assert made.state is MigrationState.CHANGED, made.errors
    assert "type='tcp', /* first.x='1', */ context='C', /* queue.x='2', last.x='3', */" in made.text
    assert "prefix='p'/* , other.x='* /' */)" in made.text
    absent = [one.text for one in made.notes if one.kind is NoteKind.ABSENT]
    assert 'option "queue.x" of source "tcp": it has none like it' in absent
    assert len(absent) == 4
