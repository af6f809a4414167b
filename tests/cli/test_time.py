"""The incident of docs/time.md, word for word, on a cluster of `mesh dev`."""

from __future__ import annotations

import shlex
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


def shell(dev: Dev, command: str) -> str:
    """The output of a command of the page, with the `mesh` of this checkout."""
    program = f'mesh() {{ {shlex.quote(sys.executable)} -m mesh.cli "$@"; }}\n'
    said = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", program + command],
        cwd=dev.directory, env=dev.environment, capture_output=True, text=True,
        timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert said.returncode == 0, f"{command}: {said.stderr}{said.stdout}"
    return said.stdout


def test_the_incident_of_the_page_is_found_explained_and_corrected(dev: Dev) -> None:
    page = (ROOT / "docs" / "time.md").read_text("utf-8")
    part = page.split("## One incident")[1].split("\n## ")[0]
    lines = [line[4:] for line in part.splitlines() if line.startswith("    ")]
    text = [line for line in lines if line.startswith(("@", "define ", "from "))]
    (dev.directory / "plant.siddhi").write_text("\n".join(text) + "\n")
    dev.wait_for("The manager is up")
    whole_tree(dev)
    said = {}
    for line in lines:
        if line not in text:
            said[line] = shell(dev, line)
    by_name = {line.split()[1]: output for line, output in said.items() if line[:5] == "mesh "}
    assert '{"sensor":"boiler","mean":41.0}' in by_name["why"]
    assert [n for n in ("30.0", "52.0", "77.0") if f'"value":{n}' in by_name["why"]] == [
        "30.0",
        "52.0",
    ]
    assert "Alarms: 1 same, 0 new, 1 gone, 0 changed" in by_name["compare"]
    assert '"value":52.0' in by_name["compare"]
    assert "exit code 1" in by_name["compare"]
    assert "is running" in by_name["promote"]
    means = [line.split('"mean":')[1] for line in by_name["tap"].splitlines()]
    assert [mean[:2] for mean in means] == ["41", "53", "53"]
