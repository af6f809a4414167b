"""SiddhiQL read and printed: cases in files, and properties over all trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.errors import MeshError, MeshErrors
from mesh.language.parser import parse_app, parse_expression, parse_on_demand_query
from mesh.language.print_expressions import print_expression
from mesh.language.printer import print_app
from tests.support import case_files, paths

CASES = sorted((paths.CASES / "language").glob("*.txt"))


def printed(text: str) -> str:
    """The text as the printer writes it, or the error as a person sees it."""
    try:
        app = parse_app(text)
    except MeshErrors as errors:
        return "\n".join(error.render(text) for error in errors.errors)
    again = print_app(app)
    assert parse_app(again) == app
    return again


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_files(path: Path, rewrite: bool) -> None:
    case_files.check(path, printed, rewrite=rewrite)


def test_the_example_survives_being_printed() -> None:
    app = parse_app(paths.EXAMPLE.read_text())
    assert app.name == "Temperature"
    assert [query.name for query in app.queries] == ["query-1", "query-2", "query-3"]
    assert parse_app(print_app(app)) == app


def test_the_place_of_a_mistake_is_where_it_stands() -> None:
    with pytest.raises(MeshError) as error:
        parse_app("define stream S (a int);\nfrom S selct a insert into T;")
    assert error.value.position is not None
    assert (error.value.position.line, error.value.position.column) == (2, 8)
    assert error.value.position.length == 5
    assert error.value.hint == "Did you mean 'select'?"


def test_a_query_in_the_order_of_sql_is_told_how_it_begins() -> None:
    with pytest.raises(MeshError) as error:
        parse_on_demand_query("select * from Customers")
    assert error.value.hint == "A query starts with 'from': from T select a."


def test_a_mistake_is_told_before_a_later_unreadable_character() -> None:
    with pytest.raises(MeshError) as error:
        parse_app("define stream S (a int) from S ~")
    assert error.value.code == "MESH-L104"


@pytest.mark.parametrize("operator", ["+", "and", "=="])
def test_an_endless_expression_is_refused_and_not_a_crash(operator: str) -> None:
    condition = f" {operator} ".join(["a"] * 5000)
    with pytest.raises(MeshError) as error:
        parse_app(f"define stream S (a int); from S[{condition}] select a insert into T;")
    assert error.value.code == "MESH-L105"


NESTED = [("(", ")"), ("not ", ""), ("-(", ")"), ("f(", ")"), ("a in T == (", ")")]


@pytest.mark.parametrize(("opening", "closing"), NESTED)
def test_an_expression_nested_five_hundred_deep_is_read_and_printed(
    opening: str, closing: str
) -> None:
    expression = parse_expression(f"{opening * 500}a{closing * 500}")
    text = print_expression(expression)
    assert print_expression(parse_expression(text)) == text


@pytest.mark.parametrize(("opening", "closing"), NESTED[1:])
def test_a_deeper_expression_is_refused_and_not_a_crash(opening: str, closing: str) -> None:
    with pytest.raises(MeshError) as error:
        parse_expression(f"{opening * 5000}a{closing * 5000}")
    assert error.value.code == "MESH-L105"


@pytest.mark.parametrize("opening", ["(", "not ", "-(", "f(", "every (", "(from ", "(every ("])
def test_brackets_without_end_are_refused_and_not_a_crash(opening: str) -> None:
    with pytest.raises(MeshError):
        parse_app(f"define stream S (a int); from {opening * 5000} S select a insert into T;")


def test_brackets_of_a_pattern_leave_no_trace_however_many() -> None:
    plain = parse_app(
        "define stream S (a int); from S -> every (S -> S) select 1 as x insert into T"
    )
    deep = "(" * 500 + "S -> every " + "(" * 500 + "S -> S" + ")" * 1000
    assert parse_app(f"define stream S (a int); from {deep} select 1 as x insert into T") == plain


@pytest.mark.parametrize(
    ("opening", "inside", "closing"),
    [("@x(", "'a'", ")"), ("@x(@y('a'), ", "@z", ")")],
)
def test_annotations_nest_a_hundred_deep_and_no_further(
    opening: str, inside: str, closing: str
) -> None:
    def text(depth: int) -> str:
        return f"{opening * depth}{inside}{closing * depth} define stream S (a int);"

    app = parse_app(text(99))
    assert parse_app(print_app(app)) == app
    with pytest.raises(MeshError) as error:
        parse_app(text(500))
    assert error.value.code == "MESH-L105"
