"""Warnings about parts of an app that run to no effect, or to another one."""

from __future__ import annotations

import pytest

from mesh.language.parser import parse_app
from mesh.language_service import annotations as declared
from mesh.plan import notes
from mesh.plan.bind import bind
from mesh.plan.build import plan
from mesh.plan.notes import misspelt_annotations, noted_options, unread_sources, warnings_of

HTTP = "@source(type='http', @map(type='json')) define stream {} (a int);"
NATS = "@source(type='nats', stream='o', @map(type='json')) define stream {} (a int);"
REST = "define stream X (a int); define stream Y (a int); from X select a insert into Y;"


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        (HTTP.format("S") + REST, ["source http of stream \"S\""]),
        (NATS.format("S") + REST, ["source nats of stream \"S\""]),
        (HTTP.format("S") + NATS.format("N") + "from S select a insert into T;",
         ["source nats of stream \"N\""]),
        (HTTP.format("S") + "from S select a insert into T;", []),
        (NATS.format("S") + "from S select a insert into T;", []),
        ("@sink(type='log')" + HTTP.format("S") + REST, []),
        (HTTP.format("S") + "define table K (a int); from S insert into K;", []),
    ],
)  # fmt: skip
def test_they_are_named(text: str, unread: list[str]) -> None:
    planned = plan(f"@App:name('A') {text}")
    found = unread_sources(planned.bound, planned.spec)
    assert [one.partition(" is not opened")[0] for one in found] == unread


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "is copied"),
        (", kept='false'", "is read in its database: rows that other programs write are seen"),
        (", @cache(size='5')", "is read in its database, and some rows stay at hand"),
    ],
)
def test_a_deploy_says_where_the_rows_of_a_table_are(options: str, said: str) -> None:
    text = (
        f"@App:name('A') @store(type='rdbms', jdbc.url='jdbc:sqlite:/t.db'{options}) "
        "@PrimaryKey('k') define table T (k string); define stream S (k string); "
        "from S select k insert into T;"
    )
    (warning,) = warnings_of(plan(text).spec)
    assert f'table "T" {said}' in warning


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("@sorce(type='inMemory') define stream S (a int);",
         '@sorce of stream "S" has no effect: did you mean @source?'),
        ("@App:nam('A') define stream S (a int);",
         "@App:nam of the app has no effect: did you mean @App:name?"),
        ("define stream S (a int); @primarykeys('a') define table T (a int);",
         '@primarykeys of table "T" has no effect: did you mean @PrimaryKey?'),
        ("define stream S (a int); @inf(name='q') from S select a insert into O;",
         '@inf of query "query-1" has no effect: did you mean @info?'),
        ("""define stream S (a int); @purg(enable='true') partition with (a of S) begin
         from S select a insert into O; end;""",
         "@purg of a partition has no effect: did you mean @purge?"),
    ],
)  # fmt: skip
def test_an_annotation_that_is_probably_misspelt_is_told(text: str, note: str) -> None:
    assert misspelt_annotations(bind(parse_app(text))) == (note,)


def test_annotations_of_others_and_those_with_a_meaning_are_not() -> None:
    text = """@App:name('A') @app:Statistics(reporter='console') @App:description('d') @owner('ann')
    @Async(buffer.size='64') @Config(x='y') @sink(type='log') define stream S (a int);
    @INFO(name='q') @dist(execGroup='g') from S select a insert into O;"""
    assert misspelt_annotations(bind(parse_app(text))) == ()


def test_the_names_are_those_that_editors_complete() -> None:
    names = {
        declared.APP: notes.APP, declared.STREAM: notes.STREAM,
        declared.TABLE: notes.TABLE, declared.AGGREGATION: notes.AGGREGATION,
        declared.QUERY: notes.QUERY, declared.PARTITION: notes.PARTITION,
    }  # fmt: skip
    for place, known in names.items():
        assert {kind.name for kind in declared.kinds_at(place)} <= set(known)


def test_an_attribute_in_single_braces_is_told() -> None:
    text = """@sink(type='nats', destination='orders.{a}.{b}') define stream S (a string);
    define stream T (a string); from T select a insert into S;"""
    (note,) = noted_options(bind(parse_app(text)))
    assert note == (
        'destination of sink nats of stream "S": {a} stays as it is: write {{a}} for the attribute'
    )
