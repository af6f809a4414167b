"""`mesh help`, the parts of `mesh install`, and manual pages: all that comes with the wheel."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from mesh import shipped
from mesh.cli.commands import app
from mesh.cli.install import texts_of
from mesh.cli.manual import manual
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


def mesh(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_every_page_is_a_topic_with_one_line() -> None:
    lines = mesh("help").output.split("\n\n")[0].splitlines()
    pages = {str(path.relative_to(ROOT / "docs"))[:-3] for path in (ROOT / "docs").rglob("*.md")}
    assert {line.split()[0] for line in lines} == {"readme", *pages}
    found = dict(line.split(maxsplit=1) for line in lines)
    assert found["cookbook"] == "Fifteen tasks, each with a tested app or the commands for it."


def test_a_pipe_gets_the_page_as_it_is() -> None:
    for name in ("time", "design/sink"):
        assert mesh("help", name).output == (ROOT / "docs" / f"{name}.md").read_text("utf-8")


def test_a_terminal_gets_a_rendered_page_in_a_pager() -> None:
    outer, inner = pty.openpty()
    environment = {**os.environ, "PAGER": "sed s/^/paged:/", "TERM": "xterm", "COLUMNS": "80"}
    environment.pop("MANPAGER", None)
    with subprocess.Popen(
        [sys.executable, "-m", "mesh.cli", "help", "queries"], stdin=inner, stdout=inner,
        env=environment, cwd=ROOT,
    ) as process:  # fmt: skip
        os.close(inner)
        shown = b""
        try:
            while part := os.read(outer, 65536):
                shown += part
        except OSError:
            # The end of a terminal whose other side is closed.
            pass
        os.close(outer)
    assert process.returncode == 0
    lines = shown.decode().splitlines()
    assert all(line.startswith("paged:") for line in lines)
    text = re.sub(r"\x1b\[[\d;]*m", "", shown.decode())
    assert "# On-demand" not in text
    assert "On-demand queries" in text
    assert "\x1b[" in shown.decode()


def test_the_name_of_a_command_shows_its_help_and_another_name_the_nearest() -> None:
    assert mesh("help", "deploy").output == mesh("deploy", "--help").output
    ended = mesh("help", "cookbok")
    assert ended.exit_code == 1
    assert "[MESH-U183]" in ended.stderr
    assert 'Did you mean "cookbook"?' in ended.stderr


def test_every_part_is_listed_and_written(tmp_path: Path) -> None:
    listed = mesh("install").output
    for part in shipped.PARTS:
        assert f" {part.name} " in listed
        files = texts_of(part)
        said = mesh("install", part.name).output.splitlines()
        assert said[:-1] == list(files)
        mesh("install", part.name, "--write", str(tmp_path / part.name))
        for name, text in files.items():
            assert (tmp_path / part.name / name).read_text("utf-8") == text
    for name in (
        "grafana/mesh.json", "prometheus/rules.yml", "kubernetes/base/kustomization.yaml",
        "editor/siddhiql.tmLanguage.json", "docs/siddhiql.md", "settings/mesh.yaml",
        "man/man1/mesh-deploy.1", "examples/orders.siddhi",
    ):  # fmt: skip
        assert (tmp_path / name).stat().st_size > 0
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o644


def test_a_file_that_differs_is_kept_unless_forced(tmp_path: Path) -> None:
    write = ("install", "grafana", "--write", str(tmp_path))
    file = tmp_path / "mesh.json"
    assert mesh(*write, "--dry-run").output == f"would write {file}\n"
    assert not file.exists()
    assert mesh(*write).output == f"wrote {file}\n"
    assert mesh(*write).output == f"unchanged {file}\n"
    file.write_text("{}")
    assert mesh(*write).output == f"kept {file}, which differs; --force replaces it\n"
    assert mesh(*write, "--force").output == f"wrote {file}\n"
    assert file.read_bytes() == (ROOT / "conf" / "grafana" / "mesh.json").read_bytes()


def test_a_part_that_is_none_and_a_folder_without_a_role_are_refused(tmp_path: Path) -> None:
    ended = mesh("install", "graphana")
    assert ended.exit_code == 2
    assert '"graphana" is none of docs, man, ' in " ".join(ended.stderr.split())
    (tmp_path / "a").write_text("")
    ended = mesh("install", "grafana", "--write", str(tmp_path / "a"))
    assert "[MESH-U182]" in ended.stderr


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
