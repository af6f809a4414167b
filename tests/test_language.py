"""SiddhiQL read and printed: cases in files, and properties over all trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.errors import MeshError
from mesh.language.parser import parse
from mesh.language.printer import print_app
from mesh.language.tokens import TokenKind, tokenize
from tests import case_files

CASES = sorted((Path(__file__).parent / "cases" / "language").glob("*.txt"))
EXAMPLE = Path(__file__).parent.parent / "examples" / "temperature.siddhi"


def printed(text: str) -> str:
    """The text as the printer writes it, or the error as a person sees it."""
    try:
        app = parse(text)
    except MeshError as error:
        return error.render(text)
    again = print_app(app)
    assert parse(again) == app
    return again


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_files(path: Path, rewrite: bool) -> None:
    case_files.check(path, printed, rewrite=rewrite)


def test_the_example_survives_being_printed() -> None:
    app = parse(EXAMPLE.read_text())
    assert app.name == "Temperature"
    assert [query.name for query in app.queries] == ["query-1", "query-2", "query-3"]
    assert parse(print_app(app)) == app


def test_positions_count_lines_and_columns_from_one() -> None:
    tokens = tokenize("a\r\n  bb -- c\n/* x\ny */ 'd'")
    places = [(t.text, t.position.line, t.position.column, t.position.length) for t in tokens]
    assert places[:3] == [("a", 1, 1, 1), ("bb", 2, 3, 2), ("'d'", 4, 6, 3)]
    assert tokens[-1].kind is TokenKind.END


def test_the_place_of_a_mistake_is_where_it_stands() -> None:
    with pytest.raises(MeshError) as error:
        parse("define stream S (a int);\nfrom S selct a insert into T;")
    assert error.value.position is not None
    assert (error.value.position.line, error.value.position.column) == (2, 8)
    assert error.value.position.length == 5
    assert error.value.hint == "Did you mean 'select'?"


def test_a_mistake_is_told_before_a_later_unreadable_character() -> None:
    with pytest.raises(MeshError) as error:
        parse("define stream S (a int) from S ~")
    assert error.value.code == "MESH-L104"


@pytest.mark.parametrize("operator", ["+", "and", "=="])
def test_an_endless_expression_is_refused_and_not_a_crash(operator: str) -> None:
    condition = f" {operator} ".join(["a"] * 5000)
    with pytest.raises(MeshError) as error:
        parse(f"define stream S (a int); from S[{condition}] select a insert into T;")
    assert error.value.code == "MESH-L105"


@pytest.mark.parametrize("opening", ["(", "not ", "-(", "f("])
def test_a_deep_expression_is_refused_and_not_a_crash(opening: str) -> None:
    with pytest.raises(MeshError) as error:
        parse(f"define stream S (a int); from S[{opening * 5000}a] select a insert into T;")
    assert error.value.code == "MESH-L105"


@pytest.mark.parametrize("opening", ["(", "every ("])
def test_a_deep_pattern_is_refused_and_not_a_crash(opening: str) -> None:
    with pytest.raises(MeshError):
        parse(f"define stream S (a int); from {opening * 5000} S -> S select a insert into T;")
