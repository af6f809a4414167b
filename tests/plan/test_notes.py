"""Sources that are not opened because nothing reads their streams."""

from __future__ import annotations

import pytest

from mesh.plan.build import plan
from mesh.plan.notes import unread_sources, warnings_of

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
