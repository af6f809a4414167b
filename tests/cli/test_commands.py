"""The ``mesh`` command: help of all of its commands, usage errors, and sentences for the others."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mesh.cli.commands import app

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = (
    "dev", "demo", "validate", "format", "explain", "plan", "diff", "deploy", "undeploy", "apps",
    "status", "errors", "query", "replay", "discard", "nodes", "cordon", "uncordon", "drain",
    "publish", "tap", "manager", "worker",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(alone: Path, command: str) -> None:
    said = CliRunner().invoke(app, [command, "--help"])
    assert said.exit_code == 0
    assert "Example:" in said.output
    assert f"mesh {command}" in said.output


def test_help_and_client_commands_load_nothing_heavy(alone: Path) -> None:
    program = (
        "import sys\n"
        "from mesh.cli.commands import app\n"
        "import mesh.client, mesh.cli.events\n"
        "app(['--help'], standalone_mode=False)\n"
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'numpy', 'mesh.plan'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["deploy"],
        ["no-such-command"],
        ["tap", "A", "B", "--count", "x"],
        ["apps", "--output", "xml"],
    ],
)
def test_usage_errors_end_with_2(alone: Path, arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["validate", "none.siddhi"], "MESH-U120"),
        (["apps"], "no cluster named"),
        (["tap", "App", "Stream"], "no NATS named"),
        (["publish", "a.b", "S", "x", "--nats", "nats://127.0.0.1:1"], "MESH-U120"),
        (["tap", "A", "a.b", "--nats", "nats://127.0.0.1:1"], "MESH-U121"),
        (["tap", "App", "Stream", "--nats", "nats://127.0.0.1:1"], "MESH-N110"),
        (["apps", "--server", "http://127.0.0.1:1"], "can't be reached"),
        (["apps", "--context", "none.json"], "MESH-U130"),
        (["manager", "--config", "none.yaml"], "MESH-U100"),
    ],
)
def test_expected_errors_are_sentences_and_end_with_1(
    alone: Path, arguments: list[str], words: str
) -> None:
    said = CliRunner().invoke(app, arguments)
    assert said.exit_code == 1
    assert words in said.stderr
    assert "Traceback" not in said.stderr


def test_a_command_ends_without_a_search_for_garbage() -> None:
    program = (
        "import atexit, gc, sys;"
        "atexit.register(lambda: print('frozen', gc.get_freeze_count() > 1000));"
        "sys.argv = ['mesh', '--help'];"
        "from mesh.cli import main; main()"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.endswith("frozen True\n")
