"""A newcomer's way, word for word: the commands of the README on a cluster of `mesh dev`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.test_dev import DEADLINE_S, Dev, running_dev, whole_tree
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.nats, pytest.mark.spark, pytest.mark.slow, pytest.mark.extended,
    pytest.mark.timeout(500),
]  # fmt: skip


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    yield from running_dev(tmp_path)


def shell(dev: Dev, command: str, **variables: str) -> str:
    """The output of a command of the page, with the `mesh` of this checkout."""
    program = f"{shlex.quote(sys.executable)} -m mesh.cli"
    said = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command.replace(".venv/bin/mesh", program)],
        cwd=dev.directory, env=dev.environment | variables, capture_output=True, text=True,
        timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert said.returncode == 0, f"{command}: {said.stderr}{said.stdout}"
    return said.stdout


def test_the_commands_of_the_readme_work_one_after_the_other(dev: Dev) -> None:
    page = (ROOT / "README.md").read_text("utf-8")
    part = page.split("## From the demo to your own app")[1].split("### HTTP in, Kafka out")[0]
    lines = [line[4:] for line in part.splitlines() if line.startswith("    ")]
    text = [line for line in lines if line.startswith(("@", "define ", "from "))]
    (dev.directory / "shop.siddhi").write_text("\n".join(text) + "\n")
    wanted = (".venv/bin/mesh", "echo ")
    commands = [line for line in lines if line.startswith(wanted)]
    assert commands[0] == ".venv/bin/mesh dev"
    assert [line.split()[1] for line in commands[1:5]] == ["validate", "plan", "deploy", "status"]
    # As it prints them, for clients.
    said = dev.wait_for("The manager is up")
    url = re.search(r"nats://publisher:\S+@\S+", said)
    assert url is not None, said
    whole_tree(dev)
    outputs = [shell(dev, command) for command in commands[1:]]
    assert "running" in outputs[3]
    assert '"item":"lamp"' in outputs[-1].replace(" ", "")

    program = part.split("```python\n")[1].split("```")[0]
    variables = {"PUBLISHER": url[0]}
    subprocess.run(
        [sys.executable, "-c", program], env=os.environ | variables, check=True, timeout=60
    )
    tap = ".venv/bin/mesh tap Shop DearOrders --from-start --count 2"
    assert '"item":"rug"' in shell(dev, tap).replace(" ", "")
    if shutil.which("nats") is not None:
        for line in lines:
            if line.startswith("nats ") and " pub " in line:
                shell(dev, line, **variables)
        assert "sofa" in shell(dev, tap.replace("2", "3"))
