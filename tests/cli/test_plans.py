"""``mesh plan`` and ``mesh diff``: texts that come in, and what is told of their plans."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.plan.build import plan
from mesh.plan.changes import changes_between
from mesh.plan.explain import explain_changes
from tests.support.paths import EXAMPLE


def test_a_fault_as_json_has_its_position(alone: Path) -> None:
    path = alone / "bad.siddhi"
    path.write_text(EXAMPLE.read_text().replace("e1=TempStream", "e1=TempStreem"))
    said = CliRunner().invoke(app, ["plan", str(path), "--output", "json"])
    assert said.exit_code == 1
    error = json.loads(said.stdout)["error"]
    assert error["code"].startswith("MESH-")
    assert error["position"]["line"] == 7


def test_a_text_comes_from_standard_input(alone: Path) -> None:
    said = CliRunner().invoke(app, ["plan", "-", "-o", "json"], input=EXAMPLE.read_text())
    assert said.exit_code == 0
    assert json.loads(said.stdout)["app"] == "Temperature"


OLD = """
@App:name('A') define stream S (a int);
@dist(execGroup='g') from S#window.length(2) select a, count() as n insert into T;
@dist(execGroup='h') from S#window.length(3) select a, count() as n insert into U;
"""
NEW = OLD.replace(
    "define stream S (a int);", "define stream S (a int); from S select a insert into V;"
)


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


@pytest.mark.parametrize(("form", "start"), [("svg", "<svg "), ("dot", "digraph ")])
def test_the_command_draws(form: str, start: str) -> None:
    said = CliRunner().invoke(app, ["plan", str(EXAMPLE), "--output", form])
    assert said.exit_code == 0
    assert said.stdout.startswith(start)
