"""Manual pages: one for each command, without a warning of the formatter."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from typer.main import get_command

from mesh.cli.commands import app
from mesh.cli.manual import manual
from tests.support.mesh_command import mesh

if TYPE_CHECKING:
    from pathlib import Path


def test_each_command_has_a_manual_page_with_all_of_its_options() -> None:
    pages = manual()
    commands = get_command(app).commands  # type: ignore[attr-defined]  # the app is a group
    assert set(pages) == {"man1/mesh.1", *(f"man1/mesh-{name}.1" for name in commands)}
    for name, command in commands.items():
        page = pages[f"man1/mesh-{name}.1"]
        for one in (command, *getattr(command, "commands", {}).values()):
            for option in (text for param in one.params for text in param.opts if "-" in text):
                assert f"\\fB{option}\\fP".replace("-", "\\-") in page, f"{name} {option}"
        assert f"mesh\\-{name.replace('-', chr(92) + '-')} (1)" in pages["man1/mesh.1"]
    # Details are those of docs/cli.md.
    assert "Streams that are not named may have any events" in pages["man1/mesh-test.1"]
    assert "Credentials go to the server of their source only" in pages["man1/mesh.1"]


def test_manual_pages_are_roff_without_a_warning(tmp_path: Path) -> None:
    if (groff := shutil.which("groff")) is None:
        pytest.skip("groff is not installed")
    mesh("install", "man", "--write", str(tmp_path))
    command = [groff, "-man", "-ww", "-b", "-z", *map(str, tmp_path.glob("man1/*.1"))]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stderr == ""
    shown = subprocess.run(
        [groff, "-man", "-Tascii", "-P-c", str(tmp_path / "man1" / "mesh-install.1")],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "mesh-install" in shown
