"""Every tree prints to a text that parses to it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given

from mesh.language.layout import format_app
from mesh.language.parser import parse_app, parse_on_demand_query
from mesh.language.printer import print_app, print_on_demand_query
from tools import siddhiql

if TYPE_CHECKING:
    from mesh.language.syntax import App, OnDemandQuery


@given(siddhiql.apps)
def test_a_printed_tree_parses_to_itself(app: App) -> None:
    assert parse_app(print_app(app)) == app


@given(siddhiql.on_demand_queries)
def test_a_printed_on_demand_query_parses_to_itself(query: OnDemandQuery) -> None:
    assert parse_on_demand_query(print_on_demand_query(query)) == query


@given(siddhiql.apps)
def test_printing_is_settled_after_once(app: App) -> None:
    text = print_app(app)
    assert print_app(parse_app(text)) == text
    assert format_app(text) == text
