"""Comparison of two plans: restarts with reasons, and kept states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mesh.errors import MeshError
from mesh.plan.build import plan
from mesh.plan.changes import GroupFate, changes_between, merge_specs
from mesh.plan.edits import obstacles
from mesh.plan.explain import changes_to_values, explain_changes
from mesh.plan.states import StateFate
from tests.support import case_files, paths

CASES = paths.CASES / "changes"
OLD = """
@App:name('A') define stream S (a int);
@dist(execGroup='g') from S#window.length(2) select a, count() as n insert into T;
@dist(execGroup='h') from S#window.length(3) select a, count() as n insert into U;
"""
NEW = OLD.replace(
    "define stream S (a int);", "define stream S (a int); from S select a insert into V;"
)


def changed(text: str) -> str:
    """The changes when the app before ``=>`` is replaced by the one after it."""
    whole = text.startswith("app\n")
    old, new = text.removeprefix("app\n").split("\n=>\n")
    try:
        before, after = (plan(one if whole else f"@App:name('A') {one}").spec for one in (old, new))
        found = changes_between(before, after)
    except MeshError as error:
        return error.render()
    assert changes_between(before, before).is_same
    assert json.loads(json.dumps(changes_to_values(found)))["same"] == found.is_same
    together = merge_specs(before, after)
    assert changes_between(together, after).is_same
    for group in together.groups:
        assert found.fate(group.name) is not GroupFate.SAME or group == before.group(group.name)
    return explain_changes(found, tuple(obstacles(before, after, found)))


@pytest.mark.parametrize("path", sorted(CASES.glob("*.txt")), ids=lambda path: path.stem)
def test_case_files(path: Path, rewrite: bool) -> None:
    case_files.check(path, changed, rewrite=rewrite)


def test_a_group_that_goes_on_keeps_the_names_of_its_queries() -> None:
    old, new = plan(OLD).spec, plan(NEW).spec
    assert "query-3" in new.groups[-1].text
    assert "query-2" in merge_specs(old, new).groups[-1].text
    assert changes_between(old, new).fate("h") is GroupFate.SAME


TABLE = """@App:name('A') define stream S (k string);
@store(type='rdbms', jdbc.url='jdbc:sqlite:/var/lib/t.db'OPTIONS) @PrimaryKey('k')
define table T (k string, v int);
from S join T on T.k == S.k select S.k as k, T.v as v insert into O;
"""


@pytest.mark.parametrize(
    ("before", "after", "is_free"),
    [
        ("", ", kept='false'", True),
        (", kept='false'", "", True),
        ("", ", @cache(size='10')", True),
        ("", ", kept='false', on.error='STORE'", True),
        ("", ", table.name='Other'", False),
    ],
)
def test_a_table_changes_between_copy_and_database_without_loss(
    before: str, after: str, is_free: bool
) -> None:
    old, new = (plan(TABLE.replace("OPTIONS", one)).spec for one in (before, after))
    found = changes_between(old, new)
    assert found.fate(old.groups[0].name) is not GroupFate.SAME
    assert tuple(obstacles(old, new, found)) == ()
    assert bool(found.to_reset) is not is_free
    (table,) = (s for group in found.groups for s in group.states if s.kind == "table")
    assert (table.fate is StateFate.KEPT) is is_free
