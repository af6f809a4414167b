"""`mesh test`: what it says of an app's test."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.cli.testing import play_tests
from mesh.errors import MeshError
from mesh.operators import loop_cache
from mesh.processes import progress
from mesh.testing import app_tests
from tests.support.example_apps import FOLDER

if TYPE_CHECKING:
    from pathlib import Path


def copied(directory: Path) -> Path:
    for path in FOLDER.glob("enrichment.*"):
        shutil.copy(path, directory)
    return directory / "enrichment.siddhi"


def test_a_test_that_takes_long_says_what_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(tmp_path)
    said = threading.Event()
    play = app_tests.play

    def slow(text: str, events: Any) -> Any:
        assert said.wait(30)
        return play(text, events)

    class Heard(io.StringIO):
        def flush(self) -> None:
            said.set()

    heard = Heard()
    monkeypatch.setattr(app_tests, "play", slow)
    monkeypatch.setattr(progress, "SILENT_S", 0.0)
    monkeypatch.setattr(loop_cache, "is_compiled", lambda: False)
    monkeypatch.setattr(loop_cache, "CACHE", tmp_path)
    monkeypatch.setattr(sys, "stderr", heard)
    play_tests([path])
    (line,) = heard.getvalue().splitlines()
    assert re.search(r"and compiles native loops, once on this machine: 0 so far \(\d+ s\) ", line)


def test_another_output_is_shown_and_the_exit_code_says_so(tmp_path: Path) -> None:
    path = copied(tmp_path)
    said = CliRunner().invoke(app, ["test", str(path)])
    assert said.exit_code == 0
    assert "62 events, 62 out: as expected" in said.stdout

    path.write_text(path.read_text().replace('"gold"', '"Gold"'))
    said = CliRunner().invoke(app, ["test", str(path)])
    assert said.exit_code == 1
    assert '"tier":"Gold"' in said.stdout
    assert 'expected: {"time":' in said.stdout
    assert CliRunner().invoke(app, ["test", str(path), "--rewrite"]).exit_code == 0
    said = CliRunner().invoke(app, ["test", str(path), "--output", "json"])
    assert json.loads(said.stdout)[0]["differences"] == []


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{", "MESH-U160"),
        ('{"time": 1, "event": {}}', "MESH-U160"),
        ('{"time": 1, "stream": "No", "event": {}}', "MESH-U161"),
        ('{"time": 1, "stream": "Purchases", "event": {"amount": 1.0}}', "MESH-U161"),
        ('{"time": 1, "stream": "Purchases", "event": {"customer": 1, "amount": 1}}', "MESH-U162"),
    ],
)
def test_a_line_that_is_no_event_of_the_app_is_refused(
    line: str, code: str, tmp_path: Path
) -> None:
    path = copied(tmp_path)
    app_tests.events_path(path).write_text(line + "\n")
    with pytest.raises(MeshError) as caught:
        app_tests.play(path.read_text(), app_tests.read(app_tests.events_path(path)))
    assert caught.value.code == code
    said = CliRunner().invoke(app, ["test", str(path)])
    assert said.exit_code == 1
    assert code in said.stderr


def test_a_file_that_a_test_lacks_is_told_with_what_it_is_for(tmp_path: Path) -> None:
    path = tmp_path / "a.siddhi"
    path.write_text("define stream S (a int); from S select a insert into T;")
    said = CliRunner().invoke(app, ["test", str(path)])
    assert "a.events.jsonl" in said.stderr
    assert "It has the events that the test sends" in said.stderr
    (tmp_path / "a.events.jsonl").write_text('{"time": 1, "stream": "S", "event": {"a": 1}}')
    said = CliRunner().invoke(app, ["test", str(path)])
    assert said.exit_code == 1
    assert "'mesh test --rewrite' writes the output there" in said.stderr
    assert CliRunner().invoke(app, ["test", str(path), "--rewrite"]).exit_code == 0
    assert CliRunner().invoke(app, ["test", str(path)]).exit_code == 0
