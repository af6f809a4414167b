"""Targets of a fuzzer: any text may be refused, and none may crash."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from mesh.errors import MeshError, MeshErrors, all_errors
from mesh.language.layout import format_app
from mesh.language.parser import parse_app, parse_on_demand_query
from mesh.language.printer import print_app, print_on_demand_query
from mesh.language.substitution import substitute
from mesh.plan.bind import bind, bind_on_demand
from mesh.plan.supported import check_supported

if TYPE_CHECKING:
    from mesh.language.syntax import App

#: The app that on-demand queries are bound to.
_APP: Final = bind(
    parse_app(
        """define stream S (a int, b string); define table T (a int, b string);
        define window W (a int) length(5);
        define aggregation A from S select b, sum(a) as total group by b aggregate every sec...year;
        """
    )
)


def read(text: str) -> None:
    """Read ``text`` as an app and as an on-demand query, and hold both to their promises."""
    try:
        app = parse_app(text)
    except MeshErrors as refused:
        _check(refused, text)
    else:
        assert parse_app(print_app(app)) == app
        formatted = format_app(text)
        assert parse_app(formatted) == app
        assert format_app(formatted) == formatted
        _bind(app, text)
    try:
        query = parse_on_demand_query(text)
    except MeshErrors:
        pass
    else:
        assert parse_on_demand_query(print_on_demand_query(query)) == query
        try:
            bind_on_demand(query, _APP)
        except MeshError as refused:
            _check(refused, text)
    with contextlib.suppress(MeshErrors):
        parse_app(substitute(text, {"A": "a", "B": "'"}))


def _bind(app: App, text: str) -> None:
    """Bind a parsed app; a typed one may still be unable to run."""
    try:
        bound = bind(app)
        check_supported(bound)
    except MeshError as refused:
        _check(refused, text)


def _check(refused: MeshError, text: str) -> None:
    """Check that every error has a position, and can be shown."""
    for error in all_errors(refused):
        assert error.position is not None
        assert 1 <= error.position.line <= len(text) + 1
        assert error.position.column >= 1
        assert error.code in error.render(text)
