"""Unusual texts: read or refused in time linear in their length, never a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mesh.errors import MeshError, MeshErrors, all_errors
from mesh.language.parser import parse_app, parse_expression, parse_on_demand_query
from mesh.plan.bind import bind

if TYPE_CHECKING:
    from collections.abc import Callable

_FILTER = "define stream S (a int); from S["
_FROM = "define stream S (a int); from "
#: A prefix, and the text repeated after it.
_ENDLESS = {
    "brackets": (_FILTER, "("),
    "calls": (_FILTER, "f("),
    "nots": (_FILTER, "not "),
    "minuses": (_FILTER, "- "),
    "operators": (_FILTER, "a + "),
    "ands": (_FILTER, "a and "),
    "tables": (_FILTER + "a", " in T"),
    "everies": (_FROM, "every ("),
    "arrows": (_FROM, "S -> "),
    "commas": (_FROM, "S, "),
    "inner queries": (_FROM, "(from "),
    "joins": (_FROM, "S join "),
    "annotations": ("", "@x("),
    "signs": ("", "@"),
    "keys": ("@x(", "a."),
    "definitions": ("", "define stream S (a int); "),
    "definitions without types": ("", "define stream S (a itn);\n"),
    "partitions": ("define stream S (a int); ", "partition with (a of S) begin "),
    "broken queries": (_FROM + "S; partition with (a of S) begin ", "from S selct a;\n"),
    "single quotes": ("", "'"),
    "double quotes": ("", '"'),
    "triple quotes": ("", '""" '),
    "backquotes": ("", "` "),
    "quotes and lines": ("", "'\n"),
    "braces": ("", "{"),
    "braces and quotes": ("", '{"'),
    "comments": ("", "/*"),
    "slashes": ("", "/"),
    "dashes": ("", "- -- "),
    "digits": (_FILTER, "1"),
    "dots": (_FILTER, "1."),
    "variables": ("", "${"),
    "more variables": ("", "${A} "),
    "nothing": ("", "\x00"),
    "nothing and something": ("", "\x00a"),
    "letters": ("", "a"),
    "semicolons": ("", ";"),
    "lines": ("", "\r"),
}


def refused(parse: Callable[[str], object], text: str) -> tuple[MeshError, ...]:
    """The errors of ``text``; none if it is read."""
    try:
        parse(text)
    except MeshErrors as errors:
        return errors.errors
    return ()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", _ENDLESS)
def test_what_goes_on_without_end_is_refused_or_read(name: str) -> None:
    start, repeated = _ENDLESS[name]
    text = start + repeated * (100_000 // len(repeated))
    errors = refused(parse_app, text)
    assert len(errors) <= 100
    for error in errors:
        assert error.position is not None
        assert len(error.message) < 400


@pytest.mark.parametrize("cut", range(0, 260, 7))
def test_a_text_cut_anywhere_is_read_or_refused(cut: int) -> None:
    text = """@App:name('A') @x(a='b', @y('c')) define stream S (a int, b string); /* c */
    define function f[js] return int { "}" }; partition with (a > 5 as 'x' of S) begin
    from every e1=S[not (a is null)]<2:3> -> not S for 1 min within 5 sec
    select `a`, e1[last-1].b as c, -1.5e3f as d output last every 5 events insert into #T; end"""
    assert len(text) > 260
    assert refused(parse_app, text) == ()
    refused(parse_app, text[:cut])


@pytest.mark.parametrize("text", ["", " ", ";", "\x00", "from", "select", "from T on", "${A}"])
def test_queries_and_expressions_are_refused_as_politely(text: str) -> None:
    for parse in (parse_on_demand_query, parse_expression, parse_app):
        for error in refused(parse, text):
            assert error.position is not None


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["nothing", "letters", "digits", "comments", "lines"])
def test_five_megabytes_are_read_or_refused(name: str) -> None:
    start, repeated = _ENDLESS[name]
    with pytest.raises(MeshErrors):
        parse_app(start + repeated * (5_000_000 // len(repeated)))


# Valid texts that repeat

_S = "define stream S (a int, b bool, s string);\n"
#: A prefix, the text repeated with its number, the separator, and a suffix.
_LONG = {
    "events": (_S + "from ", "e{n}=S[a > e0.a]", " -> ", " select e0.a insert into Out;"),
    "events without names": (_S + "from ", "S", " -> ", " select a insert into Out;"),
    "events that are named": (_S + "from e0=S -> e1=S select ", "e0.a as a{n}", ", ", ";"),
    "outputs": (_S + "from S select ", "a as a{n}", ", ", " insert into Out;"),
    "outputs of no attribute": (_S + "from S select ", "c{n}", ", ", " insert into Out;"),
    "attributes": ("define stream S (", "a{n} int", ", ", "); from S select b insert into Out;"),
    "filters": (_S + "from S", "[a > {n}]", "", " select a insert into Out;"),
    "arguments": (_S + "from S select coalesce(", "a", ", ", ") as x insert into Out;"),
    "queries": (_S, "from S select a insert into O{n};", "\n", ""),
    "queries in a row": (_S, "from S{n} select a insert into S{n}0;", "\n", ""),
    "queries of one name": (_S, "@info(name='q') from S select a insert into O;", "\n", ""),
    "partitions": (
        _S,
        "partition with (a of S) begin from S select a insert into #I; end;",
        "",
        "",
    ),
    "keys": (_S + "partition with (", "a of S", ", ", ") begin from S insert into O; end;"),
    "tables": (_S, "define table T{n} (a int);", "", "from S[a in T1] select a insert into Out;"),
    "definitions that differ": ("", "define stream S (a{n} int);", "\n", ""),
    "indexes": ("", "@Index('a{n}')", " ", " define table T (a int);"),
}


def bound_or_refused(text: str) -> tuple[MeshError, ...]:
    """The errors of ``text``, also of its binding."""
    try:
        bind(parse_app(text))
    except MeshError as error:
        return all_errors(error)
    return ()


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", _LONG)
def test_what_is_long_is_bound_or_refused(name: str) -> None:
    start, repeated, joint, end = _LONG[name]
    text = start + joint.join(repeated.format(n=n) for n in range(5_000)) + end
    errors = bound_or_refused(text)
    assert len(errors) <= 100
    for error in errors:
        assert error.position is not None
        assert len(str(error)) < 400
        assert len(error.detail or "") < 2_000


@pytest.mark.parametrize("opened", ["(", "not (", "coalesce(", "a + (", "b and ("])
def test_what_stands_five_hundred_deep_is_bound(opened: str) -> None:
    inside = "b" if opened in ("not (", "b and (") else "a"
    expression = opened * 500 + inside + ")" * 500
    assert bound_or_refused(f"{_S}from S select {expression} as x insert into Out;") == ()


def test_every_deep_tree_of_a_pattern_is_bound() -> None:
    pattern = "(" * 500 + "e1=S" + ")" * 500 + " -> every (" + "(" * 499 + "e2=S" + ")" * 500
    assert bound_or_refused(f"{_S}from {pattern} select e2.a insert into Out;") == ()
