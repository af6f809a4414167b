"""Comparison of two plans: restarts with reasons, and kept states; ``mesh diff``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.errors import MeshError
from mesh.plan.build import plan
from mesh.plan.changes import GroupFate, changes_between, merge_specs
from mesh.plan.edits import obstacles
from mesh.plan.explain_changes import changes_to_values, explain_changes
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


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "old.siddhi").write_text(OLD)
    (tmp_path / "new.siddhi").write_text(NEW)
    return str(tmp_path / "old.siddhi"), str(tmp_path / "new.siddhi")


def test_files_are_compared(files: tuple[str, str]) -> None:
    told = CliRunner().invoke(app, ["diff", *files])
    assert told.exit_code == 1
    assert told.stdout == explain_changes(changes_between(plan(OLD).spec, plan(NEW).spec)) + "\n"
    same = CliRunner().invoke(app, ["diff", files[0], files[0]])
    assert (same.exit_code, same.stdout) == (0, "app A: nothing restarts\n")


def test_programs_get_values(files: tuple[str, str]) -> None:
    told = CliRunner().invoke(app, ["diff", *files, "--output", "json"])
    values = json.loads(told.stdout)
    assert told.exit_code == 1
    assert values["same"] is False
    assert {g["name"]: g["change"] for g in values["groups"]} == {
        "default": "started", "g": "same", "h": "same",
    }  # fmt: skip
    assert values["channels"][0] == {
        "stream": "V", "key": [], "computed": "", "change": "added", "reason": None,
    }  # fmt: skip


def test_what_no_running_app_can_become_is_told(files: tuple[str, str], tmp_path: Path) -> None:
    keyed = tmp_path / "keyed.siddhi"
    keyed.write_text(
        "@App:name('A') define stream S (a int); @dist(execGroup='g', parallel='2')"
        " partition with (a of S) begin from S#window.length(2) select a, count() as n"
        " insert into T; end;"
    )
    told = CliRunner().invoke(app, ["diff", files[0], str(keyed)])
    assert told.exit_code == 1
    assert "can't be changed like that while it runs (MESH-C121)\n  group g: " in told.stdout
    values = CliRunner().invoke(app, ["diff", files[0], str(keyed), "--output", "json"])
    assert json.loads(values.stdout)["obstacles"][0].startswith("group g: ")


def test_what_is_no_app_ends_with_two(files: tuple[str, str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.siddhi"
    wrong.write_text("@App:name('A') define strem S (a int);")
    told = CliRunner().invoke(app, ["diff", files[0], str(wrong)])
    assert told.exit_code == 2
    assert "MESH-L104" in told.stderr
    gone = CliRunner().invoke(app, ["diff", files[0], str(tmp_path / "gone")])
    assert gone.exit_code == 2
    assert "MESH-U120" in gone.stderr


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
