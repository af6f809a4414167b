"""`mesh help`: pages and commands, as a terminal and as a pipe get them."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

from tests.support.mesh_command import mesh
from tests.support.paths import ROOT


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
