"""Texts that are edited: statements are reused, and all results are those of a whole analysis."""

from __future__ import annotations

import gc
import re
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mesh.errors import MeshError, Position, all_errors
from mesh.language import chunks, layout, parser
from mesh.language.chunks import tokenize_chunks
from mesh.language.layout import canonical
from mesh.language.memo import memoized
from mesh.language.naming import named
from mesh.language.parser import read_app
from mesh.language.printer import print_app
from mesh.language.substitution import substitute
from mesh.language.tokens import tokenize
from mesh.language_service import document
from mesh.language_service.document import Document
from mesh.language_service.outline import lenses, outline
from mesh.plan.bind import bind_readable
from mesh.plan.build import plan
from mesh.plan.diagnostics import place_of
from tests.support.edited_examples import names_in
from tools import siddhiql

if TYPE_CHECKING:
    from mesh.language.syntax import Query
    from mesh.language_service.symbols import Symbol

_TEXT = """\
-- Rooms that are warm
@App:description('x')
@source(type='inMemory', topic='t', @map(type='json'))
define stream Temp (room string, temp ${TYPE:double}, when long);
define stream Door (room string, isOpen bool); -- doors
define table Rooms (room string, name string);
define function twice[javascript] return double { return data[0] * 2; };
@info(name='warm') from Temp[temp > ${LIMIT} and not (room == 'none')]#window.time(1 min)
select room, avg(temp) as average group by room having average > 3.0 insert into Warm;
/* unnamed */ from Warm select room, twice(average) as double_average insert into Twice;
partition with (room of Temp) begin
  from Temp select room, temp insert into #Inner; -- inside
  from #Inner[temp > 1.5] select room, temp insert into Divided;
end;
from every e1=Temp -> e2=Door[room == e1.room] within 5 min
select e1.room as room, e2.isOpen insert into Opened;
from Temp join Rooms on Temp.room == Rooms.room select Temp.room, name insert into Named;
from Twice[Rooms.room == room in Rooms] select * insert into Last
"""
_PIECES = st.sampled_from(
    ["s", "S", "1", ";", "\n", "\r\n", " ", ",", "(", ")", "'", '"', "`", "{", "}", "/*", "*/",
     "--", "@", "#", ".", "->", "-", "é", "${LIMIT}", "${NONE}", "${TYPE:int}", " not ", " end ",
     " begin ", "define stream Door (room int);",
     "from Temp select * insert into Again;\n", "partition with (room of Door) begin ",
     "@App:name('other')\n", "\n-- own\n"]
)  # fmt: skip
_EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from([0, 0, 0, 1, 1, 8, 60]), _PIECES | st.just("")),
    min_size=1,
    max_size=4,
)


def test_the_text_is_valid() -> None:
    assert _results(_TEXT)[0] == []


def _edited(text: str, edits: list[tuple[float, int, str]]) -> list[str]:
    """The text, with one edit after another, and again as it was."""
    versions = [text]
    for place, removed, piece in edits:
        before = versions[-1]
        at = round(place * len(before))
        versions.append(before[:at] + piece + before[at + removed :])
    return [*versions, text]


def _results(text: str) -> list[Any]:
    """All that editors and commands show of a text."""
    document = Document(text, "edited", lambda t: substitute(t, {"LIMIT": "\n40.5"}))
    names = [(_symbol(document, o.symbol), o.position, o.is_definition) for o in names_in(document)]
    types = {
        document.in_text(Position(line, column)): kind
        for (line, column), kind in document.types.items()
    }
    return [
        [error.to_dict() for error in document.problems],
        document.notes,
        types,
        names,
        _tokens(document),
        lenses(document),
        outline(document),
        document.plan.spec if document.plan is not None else None,
        _formatted(text),
    ]


def _symbol(document: Document, symbol: Symbol) -> tuple[str, str, str]:
    """A symbol with the lines of the text in its owner."""

    def in_text(place: re.Match[str]) -> str:
        at = document.in_text(Position(int(place[1]), int(place[2])))
        return f"{at.line}:{at.column}"

    return symbol.kind, symbol.name, re.sub(r"(\d+):(\d+)", in_text, symbol.owner)


def _tokens(document: Document) -> list[tuple[str, Position, int | None]]:
    """The tokens that were read, with their places and the indexes that these have."""
    if document.readable is None:
        return []
    cursor = document.readable.reading.cursor
    places = [(one.text, cursor.place(one)) for one in cursor.tokens]
    return [
        (text, document.in_text(at), document.token_index((at.line, at.column)))
        for text, at in places
    ]


def _formatted(text: str) -> Any:
    """The formatted text, which is the same with stable lines, or its errors."""
    formatted = Document(text).formatted
    try:
        assert canonical(text) == formatted
        return formatted
    except MeshError as error:
        return [one.to_dict() for one in all_errors(error)]


def _forget() -> None:
    parser._slot.cache_clear()
    chunks._cut.cache_clear()
    document._number.cache_clear()
    layout._slot.cache_clear()


def _assert_reuse_changes_nothing(versions: list[str]) -> None:
    _forget()
    reused = [_results(version) for version in versions]
    for version, result in zip(versions, reused, strict=True):
        _forget()
        assert result == _results(version)


@pytest.mark.slow
@given(_EDITS)
def test_an_edited_text_has_the_results_of_a_whole_analysis(
    edits: list[tuple[float, int, str]],
) -> None:
    _assert_reuse_changes_nothing(_edited(_TEXT, edits))


@given(siddhiql.apps.map(print_app), _EDITS)
def test_errors_are_those_of_a_text_that_is_read_once(
    text: str, edits: list[tuple[float, int, str]]
) -> None:
    for version in _edited(text, edits):
        cut = tokenize(version)
        pieces = tokenize_chunks(version)
        assert (pieces.tokens, pieces.comments) == (cut.tokens, cut.comments)
        document = Document(version, "edited")
        assert [one.to_dict() for one in document.problems] == _read_once(version)


def _read_once(text: str) -> list[dict[str, Any]]:
    """The errors of a text that is bound and planned without stable lines."""
    _forget()
    filled = named(text, "edited")
    errors = bind_readable(filled).errors
    try:
        if not errors:
            plan(filled)
    except MeshError as error:
        errors = all_errors(error)
    return [one.to_dict() for one in sorted(errors, key=place_of)]


@pytest.mark.slow
@given(siddhiql.apps.map(print_app), _EDITS)
def test_so_has_any_other_text(text: str, edits: list[tuple[float, int, str]]) -> None:
    _assert_reuse_changes_nothing(_edited(text, edits))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Another type of an attribute, further up.
        ("when long", "when int"), ("temp) as average", "room) as average"),
        # A function of the app, a table, a stream that a query reads and that none creates now.
        ("return double", "return string"), ("define table Rooms", "define table Room"),
        ("insert into Warm", "insert into Cool"), ("insert into #Inner", "insert into #Other"),
        # The text of a statement and its place stay, and not what precedes it.
        ("define function twice", "define function { once"), ("Temp (room", "Temp (r${X}om"),
        ("-- Rooms that are warm", "/* Rooms that are warm"), ("-- Rooms that are warm", ""),
        ("from Warm select", "define stream Late (a int); from Warm select"),
    ],
)  # fmt: skip
def test_an_edit_reaches_other_statements(before: str, after: str) -> None:
    assert before in _TEXT
    _assert_reuse_changes_nothing([_TEXT, _TEXT.replace(before, after, 1), _TEXT])


def test_a_new_line_costs_no_statement() -> None:
    text = _TEXT.replace("${LIMIT}", "4").replace("${TYPE:double}", "double").rstrip() + ";"
    first = Document(text, "kept")
    first.analyse()
    moved = Document(f"-- a\n-- b\n\n{text}", "kept")
    moved.analyse()
    assert first.readable is not None
    assert moved.readable is not None
    trees = first.readable.reading.app.elements, moved.readable.reading.app.elements
    kept = [one is other for one, other in zip(*trees, strict=True)]
    # A partition is read again, and not its queries; a comment is part of the first statement.
    assert kept.count(False) == 2
    lines = [part.position.line for part in outline(first)]
    assert [line + 3 for line in lines] == [part.position.line for part in outline(moved)]
    for one, other in zip(names_in(first), names_in(moved), strict=True):
        assert replace(one.position, line=one.position.line + 3) == other.position


def test_the_line_that_an_error_names_moves_as_well() -> None:
    text = "define stream S (a int);\ndefine stream S (a long);\nfrom S select a insert into T;"
    for count in range(3):
        (problem,) = Document("\n" * count + text, "moved").problems
        assert problem.detail == f"First it is defined in line {count + 1}."
        assert problem.position == Position(count + 2, 15)
        assert problem.related == Position(count + 1, 15)


def test_an_unchanged_statement_keeps_its_tree_and_what_it_is_bound_to() -> None:
    text = _TEXT.replace("${LIMIT}", "4").replace("${TYPE:double}", "double")
    # A statement without an end may go on, so the last one needs it.
    first = Document(f"{text.rstrip()};", "kept")
    second = Document(first.text.replace("as double_average", "as doubled"), "kept")
    for one in (first, second):
        assert not one.problems
    assert first.readable is not None
    assert second.readable is not None
    for trees in zip(first.readable.reading.app.queries, second.readable.reading.app.queries,
                     strict=True):  # fmt: skip
        is_edited = first.in_text(trees[0].position).line == 10
        assert (trees[0] is trees[1]) is not is_edited
    assert first.plan is not None
    assert second.plan is not None
    assert first.plan.bound.queries[0] is second.plan.bound.queries[0]


def test_a_statement_has_a_place_of_its_own_where_no_variable_is_in_it() -> None:
    text = "${A:x} ab; cd ${A}; ef\n  gh; ${A:y} ij"
    filled = substitute(named(text, "N"), {"A": "a longer value"})
    again = substitute(filled, {})
    for cut in (filled, again):
        origins = {
            part: cut.places.origin(cut.index(part), cut.index(part) + len(part))
            for part in ("ab", "cd", "cd a", "ef\n  gh", "ij", "value ij", "longer")
        }
        assert origins == {
            "ab": (1, 8), "cd": (1, 12), "cd a": None, "ef\n  gh": (1, 21), "ij": (2, 14),
            "value ij": None, "longer": None,
        }  # fmt: skip


def test_no_more_is_kept_than_some_statements_of_some_length() -> None:
    _forget()
    query = "define stream S (a int);\n" + "from S select a insert into T;\n" * 1_500
    read_app(query)
    assert parser._slot.cache_info().currsize == parser.STATEMENTS_MAX
    _forget()
    long = f"define stream S (a int); from S[a == {'1 + ' * 2_000}1] select a insert into T;"
    read_app(long)
    assert parser._slot.cache_info().currsize == 1


@pytest.mark.slow
def test_what_is_known_of_a_tree_goes_with_it() -> None:
    text = named("define stream S (a int); from S select a insert into T;")
    (query,) = read_app(text).app.queries
    calls: list[Position] = []

    @memoized
    def note(part: Query) -> None:
        calls.append(part.position)

    note(query)
    note(query)
    assert len(calls) == 1
    plan(text)
    tree = weakref.ref(query)
    _forget()
    del query
    gc.collect()
    assert tree() is None
