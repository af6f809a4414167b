"""What a fuzzer throws texts at: everything may be refused, and nothing may crash."""

from __future__ import annotations

import contextlib

from mesh.errors import MeshErrors
from mesh.language.layout import format_app
from mesh.language.parser import parse_app, parse_on_demand_query
from mesh.language.printer import print_app, print_on_demand_query
from mesh.language.substitution import substitute


def read(text: str) -> None:
    """Read ``text`` as an app and as an on-demand query, and hold both to their promises."""
    try:
        app = parse_app(text)
    except MeshErrors as refused:
        for error in refused.errors:
            assert error.position is not None
            assert 1 <= error.position.line <= len(text) + 1
            assert error.position.column >= 1
            assert error.code in error.render(text)
    else:
        assert parse_app(print_app(app)) == app
        formatted = format_app(text)
        assert parse_app(formatted) == app
        assert format_app(formatted) == formatted
    try:
        query = parse_on_demand_query(text)
    except MeshErrors:
        pass
    else:
        assert parse_on_demand_query(print_on_demand_query(query)) == query
    with contextlib.suppress(MeshErrors):
        parse_app(substitute(text, {"A": "a", "B": "'"}))
