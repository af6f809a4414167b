"""The catalogue of error codes: complete, true, and the same in the documents and the command."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from mesh.cli.commands import app
from mesh.client.checking import check
from mesh.error_codes import PARTS, Entry, catalogue
from tests.support.paths import ROOT
from tests.support.together import together
from tools.docgen.codes import computed_parts, raised_codes

ENTRIES = catalogue().values()


def test_every_code_in_the_source_has_an_entry() -> None:
    assert raised_codes(ROOT) - catalogue().keys() == set()


def test_every_entry_is_a_code_in_the_source() -> None:
    computed, raised = computed_parts(ROOT), raised_codes(ROOT)
    unused = {
        entry.code
        for entry in ENTRIES
        # MESH-A4xx and MESH-A5xx are made from the HTTP status.
        if entry.code not in raised and not (entry.part in computed and entry.messages)
    }
    assert unused == set()


@together("entry", ENTRIES, ids=lambda entry: entry.code)
def test_every_entry_says_what_when_and_how_to_mend_it(entry: Entry) -> None:
    assert entry.part in PARTS
    assert entry.title
    assert not entry.title.endswith(".")
    for sentences in (entry.meaning, entry.mend):
        assert re.search(r"[.:`]$|[a-z0-9'`)]\.$", sentences), sentences
        assert "\n" not in sentences
    assert entry.example or entry.messages
    assert entry.example or entry.part not in "LP", "an app shows it best"


#: Examples that are cut short, as the apps themselves would fill pages.
ABRIDGED = {"MESH-L105"}


@together(
    "entry", [e for e in ENTRIES if e.example and e.code not in ABRIDGED], ids=lambda e: e.code
)
def test_examples_give_what_they_show(entry: Entry) -> None:
    assert entry.example is not None
    checked = check(entry.example.app, {})
    (error,) = (*checked.errors, *checked.warnings)
    assert error.code == entry.code
    assert error.render(entry.example.app) == entry.example.error


@pytest.mark.parametrize("asked", ["MESH-L104", "mesh-l104", "L104", "[MESH-L104]"])
def test_a_code_is_explained_however_it_is_written(asked: str) -> None:
    said = CliRunner().invoke(app, ["explain", asked])
    assert said.exit_code == 0
    entry = catalogue()["MESH-L104"]
    assert said.stdout.startswith(f"MESH-L104: {entry.title}\n")
    assert entry.example is not None
    for line in (*entry.example.app.split("\n"), *entry.example.error.split("\n")):
        assert f"    {line}" in said.stdout
    assert "Remedy: " in said.stdout


def test_a_code_of_no_app_is_explained_by_its_messages() -> None:
    said = CliRunner().invoke(app, ["explain", "U120"])
    assert said.exit_code == 0
    assert '    file "{path}" can\'t be read\n' in said.stdout


def test_programs_get_the_entry_as_values() -> None:
    said = CliRunner().invoke(app, ["explain", "MESH-P101", "--output", "json"])
    values = json.loads(said.stdout)
    assert values == catalogue()["MESH-P101"].to_dict()
    assert values["example"]["error"].startswith("the name of the app is empty [MESH-P101]\n")


def test_all_codes_are_listed_without_one() -> None:
    lines = CliRunner().invoke(app, ["explain"]).stdout.splitlines()
    assert lines == [f"{entry.code}  {entry.title}" for entry in ENTRIES]
    values = json.loads(CliRunner().invoke(app, ["explain", "-o", "json"]).stdout)
    assert [value["code"] for value in values] == list(catalogue())


@pytest.mark.parametrize(
    ("asked", "near"), [("MESH-L1O4", "MESH-L104"), ("MESH-P91", "MESH-P9"), ("P0101", "MESH-P101")]
)
def test_a_code_that_does_not_exist_gets_the_nearest(asked: str, near: str) -> None:
    said = CliRunner().invoke(app, ["explain", asked])
    assert said.exit_code == 1
    assert f'code "{asked}" does not exist [MESH-U126]' in said.stderr
    assert f"Did you mean {near}" in said.stderr


def test_what_is_no_code_at_all_gets_the_list() -> None:
    said = CliRunner().invoke(app, ["explain", "stream is not defined"])
    assert said.exit_code == 1
    assert "hint: 'mesh explain' lists all." in said.stderr
