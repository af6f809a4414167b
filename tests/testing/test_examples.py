"""The examples emit what the reference engine emits, and `mesh test` plays them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from mesh.plan.build import plan
from mesh.testing import app_tests
from tests.support.example_apps import FOLDER
from tests.support.paths import ROOT
from tools.record_examples import example_apps

if TYPE_CHECKING:
    from pathlib import Path

APPS = example_apps(FOLDER)
#: Sections of the cookbook whose blocks are commands, or need a database.
COMMANDS = ("A day again", "A rule beside", "Changes of a database")
COOKBOOK = example_apps(FOLDER / "cookbook")


def test_there_are_eight_and_the_page_lists_each() -> None:
    assert len(APPS) == 8
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in APPS if f"[{path.name}]({path.name})" not in page] == []


@pytest.mark.parametrize("path", APPS, ids=lambda path: path.stem)
def test_an_example_emits_what_the_reference_engine_does(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert plan(text).spec.groups
    expected = app_tests.read(app_tests.expected_path(path))
    assert len(expected) >= 5
    found = app_tests.play(text, app_tests.read(app_tests.events_path(path)))
    assert app_tests.differences(found, expected) == []


@pytest.mark.parametrize("path", COOKBOOK, ids=lambda path: path.stem)
def test_an_app_of_the_cookbook_does_too_and_its_page_has_its_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert plan(text).spec.groups
    expected = app_tests.read(app_tests.expected_path(path))
    found = app_tests.play(text, app_tests.read(app_tests.events_path(path)))
    assert expected
    assert app_tests.differences(found, expected) == []
    page = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
    assert f"`{path.name}`" in page


def test_the_cookbook_shows_lines_of_its_apps() -> None:
    apps = [*COOKBOOK, *APPS]
    known = {line.strip() for path in apps for line in path.read_text("utf-8").splitlines()}
    page = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    shown = [
        line.strip()
        for section in sections
        if not section.startswith(COMMANDS)
        for line in section.splitlines()
        if line.startswith("    ")
    ]
    assert len(shown) > 30
    assert [line for line in shown if line not in known] == []
