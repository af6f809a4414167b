"""Texts that are edited: statements are reused, and all results are those of a whole analysis."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mesh.errors import MeshError, all_errors
from mesh.language import layout, statements
from mesh.language.formatting import canonical
from mesh.language.memo import memoized
from mesh.language.naming import named
from mesh.language.parser import read_app
from mesh.language.printer import print_app
from mesh.language.substitution import substitute
from mesh.language_service.document import Document
from mesh.language_service.outline import lenses, outline
from mesh.plan.build import plan
from tools import siddhiql

if TYPE_CHECKING:
    from mesh.errors import Position
    from mesh.language.syntax import Query

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
    symbols = [(o.symbol, o.position, o.is_definition) for o in document.symbols.occurrences]
    return [
        [error.to_dict() for error in document.problems],
        document.notes,
        document.types,
        symbols,
        document.tokens,
        lenses(document),
        outline(document),
        document.plan.spec if document.plan is not None else None,
        _formatted(text),
    ]


def _formatted(text: str) -> Any:
    try:
        return canonical(text)
    except MeshError as error:
        return [one.to_dict() for one in all_errors(error)]


def _forget() -> None:
    statements._slot.cache_clear()
    layout._slot.cache_clear()


def _assert_reuse_changes_nothing(versions: list[str]) -> None:
    _forget()
    reused = [_results(version) for version in versions]
    for version, result in zip(versions, reused, strict=True):
        _forget()
        assert result == _results(version)


@given(_EDITS)
def test_an_edited_text_has_the_results_of_a_whole_analysis(
    edits: list[tuple[float, int, str]],
) -> None:
    _assert_reuse_changes_nothing(_edited(_TEXT, edits))


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
        is_edited = trees[0].position.line == 10
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
    assert statements._slot.cache_info().currsize == statements.STATEMENTS_MAX
    _forget()
    long = f"define stream S (a int); from S[a == {'1 + ' * 2_000}1] select a insert into T;"
    read_app(long)
    assert statements._slot.cache_info().currsize == 1


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
